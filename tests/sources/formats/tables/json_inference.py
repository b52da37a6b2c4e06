"""Columns of JSON without a schema: types that keep every value exactly, or the JSON text."""

from __future__ import annotations

from typing import Any

from tests.sources.formats.case import KAFKA, OBJECTS, Case, Records, case, defect, differs


def inferred(kind: str, *pairs: tuple[str, Any]) -> Case:
    """A column with these values, as they are written and as they are kept."""
    records = Records(*(f'{{"a": {written}}}' for written, _ in pairs))
    name = f"{kind} for {', '.join(written for written, _ in pairs)}"
    return case(name, "json", records, [(value,) for _, value in pairs], columns=f"a {kind}")


TYPES = [
    inferred("bigint", ("1", 1), ("-5", -5), ("null", None)),
    inferred("bigint", ("-0", 0)),
    inferred("bigint", ("9007199254740993", 2**53 + 1)),
    inferred("bigint", ("9007199254740993", 2**53 + 1), ("1", 1)),
    inferred("bigint", ("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63))),
    inferred("bigint", ("-1000000000000000000", -(10**18))),
    inferred("string", ("9223372036854775808", "9223372036854775808")),
    inferred("string", ("-9223372036854775809", "-9223372036854775809"), ("1", "1")),
    inferred("string", ("1" + "0" * 40, "1" + "0" * 40)),
    inferred("double", ("1", 1.0), ("1.5", 1.5)),
    inferred("double", ("9007199254740992", 9007199254740992.0), ("0.5", 0.5)),
    inferred("string", ("9007199254740993", "9007199254740993"), ("1.5", "1.5")),
    inferred("double", ("0.1", 0.1)),
    inferred("double", ("1.0", 1.0)),
    inferred("double", ("1.10", 1.1)),
    inferred("double", ("1e2", 100.0)),
    inferred("double", ("1E+5", 100000.0), ("5e-324", 5e-324)),
    inferred("double", ("-0.0", -0.0)),
    inferred("double", ("-0", -0.0), ("0.5", 0.5)),
    inferred("double", ("0.30000000000000004", 0.30000000000000004)),
    inferred("double", ("1.7976931348623157e308", 1.7976931348623157e308)),
    inferred("double", ("123456.789012", 123456.789012)),
    inferred("string", ("0.12345678901234567890123", "0.12345678901234567890123")),
    inferred("string", ("1.00000000000000000001", "1.00000000000000000001"), ("2", "2")),
    inferred("string", ("0.1", "0.1"), ("0.10000000000000001", "0.10000000000000001")),
    inferred("string", ("123456789012345678.5", "123456789012345678.5")),
    inferred("string", ("1e400", "1e400")),
    inferred("string", ("1e-400", "1e-400")),
    inferred("boolean", ("true", True), ("null", None), ("false", False)),
    inferred("string", ("true", "true"), ("1", "1")),
    inferred("string", ('"x"', "x"), ("1", "1"), ("1.50", "1.50"), ("false", "false"), ("null", None)),
    inferred("string", ('"1"', "1"), ('"2"', "2")),
    inferred("string", ('""', "")),
    inferred("string", ('"2026-03-02"', "2026-03-02"), ('"2026-03-02T08:00:00Z"', "2026-03-02T08:00:00Z")),
    inferred("string", ('"1234567890123456789"', "1234567890123456789"), ('"NaN"', "NaN")),
    inferred("string", (r'"\u0000é\ud83d\ude00"', "\x00é😀")),
    inferred("string", ('{"b": 1}', '{"b":1}'), ("[1]", "[1]")),
    inferred("string", ("[]", "[]"), ("{}", "{}")),
    inferred("string", ('[1, "x", null, 2.50, {"y": {}}]', '[1,"x",null,2.50,{"y":{}}]')),
    inferred("string", ('{"b": {"c": [null]}}', '{"b":{"c":[null]}}'), ("null", None)),
    inferred("string", ("[1]", "[1]"), ("2", "2")),
]
NOTHING = "a topic without a field is refused; files may bring fields later, and their rows count"
FIELDS = [
    case(
        "columns stand in the order in which they are found",
        "json",
        Records(b'{"z": 1}', b'{"a": true, "z": 2, "odd `name": "x"}'),
        [(1, None, None), (2, True, "x")],
        columns="z bigint, a boolean, `odd `name` string",
    ),
    case(
        "a field that is only null is no column",
        "json",
        Records(b'{"a": null, "b": 1}', b'{"a": null}'),
        [(1,), (None,)],
        columns="b bigint",
    ),
    case(
        "what is no object brings no column, and is a reject",
        "json",
        Records(b'{"b": 1}', b"oops", b"[1]", b'{"c": NaN}'),
        [(1,)],
        columns="b bigint",
        rejects={
            2: "no JSON: Expecting value at character 0",
            3: "expected an object, found an array",
            4: "NaN is not JSON",
        },
    ),
    case(
        "a field that stands twice is a column, and its message a reject",
        "json",
        Records(b'{"b": 1}', b'{"b": 2, "b": 3}'),
        [(1,)],
        columns="b bigint",
        rejects={2: "b stands twice"},
    ),
    case(
        "half of a surrogate pair is a reject",
        "json",
        Records(b'{"b": "x"}', rb'{"b": "\ud800"}'),
        [("x",)],
        columns="b string",
        rejects={2: "b: a text holds half of a surrogate pair"},
    ),
    defect(
        case(
            "half of a surrogate pair in a name is a reject",
            "json",
            Records(b'{"b": 1}', rb'{"\ud800": 1, "b": 2}'),
            [(1,)],
            columns="b bigint",
            rejects={2: "a name holds half of a surrogate pair"},
        ),
        "one such message ends the plan of the whole stream in an error of ours",
        error="crash: UnicodeEncodeError: 'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed",
    ),
    case("a NUL in a name", "json", Records(rb'{"a\u0000b": 1}'), [(1,)], columns="`a\x00b` bigint"),
    case(
        "a field twice, once null",
        "json",
        Records(b'{"a": 2}', b'{"a": null, "a": 1}'),
        [(2,)],
        columns="a bigint",
        rejects={2: "a stands twice"},
    ),
    case(
        "names that differ in case are refused",
        "json",
        Records(b'{"id": 1, "ID": 2}'),
        error="fields that cannot be columns beside each other: id, ID",
    ),
    case(
        "a field without a name is refused",
        "json",
        Records(b'{"": 1}'),
        error="fields that cannot be columns beside each other: one without a name",
    ),
    differs(
        case("objects without a field", "json", Records(b"{}", b"{}"), [(), ()], columns=""),
        KAFKA,
        NOTHING,
        error="no message of the window is a JSON object with a field",
    ),
    differs(
        case("objects with nothing but null", "json", Records(b'{"a": null}'), [()], columns=""),
        KAFKA,
        NOTHING,
        error="no message of the window is a JSON object with a field",
    ),
    differs(
        case(
            "nothing that is an object",
            "json",
            Records(b"oops"),
            error="no message of the window is a JSON object with a field",
        ),
        OBJECTS,
        NOTHING,
        error="",
        rejects={None: "no JSON: Expecting value at character 0"},
    ),
]
LATER = [
    case(
        "a column keeps its type, and later values that do not fit are rejects",
        "json",
        [
            Records(b'{"id": 1, "f": 1.5, "s": "x", "b": true}'),
            Records(b'{"id": "four"}', b'{"id": 5, "f": 2, "s": 3}'),
        ],
        [(5, 2.0, "3", None)],
        columns="id bigint, f double, s string, b boolean",
        rejects={1: "id: expected a number, found the text 'four'"},
    ),
    case(
        "new fields are new columns behind the known ones",
        "json",
        [Records(b'{"z": 1}'), Records(b'{"a": true}', b'{"z": 2.0}')],
        [(None, True), (2, None)],
        columns="z bigint, a boolean",
    ),
    case(
        "a field that was only null has its type when it has a value",
        "json",
        [Records(b'{"id": 1, "a": null}'), Records(b'{"id": 2, "a": 1.5}')],
        [(2, 1.5)],
        columns="id bigint, a double",
    ),
    case(
        "a bigint does not become a double",
        "json",
        [Records(b'{"a": 1}'), Records(b'{"a": 1.5}', b'{"a": 9223372036854775808}', b'{"a": 2}')],
        [(2,)],
        columns="a bigint",
        rejects={1: "a: 1.5 is no int64", 2: "a: 9223372036854775808 is no int64"},
    ),
    case(
        "a double takes the nearest number of later ones",
        "json",
        [Records(b'{"a": 1.5}'), Records(b'{"a": 9007199254740993}', b'{"a": 1e400}')],
        [(9007199254740992.0,)],
        columns="a double",
        rejects={2: "a: 1e400 is beyond double"},
    ),
]
CASES = [*TYPES, *FIELDS, *LATER]
