"""How far a mark is behind: in messages by the logs' ends, in time by the age of the oldest unread message.

The age is that of a real message, read by one short fetch from every partition that is behind: the difference between
the newest timestamps would say nothing about how long somebody has been waiting.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, TopicPartition

from headwater.config.kafka_client import ClientOptions
from headwater.model.source import Lag
from headwater.sources.kafka.broker import Partition, Topic

_PATIENCE_SECONDS = 3.0
_AT_ONCE = 500


def measured(
    options: ClientOptions, isolation: str, topics: Mapping[str, Topic], begin: Mapping[Partition, int]
) -> Sequence[Lag]:
    """One entry per partition, by topic and number."""
    ends = {(name, number): log.end for name, topic in topics.items() for number, log in topic.partitions.items()}
    firsts = {(name, number): log.first for name, topic in topics.items() for number, log in topic.partitions.items()}
    behind = {place: max(at, firsts[place]) for place, at in begin.items() if at < ends[place]}
    ages = _ages(options, isolation, behind) if behind else {}
    return [Lag(place[0], str(place[1]), begin[place], ends[place], ages.get(place)) for place in sorted(begin)]


def _ages(options: ClientOptions, isolation: str, behind: Mapping[Partition, int]) -> dict[Partition, float]:
    """Seconds since the first unread message of each partition; what does not come in time is left out."""
    given = options.reveal() | {
        "group.id": "headwater-measures-lag",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "auto.offset.reset": "error",
        "fetch.message.max.bytes": 1024,  # a broker sends at least one message, and we want no more
        "queued.min.messages": 1,
    }
    consumer = Consumer(given)
    ages: dict[Partition, float] = {}
    try:
        consumer.assign([TopicPartition(topic, number, at) for (topic, number), at in behind.items()])
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while len(ages) < len(behind) and time.monotonic() < deadline:
            for message in consumer.consume(_AT_ONCE, 0.2):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - as confluent-kafka spells it
                        return ages
                    continue
                place, (kind, moment) = (message.topic(), message.partition()), message.timestamp()
                if place not in ages:
                    ages[place] = max(time.time() - moment / 1000, 0.0) if kind else 0.0
                    consumer.incremental_unassign([TopicPartition(*place)])
    finally:
        consumer.close()
    return ages
