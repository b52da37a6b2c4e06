"""Positions told to a consumer group, so that ordinary tools show the lag. Nothing is ever read back from it."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headwater.config.kafka_client import ClientOptions
from headwater.model.marks import OffsetsMark
from headwater.sources.kafka.broker import unreachable


def commit(options: ClientOptions, group: str, mark: OffsetsMark, timeout_seconds: float) -> None:
    """Return when the group holds the mark."""
    offsets = [
        TopicPartition(topic, partition, offset)
        for topic, partitions in mark.topics.items()
        for partition, offset in partitions.items()
    ]
    if not offsets:
        return
    given = options.reveal() | {
        "group.id": group,
        "enable.auto.commit": False,
        "socket.timeout.ms": round(timeout_seconds * 1000),
    }
    consumer = Consumer(given)
    try:
        answers = consumer.commit(offsets=offsets, asynchronous=False)
        errors = [answer.error for answer in answers or () if answer.error is not None]
    except KafkaException as error:
        errors = [error.args[0]]
    finally:
        consumer.close()
    if errors:
        raise unreachable(f"kafka at {options.brokers}", f"commit to group {group}", errors[0].str())
