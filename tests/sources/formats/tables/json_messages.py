"""What is one JSON object, and what is none: messages of a topic, lines of a file."""

from __future__ import annotations

from decimal import Decimal

from tests.sources.formats.case import OBJECTS, Case, Records, case, differs

FIRST = b'{"a": 1}'


def bad(name: str, message: bytes, reason: str) -> Case:
    """Beside a good message, so that a file is one of lines."""
    return case(name, "json", Records(FIRST, message), [(1,)], rejects={2: reason}, schema="a bigint")


def only_in_kafka(name: str, message: bytes, reason: str) -> Case:
    """What a file would show as several lines."""
    return case(name, "json", Records(FIRST, message, None), [(1,), (None,)], rejects={2: reason}, schema="a bigint")


BLANK = "a line without anything is no row; a message is one, and has no object"
BAD = [
    *(
        differs(bad(name, message, "empty"), OBJECTS, BLANK, rejects={})
        for name, message in {"nothing": b"", "blanks": b" \t ", "a carriage return": b"\r"}.items()
    ),
    bad("null", b"null", "expected an object, found null"),
    bad("an array", b"[1]", "expected an object, found an array"),
    bad("an array of objects", b'[{"a": 1}]', "expected an object, found an array"),
    bad("a number", b"5", "expected an object, found the number 5"),
    bad("a text", b'"x"', "expected an object, found the text 'x'"),
    bad("true", b"true", "expected an object, found true"),
    bad("an open object", b'{"a": 1', "no JSON: Expecting ',' delimiter at character 7"),
    bad("an open text", b'{"a": "x', "no JSON: Unterminated string starting at at character 6"),
    bad("no JSON", b"oops", "no JSON: Expecting value at character 0"),
    bad("words behind the object", b'{"a": 1} x', "no JSON: more after the value at character 8"),
    bad("two objects", b'{"a": 1}{"a": 2}', "no JSON: more after the value at character 8"),
    bad("two objects with null between", b'{"a": 1} null {"a": 2}', "no JSON: more after the value at character 8"),
    bad("a comma behind the object", b'{"a": 1},', "no JSON: more after the value at character 8"),
    bad("a comma behind the last field", b'{"a": 1,}', "no JSON: …"),  # Python 3.13 has other words for it
    bad("single quotes", b"{'a': 1}", "no JSON: Expecting property name enclosed in double quotes at character 1"),
    bad(
        "a name without quotes", b"{a: 1}", "no JSON: Expecting property name enclosed in double quotes at character 1"
    ),
    bad("a zero in front", b'{"a": 01}', "no JSON: Expecting ',' delimiter at character 7"),
    bad("a plus in front", b'{"a": +1}', "no JSON: Expecting value at character 6"),
    bad("a point without digits", b'{"a": 1.}', "no JSON: Expecting ',' delimiter at character 7"),
    bad("hexadecimal digits", b'{"a": 0x10}', "no JSON: Expecting ',' delimiter at character 7"),
    bad("NaN", b'{"a": NaN}', "NaN is not JSON"),
    bad("Infinity", b'{"a": Infinity}', "Infinity is not JSON"),
    bad("-Infinity", b'{"a": -Infinity}', "-Infinity is not JSON"),
    bad("NaN in a field that is left out", b'{"a": 2, "u": NaN}', "NaN is not JSON"),
    bad("a comment", b'{"a": 1 /* one */}', "no JSON: Expecting ',' delimiter at character 8"),
    bad("True of Python", b'{"a": True}', "no JSON: Expecting value at character 6"),
    bad("a field twice", b'{"a": 1, "a": 2}', "a stands twice"),
    bad("a field twice, once with an escape", rb'{"a": 1, "\u0061": 2}', "a stands twice"),
    bad("a field twice, both alike", b'{"a": 1, "a": 1}', "a stands twice"),
    bad("no UTF-8", b'{"b": "\xff"}', "not UTF-8 at byte 7"),
    bad("a surrogate in UTF-8", b'{"b": "\xed\xa0\x80"}', "not UTF-8 at byte 7"),
    bad("an overlong form in UTF-8", b'{"b": "\xc0\xaf"}', "not UTF-8 at byte 7"),
    bad("a mark of UTF-8 in front", b'\xef\xbb\xbf{"a": 1}', "no JSON: Expecting value at character 0"),
    bad("a tab in a text", b'{"b": "x\ty"}', "no JSON: Invalid control character at at character 8"),
    bad("a NUL in a text", b'{"b": "x\x00y"}', "no JSON: Invalid control character at at character 8"),
    bad("an unknown escape", rb'{"b": "\x41"}', r"no JSON: Invalid \escape at character 7"),
    bad("a short escape", rb'{"b": "\u12"}', r"no JSON: Invalid \uXXXX escape at character 8"),
    bad(
        "a line separator behind the object", '{"a": 1}\u2028'.encode(), "no JSON: more after the value at character 8"
    ),
    bad("a hard space in front", '\u00a0{"a": 1}'.encode(), "no JSON: Expecting value at character 0"),
    bad("a NUL behind the object", b'{"a": 1}\x00', "no JSON: more after the value at character 8"),
    bad("too many levels", b'{"b": ' + b"[" * 200_000, "nested too deeply"),
    only_in_kafka("two objects on two lines", b'{"a": 1}\n{"a": 2}', "no JSON: more after the value at character 8"),
    only_in_kafka("a line break in a text", b'{"b": "x\ny"}', "no JSON: Invalid control character at at character 8"),
    only_in_kafka("only a line break", b"\n", "empty"),
]
GOOD = [
    case("blanks around", "json", Records(b' \t{ "a" :\t1 }\r'), [(1,)], schema="a bigint"),
    case("an empty object", "json", Records(b"{}"), [(None, None)], schema="a bigint, b string"),
    case("fields in any order", "json", Records(b'{"b": "x", "a": 1}'), [(1, "x")], schema="a bigint, b string"),
    case(
        "unknown fields are left out",
        "json",
        Records(b'{"a": 1, "u": {"a": [1e400]}}', rb'{"u": "\ud800", "a": 2, "u": 3}'),
        [(1,), (2,)],
        schema="a bigint",
    ),
    case(
        "missing fields are NULL",
        "json",
        Records(b'{"b": "x"}', b"{}"),
        [(None, "x"), (None, None)],
        schema="a bigint, b string",
    ),
    case(
        "a missing field is a reject where the schema says NOT NULL",
        "json",
        Records(b'{"a": 1}', b'{"b": "x"}', b'{"a": null}', b'{"a": 4}'),
        [(1, None), (4, None)],
        rejects={
            2: "a: NULL or missing, and the schema says NOT NULL",
            3: "a: NULL or missing, and the schema says NOT NULL",
        },
        schema="a bigint NOT NULL, b string",
    ),
    case(
        "all digits beside a map",
        "json",
        Records('{"a": %s, "m": {"x": 1}}' % ("9" * 36 + ".99")),
        [(Decimal("9" * 36 + ".99"), [("x", 1)])],
        schema="a decimal(38,2), m map<string,int>",
    ),
    case("names are told apart by case", "json", Records(b'{"A": 1}', b'{"a": 2}'), [(None,), (2,)], schema="a bigint"),
    case("a name with an escape", "json", Records(rb'{"\u0061": 1}'), [(1,)], schema="a bigint"),
    case(
        "odd names", "json", Records('{"odd name": 1, "é": 2, "": 3}'), [(1, 2)], schema="`odd name` bigint, `é` bigint"
    ),
    case(
        "the first reason is told",
        "json",
        Records(b'{"a": "x", "b": 1.5}'),
        rejects={1: "a: expected a number, found the text 'x'"},
        schema="a bigint, b int",
    ),
    case(
        "bad messages among good ones",
        "json",
        Records(*(b'{"a": %d}' % n if n % 7 else b'{"a": %d.5}' % n for n in range(1, 30))),
        [(n,) for n in range(1, 30) if n % 7],
        rejects={n: f"a: {n}.5 is no int64" for n in (7, 14, 21, 28)},
        schema="a bigint",
    ),
    case(
        "a message over several lines",
        "json",
        Records(b'{\n  "a": 1,\r\n  "b": "x"\n}\r\n', None),
        [(1, "x"), (None, None)],
        schema="a bigint, b string",
    ),
]
TOMBSTONES = [
    case("a tombstone is a row of NULLs", "json", Records(b'{"a": 1}', None), [(1,), (None,)], schema="a bigint"),
    case("a tombstone is left out", "json", Records(b'{"a": 1}', None), [(1,)], schema="a bigint", tombstones="skip"),
    case(
        "a tombstone is a reject",
        "json",
        Records(b'{"a": 1}', None),
        [(1,)],
        rejects={2: "no value"},
        schema="a bigint",
        tombstones="reject",
    ),
    case(
        "a tombstone is a reject where the schema says NOT NULL",
        "json",
        Records(b'{"a": 1}', None),
        [(1,)],
        rejects={2: "a: NULL or missing, and the schema says NOT NULL"},
        schema="a bigint NOT NULL",
    ),
]
CASES = [*BAD, *GOOD, *TOMBSTONES]
