"""What a topic holds, read to its end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from headwater.config.sinks.kafka import KafkaSinkSettings
from headwater.sinks.kafka import KafkaSink
from tests.support.stack import KafkaForTests


@dataclass(frozen=True)
class ReadMessage:
    """One message."""

    key: bytes | None
    value: bytes
    headers: dict[str, str]
    partition: int

    @property
    def row(self) -> dict[str, object]:
        return json.loads(self.value)

    @property
    def position(self) -> str:
        return self.headers["headwater.position"]


def read_topic(kafka: KafkaForTests, topic: str) -> list[ReadMessage]:
    """Partition by partition, each in order."""
    options = {"group.id": "reader", "enable.auto.commit": False, "fetch.wait.max.ms": 10}
    consumer = Consumer({"bootstrap.servers": kafka.brokers, **options})
    messages = []
    for partition in sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions):
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        consumer.assign([TopicPartition(topic, partition, first)])
        while first < end:
            message = consumer.poll(10)
            assert message is not None, f"{topic}/{partition} stops at {first} of {end}"
            assert message.error() is None
            first = message.offset() + 1
            headers = {name: value.decode() for name, value in message.headers() or []}
            messages.append(ReadMessage(message.key(), message.value(), headers, partition))
    consumer.close()
    return messages


def kafka_sink(kafka: KafkaForTests, topic: str, folder: Path = Path(), **settings) -> KafkaSink:
    return KafkaSink(
        KafkaSinkSettings(**{"brokers": kafka.brokers, "topic": topic, "timeout": "20s", **settings}), "2:kafka", folder
    )
