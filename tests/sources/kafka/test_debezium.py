"""Events in topics: one stream each, with columns and key in the mark."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from headwater.model.errors import InputError, SchemaRefused
from headwater.model.position.marks import OffsetsMark
from headwater.model.position.stream_state import StreamState
from headwater.model.position.window import Window
from headwater.model.rows import CHANGE_COLUMNS, Rows, change_fields
from tests.sources.debezium.reading import as_bytes, event, field, recorded, with_schema
from tests.sources.kafka.poller import Poller
from tests.support.stack import KafkaForTests

pytestmark = pytest.mark.servers

ID = field("id", "int32")


def produce(brokers: str, topic: str, events: list[dict]) -> None:
    producer = Producer({"bootstrap.servers": brokers, "log_level": 0, "linger.ms": 5})
    for each in events:
        headers = [(name, value.encode()) for name, value in each.get("headers", [])]
        producer.produce(topic, as_bytes(each["value"]), as_bytes(each.get("key")), partition=0, headers=headers)
    assert producer.flush(30) == 0


def change(kind: dict, value: object, number: int = 1) -> dict:
    key = {"schema": {"type": "struct", "fields": [ID]}, "payload": {"id": number}}
    return {"value": with_schema([ID, kind], event("c", {"id": number, "v": value})), "key": key}


def streams(poller: Poller, window: Window) -> list[Rows]:
    with poller.source.read(window) as streams:
        return list(streams)


def test_recorded_events_of_a_topic_are_change_rows(kafka: KafkaForTests):
    topic = kafka.topic(name="src.public.orders")
    events = recorded()
    produce(kafka.brokers, topic, events)
    poller = Poller(kafka.brokers, f"{topic[:-3]}*", format="debezium")
    window = poller.look()
    (rows,) = streams(poller, window)
    assert rows.changes is not None
    assert (rows.changes.event_key, rows.changes.arrival) == (("kafka_partition", "kafka_offset"), "kafka_timestamp")
    assert (rows.stream, rows.key, rows.order) == (topic, ("id",), ("_position",))
    assert rows.schema.names == [
        *rows.changes.table_columns,
        *CHANGE_COLUMNS,
        *(f"kafka_{n}" for n in ("partition", "offset", "timestamp")),
    ]
    assert [rows.schema.field(one.name) for one in change_fields()] == change_fields()
    polled = poller.poll()
    assert poller.rejects == []
    assert [row["kafka_offset"] for row in polled] == [n for n, each in enumerate(events) if each["value"] is not None]
    assert [row["_old_key"] for row in polled if row["_old_key"]] == ["[3]"]
    assert [row["_missing"] for row in polled if row["_missing"]] == [["big"]]
    assert poller.poll() == []


def test_a_source_of_messages_has_no_change_rows(kafka: KafkaForTests):
    topic = kafka.topic()
    produce(kafka.brokers, topic, [{"value": {"a": 1}}])
    poller = Poller(kafka.brokers, topic, format="json", schema="a bigint")
    (rows,) = streams(poller, poller.look())
    assert rows.changes is None


def test_columns_and_key_survive_restarts_and_a_retry_reads_with_those_of_the_first_try(kafka: KafkaForTests):
    topic = kafka.topic()
    produce(kafka.brokers, topic, [change(field("v", "int32"), 5)])
    poller = Poller(kafka.brokers, topic, format="debezium", metadata=[])
    window = poller.look()
    first = poller.poll()
    assert isinstance(poller.mark, OffsetsMark)
    state = StreamState(columns={"id": (0, "int"), "v": (1, "int")}, key_positions={"id": 0})
    assert poller.mark.streams == {topic: state}
    produce(kafka.brokers, topic, [change(field("v", "int64"), 2**40, 2)])
    other = poller.again()
    later = other.look()
    assert poller.again().read(window)[topic].to_pylist() == first  # G5
    (row,) = other.poll()
    assert row["v"] == 2**40
    assert other.mark.streams[topic].columns["v"] == (1, "bigint")  # type: ignore[union-attr]
    assert poller.mark.join(later.end).streams[topic].columns["v"] == (1, "bigint")  # type: ignore[arg-type]
    rewound = other.source.position("earliest", other.mark)
    assert rewound.streams == other.mark.streams  # type: ignore[union-attr]


def test_a_change_of_type_stops_the_pipeline_before_anything_is_read(kafka: KafkaForTests):
    topic = kafka.topic()
    produce(kafka.brokers, topic, [change(field("v", "int32"), 5)])
    poller = Poller(kafka.brokers, topic, format="debezium", metadata=[])
    poller.poll()
    produce(kafka.brokers, topic, [change(field("v", "string"), "x", 2)])
    with pytest.raises(SchemaRefused, match="column v was int, and is now string"):
        poller.look()
    (row,) = poller.again(debezium={"type_changes": "new_column"}).poll()
    assert (row["v"], row["v__string"]) == (None, "x")


def test_rejects_are_whole_messages_and_can_be_tried_again(kafka: KafkaForTests):
    topic = kafka.topic()
    late = {
        "value": event("c", {"id": 2, "day": 10**7}),
        "key": {"id": 2},
        "headers": [["__debezium.oldkey", '{"id":1}']],
    }
    produce(
        kafka.brokers, topic, [{"value": event("c", {"id": 1, "day": 5}), "key": {"id": 1}}, late, {"value": {"id": 3}}]
    )
    poller = Poller(kafka.brokers, topic, format="debezium", schema="id int, day date", metadata=["offset"])
    assert [row["id"] for row in poller.poll()] == [1]
    assert [(one.location["offset"], one.reason.partition(":")[0]) for one in poller.rejects] == [
        (1, "day"),
        (2, "no change event"),
    ]
    other = poller.again(schema="id int, day int")
    with other.source.replay(poller.rejects, poller.mark) as streams:
        (rows,) = streams
        assert rows.changes is not None
        (row,) = other.table(rows).to_pylist()
    assert (row["id"], row["day"], row["_old_key"], row["kafka_offset"]) == (2, 10**7, "[1]", 1)
    assert [one.location["offset"] for one in other.rejects] == [2]


def test_topics_without_a_change_bring_no_stream(kafka: KafkaForTests):
    orders, beats = kafka.topic(name="x.orders"), kafka.topic(name="x.transaction")
    produce(kafka.brokers, orders, [{"value": event("c", {"id": 1}), "key": {"id": 1}}])
    produce(kafka.brokers, beats, [{"value": {"status": "BEGIN", "id": "1", "event_count": None}}, {"value": None}])
    poller = Poller(kafka.brokers, [orders, beats], format="debezium")
    assert list(poller.poll_streams()) == [orders]
    assert poller.offsets()[beats] == {0: 2}
    produce(kafka.brokers, beats, [{"value": {"id": 1, "flat": True}}])
    plan = poller.source.plan(poller.mark)
    assert plan.window is None
    assert f"{beats}: no Debezium event in the window: no change event" in plan.refused[beats].message
    with pytest.raises(InputError, match="no Debezium event in the window"):
        Poller(kafka.brokers, [beats], format="debezium").look()


def test_a_window_has_a_limit_of_its_own(kafka: KafkaForTests):
    topic = kafka.topic()
    assert Poller(kafka.brokers, topic, format="debezium").source.max_rows == 1_000_000
    assert Poller(kafka.brokers, topic, format="debezium", max_rows=7).source.max_rows == 7


def test_many_messages_of_two_shapes_keep_their_order(kafka: KafkaForTests):
    topic = kafka.topic()
    wide, narrow = field("v", "int64"), field("v", "int32")
    events = [change(wide if n % 3 else narrow, n, n) for n in range(2_000)]
    produce(kafka.brokers, topic, events)
    (table,) = Poller(kafka.brokers, topic, format="debezium", splits=3).poll_streams().values()
    assert table.column("v").to_pylist() == table.column("kafka_offset").to_pylist() == list(range(2_000))
    assert table.schema.field("v").type == pa.int64()


def test_a_message_of_the_topic_is_kept_as_it_was(kafka: KafkaForTests):
    topic = kafka.topic()
    produce(kafka.brokers, topic, [{"value": event("c", {"id": 1}), "key": {"id": 1}}])
    metadata = ["topic", "key", "headers", "offset"]
    (row,) = Poller(kafka.brokers, topic, format="debezium", metadata=metadata).poll()
    assert (row["kafka_topic"], json.loads(row["kafka_key"]), row["kafka_headers"]) == (topic, {"id": 1}, [])
