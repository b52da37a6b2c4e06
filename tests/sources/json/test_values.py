"""JSON values into typed columns: exactly, or a reject (G8), and the same whether messages come alone or in crowds."""

from __future__ import annotations

import json
from decimal import Context, Decimal

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.sources.ddl_schema import schema_of
from headwater.sources.json.decoder import ArrowJson, JsonDecoder
from headwater.sources.json.strict import StrictJson
from headwater.sources.values import Misfit


def one(ddl: str, value: bytes | str) -> object:
    """The value of the column `a`, or the reason of the reject."""
    data = value.encode() if isinstance(value, str) else value
    parsed = JsonDecoder(schema_of(f"a {ddl}")).parse([data])
    if parsed.rejected:
        return f"reject: {parsed.rejected[0][1]}"
    return parsed.batches[0].column(0)[0].as_py()


def test_exactly_the_bad_messages_of_a_crowd_are_set_aside():
    good = [b'{"a": %d}' % number for number in range(1000)]
    bad = {3: b"", 4: b'{"a": 1}{"a": 2}', 500: b"null", 777: b'{"a": "x"}', 999: b"\n", 0: b'{"a":', 1: b"2}"}
    messages = [bad.get(number, value) for number, value in enumerate(good)]
    parsed = JsonDecoder(schema_of("a bigint")).parse(messages)
    assert sorted(index for index, _ in parsed.rejected) == sorted(bad)
    values = [value for batch in parsed.batches for value in batch.column(0).to_pylist()]
    assert values == [number for number in range(1000) if number not in bad]


def test_a_blank_message_does_not_hide_behind_one_that_holds_two():
    """As many rows as messages, and still one of them is not its message's."""
    parsed = JsonDecoder(schema_of("a bigint")).parse([b'{"a": 1}{"a": 2}', b" ", b'{"a": 3}'])
    assert [index for index, _ in parsed.rejected] == [0, 1]
    assert parsed.batches[0].column(0).to_pylist() == [3]


def test_pretty_printed_messages_take_the_fast_way_too():
    fast = ArrowJson(schema_of("a bigint, b string"))
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


@given(crowds)
@example([b'{"f": 1e400}', b'{"f": NaN}'])
@example([b'{"i": 1}\n', b"", b'{"i": 2}{"i": 3}'])
@example([b"{}", b"null", b"{}"])
def test_a_crowd_gives_what_each_message_gives_alone(values: list[bytes]):
    parsed = JsonDecoder(SCHEMA).parse(values)
    expected = strictly(values)
    rows = [row for batch in parsed.batches for row in batch.to_pylist()]
    assert repr(rows) == repr([row for row in expected if row is not None])
    assert [index for index, _ in parsed.rejected] == [n for n, row in enumerate(expected) if row is None]


@given(st.lists(fitting, min_size=1, max_size=8))
def test_documents_that_fit_are_what_pythons_json_reads(values: list[dict]):
    parsed = JsonDecoder(SCHEMA).parse([json.dumps(value).encode() for value in values])
    assert parsed.rejected == []
    rows = pa.Table.from_batches(parsed.batches).to_pylist()
    for value, row in zip(values, rows, strict=True):
        for name in ("i", "s", "b", "f", "l"):
            assert row[name] == value.get(name)
        assert row["d"] == (None if "d" not in value else Decimal(value["d"]))
        assert row["o"] == (None if "o" not in value else {"x": None, "y": None, **value["o"]})
        assert row["n"] is None


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
    is_integer = (
        exact == exact.to_integral_value() and -(2**63) <= exact < 2**63 if abs(exact.adjusted()) < 400 else False
    )
    value = one("bigint", f'{{"a": {text}}}')
    assert (value == int(exact)) if is_integer else str(value).startswith("reject: ")
    value = one("decimal(12,3)", f'{{"a": {text}}}')
    scaled = exact.scaleb(3, Context(prec=1000)) if abs(exact.adjusted()) < 400 else Decimal("0.5")
    fits = scaled == scaled.to_integral_value() and abs(scaled) < 10**12
    assert (value == exact) if fits else str(value).startswith("reject: ")
