"""JSON values are exact for every kind of column, and the same as Python's own JSON would be."""

import datetime as dt
import decimal
import json
import math
import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.errors import SchemaRefused, ValueNotKept
from headwater.model.types import SIMPLE_TYPES, arrow_type
from headwater.sinks.kafka.messages import json_objects, keys_of
from headwater.sinks.text_values import check_types

UTC = dt.UTC
# Every kind of model/types.py: a value, and what stands in the JSON for it.
KINDS = {
    "bool": [(True, "true"), (False, "false")],
    "int32": [(-(2**31), "-2147483648"), (7, "7")],
    "int64": [(2**63 - 1, "9223372036854775807"), (-(2**63), "-9223372036854775808")],
    "float32": [(0.1, "0.1"), (16777216.0, "16777216.0"), (1e-45, "1e-45")],
    "float64": [(0.1, "0.1"), (1.0, "1.0"), (-0.0, "-0.0"), (5e-324, "5e-324"), (1.7976931348623157e308, "1.7976931348623157e+308")],
    "decimal(38,18)": [(decimal.Decimal("-12345678901234567890.123456789012345678"), '"-12345678901234567890.123456789012345678"')],
    "decimal(12,2)": [(decimal.Decimal("0.10"), '"0.10"'), (decimal.Decimal("-3.00"), '"-3.00"')],
    "decimal(20,15)": [(decimal.Decimal("0.000000000000001"), '"0.000000000000001"')],
    "date": [(dt.date(1, 1, 1), '"0001-01-01"'), (dt.date(9999, 12, 31), '"9999-12-31"')],
    "timestamp": [
        (dt.datetime(1, 1, 1), '"0001-01-01T00:00:00.000000"'),  # noqa: DTZ001 - without a zone on purpose
        (dt.datetime(2026, 3, 2, 8, 0, 0, 1), '"2026-03-02T08:00:00.000001"'),  # noqa: DTZ001
    ],
    "timestamptz": [
        (dt.datetime(2026, 3, 2, 8, 0, 0, 120000, UTC), '"2026-03-02T08:00:00.120000Z"'),
        (dt.datetime(2026, 3, 2, 8, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))), '"2026-03-02T02:30:00.000000Z"'),
    ],
    "string": [("", '""'), ('say "hi"', '"say \\"hi\\""'), ("C:\\x\n", '"C:\\\\x\\n"'), ("\x00\x1f", '"\\u0000\\u001f"'), ("Łódź 😀", '"Łódź 😀"')],
    "binary": [(b"", '""'), (b"\x00\xff\x10", '"AP8Q"')],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_column_has_one_exact_form(kind):
    values, texts = zip(*KINDS[kind], strict=True)
    for inputs, expected in (
        (list(values), [f'{{"c":{text}}}' for text in texts]),
        ([None, *values, None], ['{"c":null}', *(f'{{"c":{text}}}' for text in texts), '{"c":null}']),
    ):
        batch = pa.record_batch({"c": pa.array(inputs, arrow_type(kind))})
        assert [message.decode() for message in json_objects(batch).to_pylist()] == expected


def test_every_kind_of_the_sql_sources_is_tried_above():
    assert set(SIMPLE_TYPES) | {"decimal(12,2)"} <= set(KINDS)


def test_an_instant_is_shown_in_utc_whatever_zone_arrow_would_show_it_in():
    at = pa.array([dt.datetime(2026, 7, 1, 12, tzinfo=UTC)]).cast(pa.timestamp("us", tz="Europe/Berlin"))
    assert json_objects(pa.record_batch({"at": at})).to_pylist() == [b'{"at":"2026-07-01T12:00:00.000000Z"}']


JSON_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    st.lists(
        st.tuples(
            st.none() | JSON_TEXT,
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.booleans(),
        ),
        min_size=1,
        max_size=30,
    ),
    JSON_TEXT,
)
def test_what_is_written_reads_back_as_it_was(rows, name):
    columns = list(zip(*rows, strict=True))
    types = [pa.string(), pa.float64(), pa.int64(), pa.bool_()]
    names = [f"{name}{number}" for number in range(4)]
    batch = pa.record_batch([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)
    read = [tuple(json.loads(text)[name] for name in names) for text in json_objects(batch).to_pylist()]
    assert read == rows
    signs = [math.copysign(1, row[1]) for row in rows if row[1] is not None]
    assert [math.copysign(1, row[1]) for row in read if row[1] is not None] == signs
    assert all(isinstance(row[1], float | None) for row in read)


def test_a_slice_of_a_batch_gives_its_own_rows():
    batch = pa.record_batch({"a": ['"', None, "b", "c\n"], "n": [1, 2, 3, 4]}).slice(1, 2)
    assert json_objects(batch).to_pylist() == [b'{"a":null,"n":2}', b'{"a":"b","n":3}']


def test_nested_columns_are_json_within():
    batch = pa.record_batch(
        {
            "tags": pa.array([["a", None], None], pa.list_(pa.string())),
            "at": pa.array([{"x": decimal.Decimal("1.5"), "on": dt.date(2026, 1, 2)}, None]),
            "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        }
    )
    assert [json.loads(text) for text in json_objects(batch).to_pylist()] == [
        {"tags": ["a", None], "at": {"x": "1.5", "on": "2026-01-02"}, "map": {"k": 1}},
        {"tags": None, "at": None, "map": {}},
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_refused(value):
    with pytest.raises(ValueNotKept, match="column ratio contains"):
        json_objects(pa.record_batch({"ratio": [1.0, value]}))


def test_a_column_that_has_no_exact_form_is_refused_by_name():
    with pytest.raises(SchemaRefused, match="column took"):
        check_types(pa.schema([("took", pa.duration("us"))]), "a Kafka message")


def test_the_key_of_one_column_is_its_text_and_of_several_an_object():
    some = uuid.UUID(int=7)
    batch = pa.record_batch(
        {
            "id": [17, None],
            "name": ['a "b"', "c"],
            "raw": [b"\xff", b""],
            "uuid": pa.array([some.bytes, None], pa.uuid()),
            "on": [dt.date(2026, 1, 2), None],
        }
    )
    assert keys_of(batch, ("id",)) == [b"17", None]
    assert keys_of(batch, ("name",)) == [b'a "b"', b"c"]
    assert keys_of(batch, ("raw",)) == [b"\xff", b""]
    assert keys_of(batch, ("uuid",)) == [str(some).encode(), None]
    assert keys_of(batch, ("on",)) == [b"2026-01-02", None]
    assert keys_of(batch, ("id", "name")) == [b'{"id":17,"name":"a \\"b\\""}', b'{"id":null,"name":"c"}']
    assert keys_of(batch, ()) == [None, None]
