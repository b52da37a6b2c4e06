"""Marks that an operator names in a rewind."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from headwater.config.kafka_source import parse_moment
from headwater.model.errors import BadPosition
from headwater.model.marks import OffsetsMark
from headwater.sources.kafka.broker import Broker, Log, Partition, Topic
from headwater.sources.kafka.planning import begins, mark_of, without_gaps
from headwater.sources.kafka.source import since

_PLACE = re.compile(r"(?P<topic>[\w.\-]+):(?P<partition>\d+)=(?P<offset>\d+)", re.ASCII)
_WAYS = 'write start, earliest, latest, 2026-03-02T08:00:00Z, orders:0=100,orders:1=150 or {"orders": {"0": 100}}'


def position(text: str, mark: OffsetsMark, broker: Broker, topics: Mapping[str, Topic]) -> OffsetsMark:
    """Where the text leads to. Raises BadPosition."""
    text = text.strip()
    logs = {(name, number): log for name, topic in topics.items() for number, log in topic.partitions.items()}
    if text == "earliest":
        return mark_of({place: log.first for place, log in logs.items()}, topics)
    if text == "latest":
        return mark_of({place: log.end for place, log in logs.items()}, topics)
    if text == "skip-gap":
        return _skipped(mark, topics)
    named = _named(text)
    if named is None:
        try:
            moment = parse_moment(text)
        except ValueError:
            raise BadPosition(f"{text!r} names no position in Kafka's topics", hint=_WAYS) from None
        return mark_of(since(broker, logs, moment), topics)
    _check(named, logs)
    return mark_of(begins(mark, topics) | named, topics)


def _skipped(mark: OffsetsMark, topics: Mapping[str, Topic]) -> OffsetsMark:
    moved = without_gaps(mark, topics)
    if moved == mark:
        raise BadPosition("the mark has no gap to skip", hint="see headwater plan; to move elsewhere: --to VALUE")
    return moved


def _named(text: str) -> dict[Partition, int] | None:
    if text.startswith("{"):
        try:
            given = OffsetsMark.from_json({"topics": json.loads(text)})
        except (ValueError, AttributeError, TypeError) as error:
            raise BadPosition(f"no offsets by topic and partition: {error}", hint=_WAYS) from None
        return {(name, number): at for name, offsets in given.topics.items() for number, at in offsets.items()}
    if "=" not in text:
        return None
    found = {}
    for part in text.split(","):
        match = _PLACE.fullmatch(part.strip())
        if not match:
            raise BadPosition(f"{part.strip()!r} is no topic:partition=offset", hint=_WAYS)
        found[match["topic"], int(match["partition"])] = int(match["offset"])
    return found


def _check(named: Mapping[Partition, int], logs: Mapping[Partition, Log]) -> None:
    for (topic, partition), offset in named.items():
        log = logs.get((topic, partition))
        if log is None:
            there = ", ".join(sorted({name for name, _ in logs}))
            raise BadPosition(f"{topic} partition {partition} is not there", hint=f"topics of this pipeline: {there}")
        if not log.first <= offset <= log.end:
            raise BadPosition(
                f"{topic} partition {partition}: {offset:,} is not there; it holds {log.first:,} up to {log.end:,}",
                hint="write an offset within, earliest or latest",
            )
