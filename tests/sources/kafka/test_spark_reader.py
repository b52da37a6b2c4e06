"""Spark's own Kafka source reads the same window."""

from __future__ import annotations

import pytest

from tests.sources.kafka.polling import Poller, send
from tests.stack import KafkaForTests

pytestmark = pytest.mark.spark


def test_both_readers_give_the_same_rows_of_exactly_the_window(kafka: KafkaForTests, spark):
    topic = kafka.topic(partitions=2)
    values = [f'{{"id": {n}, "amount": {n}.25, "at": "2026-03-02T08:00:{n:02}.5Z", "tags": ["a"]}}' for n in range(20)]
    send(kafka.brokers, topic, values, key=b"k", headers=[("h", b"v")], timestamp=1_772_438_400_123)
    send(kafka.brokers, topic, values, partition=1)
    settings = {
        "schema": "id bigint, amount decimal(9,2), at timestamp, tags array<string>",
        "metadata": ["topic", "partition", "offset", "timestamp", "key", "headers"],
    }
    arrow = Poller(kafka.brokers, topic, **settings, start={topic: {0: 5}})
    window = arrow.look()
    send(kafka.brokers, topic, values)
    expected = sorted(arrow.read(window)[topic].to_pylist(), key=place)
    other = Poller(kafka.brokers, topic, **settings, reader="spark", splits=3)
    with other.source.read(window) as (rows,):
        found = sorted(rows.dataframe(spark).toArrow().to_pylist(), key=place)
    assert len(found) == 35
    assert found == expected


def test_a_message_that_does_not_parse_stops_spark(kafka: KafkaForTests, spark):
    topic = kafka.topic()
    send(kafka.brokers, topic, [b'{"id": 1}', b"oops"])
    poller = Poller(kafka.brokers, topic, schema="id bigint", reader="spark")
    with poller.source.read(poller.look()) as (rows,), pytest.raises(Exception, match=r"MALFORMED_RECORD|Malformed"):
        rows.dataframe(spark).collect()


def place(row: dict) -> tuple[int, int]:
    return row["kafka_partition"], row["kafka_offset"]
