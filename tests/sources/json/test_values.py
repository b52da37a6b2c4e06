"""JSON values into typed columns: exactly, or a reject (G8), and the same whether messages come alone or in crowds."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.sources.ddl_schema import schema_of
from headwater.sources.json.fast import FastJson
from headwater.sources.json.strict import Misfit, StrictJson
from headwater.sources.json.values import JsonValues

KEPT = object()


def one(ddl: str, value: bytes | str) -> object:
    """The value of the column `a`, or the reason of the reject."""
    data = value.encode() if isinstance(value, str) else value
    parsed = JsonValues(schema_of(f"a {ddl}")).parse([data])
    if parsed.rejected:
        return f"reject: {parsed.rejected[0][1]}"
    return parsed.batches[0].column(0)[0].as_py()


UTC8 = dt.datetime(2026, 3, 2, 8, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("ddl", "written", "kept"),
    [
        ("bigint", "5", 5),
        ("bigint", "5.0", 5),
        ("bigint", "5e2", 500),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("bigint", "null", None),
        ("tinyint", "-128", -128),
        ("int", "2147483647", 2**31 - 1),
        ("boolean", "true", True),
        ("double", "0.1", 0.1),
        ("double", "5", 5.0),
        ("double", "-0", -0.0),
        ("float", "0.5", 0.5),
        ("decimal(5,2)", "123.45", Decimal("123.45")),
        ("decimal(5,2)", '"123.45"', Decimal("123.45")),
        ("decimal(5,2)", "1.100", Decimal("1.10")),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("decimal(5,2)", "1e2", Decimal("100.00")),
        ("string", '"x"', "x"),
        ("string", '"\\ud83d\\ude00"', "😀"),
        ("string", '""', ""),
        ("string", "5", "5"),
        ("string", "1.10", "1.10"),
        ("string", '{"b": [1, 2.50, null, true, "é"]}', '{"b":[1,2.50,null,true,"é"]}'),
        ("binary", '"AP8="', b"\x00\xff"),
        ("date", '"2026-03-02"', dt.date(2026, 3, 2)),
        ("timestamp", '"2026-03-02T08:00:00Z"', UTC8),
        ("timestamp", '"2026-03-02T10:00:00+02:00"', UTC8),
        ("timestamp", '"2026-03-02 08:00:00.123456Z"', UTC8.replace(microsecond=123456)),
        ("timestamp", '"2026-03-02T08:00:00.123456000Z"', UTC8.replace(microsecond=123456)),
        ("timestamp_ntz", '"2026-03-02T08:00:00"', UTC8.replace(tzinfo=None)),
        ("array<int>", "[1, null, 3]", [1, None, 3]),
        ("array<array<string>>", '[["x"], null, []]', [["x"], None, []]),
        ("struct<b: int, c: string>", '{"b": 1, "z": 9}', {"b": 1, "c": None}),
        ("struct<b: timestamp>", '{"b": "2026-03-02T08:00:00Z"}', {"b": UTC8}),
        ("map<string, decimal(3,1)>", '{"x": 1.5, "y": null}', [("x", Decimal("1.5")), ("y", None)]),
    ],
)
def test_values_that_are_kept_exactly(ddl: str, written: str, kept: object):
    assert one(ddl, f'{{"a": {written}}}') == kept


@pytest.mark.parametrize(
    ("ddl", "written", "reason"),
    [
        ("bigint", "9223372036854775808", "9223372036854775808 is no int64"),
        ("bigint", "1.5", "1.5 is no int64"),
        ("bigint", '"5"', "expected a number, found the text '5'"),
        ("bigint", "true", "expected a number, found true"),
        ("bigint", "1e999999999", "beyond every type"),
        ("bigint", "[5]", "expected a number, found an array"),
        ("tinyint", "128", "128 is no int8"),
        ("boolean", "1", "expected true or false, found the number 1"),
        ("boolean", '"true"', "expected true or false, found the text 'true'"),
        ("double", '"1"', "expected a number"),
        ("double", "1e400", "beyond double"),
        ("double", "NaN", "NaN is no JSON"),
        ("double", "-Infinity", "-Infinity is no JSON"),
        ("float", "1e39", "beyond float"),
        ("decimal(5,2)", "1.234", "1.234 does not fit decimal(5,2)"),
        ("decimal(5,2)", "1234.5", "1234.5 does not fit decimal(5,2)"),
        ("decimal(5,2)", '"1,5"', "expected a number or a text that is one, found the text '1,5'"),
        ("decimal(5,2)", "1e30", "1e30 does not fit decimal(5,2)"),
        ("decimal(5,2)", '"1_0"', "expected a number"),
        ("string", '"\\ud800"', "half of a surrogate pair"),
        ("binary", '"***"', "no base64"),
        ("date", '"2026-02-30"', "expected a date"),
        ("date", '"2026-03-02T08:00:00Z"', "expected a date"),
        ("timestamp", '"2026-03-02T08:00:00"', "with a zone"),
        ("timestamp", '"2026-03-02T08:00:00.1234567Z"', "an ISO timestamp"),
        ("timestamp", "1772438400", "found the number"),
        ("timestamp_ntz", '"2026-03-02T08:00:00Z"', "without a zone"),
        ("array<int>", '[1, "x"]', "a[1]: expected a number"),
        ("struct<b: struct<c: int>>", '{"b": {"c": "x"}}', "a: b: c: expected a number"),
        ("map<string,int>", '{"x": 1, "x": 2}', "a key stands twice"),
        ("bigint NOT NULL", "null", "the schema says NOT NULL"),
    ],
)
def test_values_that_have_no_place_say_why(ddl: str, written: str, reason: str):
    told = one(ddl, f'{{"a": {written}}}')
    assert isinstance(told, str)
    assert told.startswith("reject: ")
    assert reason in told


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"null", "expected an object, found null"),
        (b"[1]", "expected an object, found an array"),
        (b"5", "expected an object, found the number 5"),
        (b'"x"', "expected an object, found the text"),
        (b'{"a": 1', "no JSON"),
        (b'{"a": 1} x', "more after the value"),
        (b'{"a": 1}{"a": 2}', "more after the value"),
        (b'{"a": 1}\n{"a": 2}', "more after the value"),
        (b'{"a": 1} null {"a": 2}', "more after the value"),
        (b'{"a": 1},', "more after the value"),
        (b'{"a": 1,}', "no JSON"),
        (b"{'a': 1}", "no JSON"),
        (b'{"a": 01}', "no JSON"),
        (b'{"a": 1, "a": 2}', "a stands twice"),
        (b'{"b": "\xff"}', "not UTF-8 at byte 7"),
        (b'\xef\xbb\xbf{"a": 1}', "no JSON"),
        (b'{"b": "x\ny"}', "no JSON"),
        (b'{"b": "x\ty"}', "no JSON"),
        (b'{"b": ' + b"[" * 200_000, "no JSON|nested too deeply"),
        ('{"a": 1}\u2028'.encode(), "more after the value"),
        ('\u00a0{"a": 1}'.encode(), "no JSON"),
    ],
)
def test_messages_that_are_not_one_json_object_say_why(message: bytes, reason: str):
    told = one("bigint", message)
    assert isinstance(told, str)
    assert told.startswith("reject: ")
    assert any(part in told for part in reason.split("|"))


def test_exactly_the_bad_messages_of_a_crowd_are_set_aside():
    good = [b'{"a": %d}' % number for number in range(1000)]
    bad = {3: b"", 4: b'{"a": 1}{"a": 2}', 500: b"null", 777: b'{"a": "x"}', 999: b"\n", 0: b'{"a":', 1: b"2}"}
    messages = [bad.get(number, value) for number, value in enumerate(good)]
    parsed = JsonValues(schema_of("a bigint")).parse(messages)
    assert sorted(index for index, _ in parsed.rejected) == sorted(bad)
    kept = [value for batch in parsed.batches for value in batch.column(0).to_pylist()]
    assert kept == [number for number in range(1000) if number not in bad]


def test_a_blank_message_does_not_hide_behind_one_that_holds_two():
    """As many rows as messages, and still one of them is not its message's."""
    parsed = JsonValues(schema_of("a bigint")).parse([b'{"a": 1}{"a": 2}', b" ", b'{"a": 3}'])
    assert [index for index, _ in parsed.rejected] == [0, 1]
    assert parsed.batches[0].column(0).to_pylist() == [3]


def test_all_digits_survive_the_strict_way_too():
    strict = StrictJson(schema_of("a decimal(38,2), m map<string,int>"))
    digits = "9" * 36 + ".99"
    assert strict.batch([strict.row(b'{"a": %s}' % digits.encode())]).column(0)[0].as_py() == Decimal(digits)


def test_pretty_printed_messages_take_the_fast_way_too():
    fast = FastJson(schema_of("a bigint, b string"))
    pretty = [json.dumps({"a": n, "b": "x"}, indent=2).encode() + b"\r\n" for n in range(10)]
    batch = fast.parse(pretty)
    assert batch is not None
    assert batch.column(0).to_pylist() == list(range(10))


DDL = "i bigint, s string, d decimal(9,3), b boolean, f double, t timestamp, n timestamp_ntz, l array<int>, o struct<x: int, y: string>"
SCHEMA = schema_of(DDL)

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-1000, 1000),
    st.floats(),
    st.decimals(-1000, 1000, places=3).map(str),
    st.text(max_size=8),
    st.sampled_from(["2026-03-02T08:00:00Z", "2026-03-02T08:00:00", "2026-03-02", "1e3", "5", "NaN", "}\n{", "\ud800"]),
)
nested = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner), max_leaves=6
)
fitting = st.fixed_dictionaries(
    {},
    optional={
        "i": st.integers(-(2**63), 2**63 - 1),
        "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        "d": st.decimals(-999_999, 999_999, places=3).map(str),
        "b": st.booleans(),
        "f": st.floats(allow_nan=False, allow_infinity=False),
        "t": st.just("2026-03-02T08:00:00.5Z"),
        "l": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=3),
        "o": st.fixed_dictionaries({}, optional={"x": st.integers(-5, 5), "y": st.text("ab", max_size=3)}),
        "unknown": st.text(max_size=5) | st.lists(st.integers(), max_size=2),
    },
)
anything = st.dictionaries(st.sampled_from(["i", "s", "d", "b", "f", "t", "n", "l", "o", "u"]), nested, max_size=4)
documents = st.one_of(fitting, anything).map(lambda value: json.dumps(value).encode())
spoiled = st.tuples(documents, st.binary(max_size=4), st.integers(0, 60)).map(
    lambda t: t[0][: t[2]] + t[1] + t[0][t[2] :]
)
crowds = st.lists(documents | spoiled | st.binary(max_size=12), max_size=12)


def strictly(values: list[bytes]) -> list[tuple | None]:
    strict, rows = StrictJson(SCHEMA), []
    for value in values:
        try:
            rows.append(strict.batch([strict.row(value)]).to_pylist()[0])
        except Misfit:
            rows.append(None)
    return rows


@settings(deadline=None)
@given(crowds)
@example([b'{"f": 1e400}', b'{"f": NaN}'])
@example([b'{"i": 1}\n', b"", b'{"i": 2}{"i": 3}'])
@example([b"{}", b"null", b"{}"])
def test_a_crowd_gives_what_each_message_gives_alone(values: list[bytes]):
    parsed = JsonValues(SCHEMA).parse(values)
    expected = strictly(values)
    rows = [row for batch in parsed.batches for row in batch.to_pylist()]
    assert repr(rows) == repr([row for row in expected if row is not None])
    assert [index for index, _ in parsed.rejected] == [n for n, row in enumerate(expected) if row is None]


@settings(deadline=None)
@given(st.lists(fitting, min_size=1, max_size=8))
def test_documents_that_fit_are_what_pythons_json_reads(values: list[dict]):
    parsed = JsonValues(SCHEMA).parse([json.dumps(value).encode() for value in values])
    assert parsed.rejected == []
    rows = pa.Table.from_batches(parsed.batches).to_pylist()
    for value, row in zip(values, rows, strict=True):
        for name in ("i", "s", "b", "f", "l"):
            assert row[name] == value.get(name)
        assert row["d"] == (None if "d" not in value else Decimal(value["d"]))
        assert row["o"] == (None if "o" not in value else {"x": None, "y": None, **value["o"]})
        assert row["n"] is None


@settings(deadline=None)
@given(
    st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False)
)
@example(5e-324)
@example(Decimal("1E+30"))
def test_numbers_fit_or_do_not_by_pythons_own_arithmetic(number: float | Decimal):
    text = str(number)
    exact = Decimal(text)
    whole = exact == exact.to_integral_value() and -(2**63) <= exact < 2**63 if abs(exact.adjusted()) < 400 else False
    kept = one("bigint", f'{{"a": {text}}}')
    assert (kept == int(exact)) if whole else str(kept).startswith("reject: ")
    kept = one("decimal(12,3)", f'{{"a": {text}}}')
    scaled = exact.scaleb(3, Context(prec=1000)) if abs(exact.adjusted()) < 400 else Decimal("0.5")
    fits = scaled == scaled.to_integral_value() and abs(scaled) < 10**12
    assert (kept == exact) if fits else str(kept).startswith("reject: ")
