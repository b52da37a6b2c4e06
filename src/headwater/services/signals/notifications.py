"""Debezium's notifications about snapshots, from the topic of `notification.sink.topic.name`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headwater.config.sources.kafka import ClientOptions
from headwater.model.errors import InputError, SourceUnreachable
from headwater.sources.kafka.client import Broker

_TIMEOUT_SECONDS = 15.0
_POLL_SECONDS = 0.5
_MAX_MESSAGES = 20_000  # per partition, the newest: there is one notification per chunk
INCREMENTAL = "Incremental Snapshot"
_ABORTED, _SCANNED = "ABORTED", "TABLE_SCAN_COMPLETED"
_FINAL = {"COMPLETED", _ABORTED, "SKIPPED"}


@dataclass(frozen=True)
class Notification:
    """One message of the topic."""

    id: str  # of the signal, for incremental snapshots
    about: str
    type: str
    data: Mapping[str, str]
    milliseconds: int


@dataclass(frozen=True)
class SnapshotReport:
    """The notifications with one id, combined."""

    about: str
    state: str  # STARTED, IN_PROGRESS, PAUSED, COMPLETED, ABORTED …
    current: str | None
    chunks: int
    scanned: Mapping[str, str]  # table → `1200 rows`, or why not


def snapshot_reports(notifications: Sequence[Notification]) -> Mapping[str, SnapshotReport]:
    """By id, from notifications in the order of sending."""
    grouped: dict[str, list[Notification]] = {}
    latest: dict[str, str] = {}  # by connector: the id of its last incremental snapshot
    for notification in notifications:
        name, connector = notification.id, notification.data.get("connector_name", "")
        if notification.about == INCREMENTAL:
            # A stopped snapshot is first reported as completed, then as aborted under another id.
            name = latest.get(connector, name) if notification.type == _ABORTED and name not in grouped else name
            latest[connector] = name
        grouped.setdefault(name, []).append(notification)
    return {name: _combine(group) for name, group in grouped.items()}


def _combine(group: Sequence[Notification]) -> SnapshotReport:
    states = [item.type for item in group if item.type != _SCANNED]
    running = [item.data.get("current_collection_in_progress") for item in group if item.type == "IN_PROGRESS"]
    tables = {}
    for item in group:
        if item.type == _SCANNED:
            rows, status = item.data.get("total_rows_scanned", "?"), item.data.get("status", "")
            tables[item.data.get("scanned_collection", "?")] = f"{rows} rows" if status == "SUCCEEDED" else status
        elif item.type == _ABORTED:
            tables |= {name: "stopped" for name in item.data.get("data_collections", "").split(",") if name}
    state = states[-1] if states else "STARTED"
    current = running[-1] if running and state not in _FINAL else None
    return SnapshotReport(group[-1].about, state, current, len(running), tables)


def read_notifications(options: ClientOptions, topic: str, prefix: str | None) -> Sequence[Notification]:
    """The topic's messages up to its current end; with `prefix` only those of the connector with that topic.prefix."""
    metadata = Broker(options, _TIMEOUT_SECONDS, "read_committed").topics([topic]).get(topic)
    if metadata is None:
        raise InputError(
            f"kafka at {options.brokers} has no topic {topic}",
            hint="set notification.enabled.channels=sink and notification.sink.topic.name in the connector",
        )
    ends = {number: log.end for number, log in metadata.partitions.items() if log.end > log.first}
    if not ends:
        return []
    consumer = Consumer(
        options.reveal(group_id="headwater-notifications", enable_auto_commit=False) | {"enable.partition.eof": True}
    )
    try:
        consumer.assign(
            [
                TopicPartition(topic, number, max(metadata.partitions[number].first, end - _MAX_MESSAGES))
                for number, end in ends.items()
            ]
        )
        values = _values(consumer, options, topic, set(ends))
    finally:
        consumer.close()
    notifications = [notification for value in values if (notification := parse(value)) is not None]
    return sorted(
        (n for n in notifications if prefix is None or n.data.get("connector_name") == prefix),
        key=lambda notification: notification.milliseconds,
    )


def _values(consumer: Consumer, options: ClientOptions, topic: str, waiting: set[int]) -> Sequence[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while waiting:
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            if time.monotonic() > deadline:
                raise SourceUnreachable(
                    f"kafka at {options.brokers}: topic {topic}: no answer within {_TIMEOUT_SECONDS:g} s",
                    hint="try again",
                )
            continue
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        error = message.error()
        if error is None:
            if message.value() is not None:
                values.append(message.value())
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
            waiting.discard(message.partition())
        else:
            raise SourceUnreachable(f"kafka at {options.brokers}: {KafkaException(error)}", hint="try again")
    return values


def parse(value: bytes) -> Notification | None:
    """JSON with or without its schema; None for anything else."""
    try:
        data: Any = json.loads(value)
    except ValueError:
        return None
    if isinstance(data, dict) and isinstance(data.get("payload"), dict):
        data = data["payload"]
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        return None
    details = data.get("additional_data")
    timestamp = data.get("timestamp")
    return Notification(
        id=str(data.get("id")),
        about=str(data.get("aggregate_type")),
        type=data["type"],
        data={str(key): str(text) for key, text in details.items()} if isinstance(details, dict) else {},
        milliseconds=int(timestamp) if isinstance(timestamp, int | str) and str(timestamp).isdecimal() else 0,
    )
