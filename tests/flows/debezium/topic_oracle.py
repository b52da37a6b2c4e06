"""What must come of a topic of Debezium's events, in plain Python: read once from the beginning, put in order, applied."""

from __future__ import annotations

import base64
import datetime as dt
import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

_UNAVAILABLE = "__debezium_unavailable_value"


@dataclass
class TopicOracle:
    """The events of one topic, and the tables that they come to."""

    events: set[tuple[int, int]] = field(default_factory=set)  # partition and offset of every event that is a change
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    versions: list[tuple[Any, ...]] = field(default_factory=list)  # key, begins, ends (None: still)

    @classmethod
    def of(cls, brokers: str, topic: str) -> TopicOracle:
        oracle, changes = cls(), []
        for message in _messages(brokers, topic):
            if message.value() is None:
                continue
            payload = json.loads(message.value())["payload"]
            oracle.events.add((message.partition(), message.offset()))
            changes.append((_position(payload), message.partition(), message.offset(), message, payload))
        changes.sort(key=lambda change: change[:3])
        oracle.apply(changes)
        return oracle

    def apply(self, changes: list[tuple[Any, ...]]) -> None:
        deleted: dict[tuple[int, ...], dict[str, Any]] = {}
        begun: dict[int, tuple[int, ...]] = {}
        seen = set()
        for position, _, _, message, payload in changes:
            if payload["op"] == "t":
                self.versions += [(key, start, position) for key, start in begun.items()]
                self.rows.clear()
                begun.clear()
                continue
            key = json.loads(message.key())["payload"]["custkey"]
            if (position, key) in seen:
                continue  # sent again after a restart
            seen.add((position, key))
            if payload["op"] == "d":
                if key in begun:
                    self.versions.append((key, begun.pop(key), position))
                deleted[position] = self.rows.pop(key, {})
                continue
            moved = any(name == "__debezium.oldkey" for name, _ in message.headers() or [])
            before = deleted[position] if moved else self.rows.get(key, {})
            after = payload["after"]
            kinds = {f["field"]: f for f in _after_fields(json.loads(message.value())["schema"])}
            row = {
                name: before[name] if value == _UNAVAILABLE else _plain(value, kinds[name])
                for name, value in after.items()
            }
            if payload["op"] == "r" and key in begun and self.rows[key] == row:
                continue  # a snapshot read the row as it was
            if key in begun:
                self.versions.append((key, begun.pop(key), position))
            self.rows[key], begun[key] = row, position
        self.versions += [(key, start, None) for key, start in begun.items()]


def _messages(brokers: str, topic: str) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "oracle",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    messages, left = [], set(partitions)
    while left:
        for message in consumer.consume(1000, timeout=0.1):
            if message.error() and message.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's name for it
                left.discard(message.partition())
            elif not message.error():
                messages.append(message)
    consumer.close()
    return messages


def _position(payload: dict[str, Any]) -> tuple[int, ...]:
    commit, lsn = json.loads(payload["source"]["sequence"])
    own = payload["source"]["lsn"]
    return int(commit or lsn), 2 * (own or 0) + (payload["op"] != "r")


def _after_fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return next(part["fields"] for part in schema["fields"] if part["field"] == "after")


def _plain(value: Any, kind: dict[str, Any]) -> Any:
    if value is None:
        return None
    if kind.get("name") == "io.debezium.time.Date":
        return dt.date(1970, 1, 1) + dt.timedelta(days=value)
    if kind.get("name") == "org.apache.kafka.connect.data.Decimal":
        unscaled = int.from_bytes(base64.b64decode(value), "big", signed=True)
        return Decimal(unscaled).scaleb(-int(kind["parameters"]["scale"]))
    return value
