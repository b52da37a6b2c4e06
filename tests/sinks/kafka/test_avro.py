"""Avro values read back, by another library, as exactly what was written."""

import datetime as dt
import decimal
import io
import json
import uuid

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.errors import SchemaRefused, SettingsError, ValueNotKept
from headwater.sinks.kafka.avro import AvroValues, avro_schema, topic_schema
from headwater.testing.memory_rows import attempt_at, memory_rows, table_of, window_up_to
from tests.sinks.kafka.topic_reader import kafka_sink, read_topic

UTC = dt.UTC
# A column of each kind that sources give, and values at its ends.
KINDS = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "float64": (pa.float64(), st.floats(allow_nan=False)),
    "decimal": (pa.decimal128(38, 10), st.decimals(-(10**27), 10**27, places=10)),
    "decimal_small": (pa.decimal128(5, 2), st.decimals(-999, 999, places=2)),
    "date": (pa.date32(), st.dates()),
    "at": (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(UTC))),
    "at_local": (pa.timestamp("us"), st.datetimes()),
    "at_millis": (pa.timestamp("ms", tz="UTC"), st.integers(0, 10**9).map(lambda n: dt.datetime.fromtimestamp(n, UTC))),
    "time": (pa.time64("us"), st.times()),
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "bytes": (pa.binary(), st.binary()),
    "uuid": (pa.uuid(), st.uuids()),
    "list": (pa.list_(pa.int64()), st.lists(st.none() | st.integers(-100, 100))),
    "map": (pa.map_(pa.string(), pa.string()), st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.string())]), st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.none() | st.just("x")})),
}  # fmt: skip


def read(value: bytes, schema) -> dict:
    stream = io.BytesIO(value)
    record = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema))
    assert not stream.read(), "bytes are left over"
    return record


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(st.data())
def test_each_kind_of_column_reads_back_exactly(kind, data):
    arrow, values = KINDS[kind]
    some = data.draw(st.lists(st.none() | values, min_size=1, max_size=20))
    for nullable, chosen in ((True, some), (False, [value for value in some if value is not None])):
        plain_values = [value.bytes if isinstance(value, uuid.UUID) else value for value in chosen]
        batch = pa.record_batch([pa.array(plain_values, arrow)], schema=pa.schema([pa.field("c", arrow, nullable)]))
        schema = avro_schema(batch.schema, "t")
        assert [read(message, schema)["c"] for message in AvroValues(schema)(batch)] == chosen


def test_a_slice_of_a_batch_gives_its_own_rows():
    columns = {
        "d": pa.array([decimal.Decimal(n) for n in (1, 2, 300)], pa.decimal128(9, 2)),
        "b": [True, None, False],
        "s": ["a", None, "ccc"],
    }
    batch = pa.record_batch(columns).slice(1, 2)
    schema = avro_schema(batch.schema, "t")
    assert [read(value, schema) for value in AvroValues(schema)(batch)] == batch.to_pylist()


def test_the_first_window_writes_the_schema_and_readers_use_it(kafka, tmp_path):
    topic = kafka.topic()
    sink = kafka_sink(kafka, topic, tmp_path, format="avro", avro_schema="schemas/orders.avsc")
    table = table_of([1, 2])
    for end in (10, 20):
        sink.land(attempt_at(window_up_to(end)), memory_rows("orders", (table,), key=("id",)))
    schema = json.loads((tmp_path / "schemas/orders.avsc").read_text())
    messages = read_topic(kafka, topic)
    assert [message.key for message in messages] == [b"1", b"2"] * 2
    assert [read(message.value, schema) for message in messages] == table.to_pylist() * 2


def agreed(tmp_path, columns: pa.Schema, fields: list) -> dict:
    file = tmp_path / "t.avsc"
    file.write_text(json.dumps({"type": "record", "name": "t", "fields": fields}))
    return topic_schema(columns, "t", file)


def test_a_schema_that_stands_may_be_wider_and_in_another_order(tmp_path):
    fields = [
        {"name": "added", "type": "string", "default": "none", "doc": "not from the source"},
        {"name": "b", "type": [{"type": "string"}, "null"]},
        {"name": "a", "type": ["null", "long"], "default": None},
    ]
    batch = pa.record_batch(
        {"a": pa.array([1], pa.int64()), "b": ["x"]}, schema=pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())])
    )  # fmt: skip
    schema = agreed(tmp_path, batch.schema, fields)
    assert [read(value, schema) for value in AvroValues(schema)(batch)] == [{"added": "none", "b": "x", "a": 1}]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "column a has no field in"),
        ([{"name": "a", "type": "int"}], 'column a is "long", and .* says "int"'),
        ([{"name": "a", "type": "long"}, {"name": "b", "type": "long"}], "a field b without a default"),
        ([{"name": "a", "type": ["null", "long", "string"]}], "column a is"),
    ],
)
def test_columns_that_do_not_fit_the_schema_that_stands_are_refused(tmp_path, fields, message):
    columns = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(SchemaRefused, match=message):
        agreed(tmp_path, columns, fields)


def test_a_null_where_the_schema_has_no_room_is_refused(tmp_path):
    """The source said that there is none; the rows say otherwise."""
    columns = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    schema = agreed(tmp_path, columns, [{"name": "a", "type": "long"}])
    with pytest.raises(ValueNotKept, match="column a contains NULL"):
        AvroValues(schema)(pa.record_batch({"a": pa.array([1, None], pa.int64())}))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (pa.field("a b", pa.int64()), "'a b' has a name that Avro does not allow"),
        (pa.field("n", pa.uint64()), "column n has type uint64"),
        (pa.field("at", pa.timestamp("ns")), "column at has type timestamp"),
    ],
)
def test_a_column_that_avro_has_no_place_for_is_refused_by_name(field, message):
    with pytest.raises(SchemaRefused, match=message):
        avro_schema(pa.schema([field]), "t")


def test_a_schema_file_that_is_none_is_the_users_mistake(tmp_path):
    file = tmp_path / "t.avsc"
    for text, message in (("{", "is not JSON"), ('"string"', "does not contain an Avro record")):
        file.write_text(text)
        with pytest.raises(SettingsError, match=message):
            topic_schema(table_of([]).schema, "t", file)
