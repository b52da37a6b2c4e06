"""Which offsets a window holds, by the mark and what the brokers know, and how far a mark is behind.

The lag is counted in messages by the logs' ends, in time by the age of the oldest unread message. The age is that of
a real message, read by one short fetch from every partition that is behind: the difference between the newest
timestamps would not show how long a message has been unread.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition

from headwater.config.sources.kafka import ClientOptions, parse_moment
from headwater.model.errors import BadPosition, InputError, SourceChanged
from headwater.model.position.marks import OffsetsMark
from headwater.model.position.window import Window
from headwater.model.protocols.source import Lag
from headwater.sources.kafka.client import Broker, Log, Partition, Topic

_NO_MESSAGE = -1

Topics = Mapping[str, Topic]


@dataclass(frozen=True)
class Gap:
    """A part of a log that the mark says comes next, and that is not there."""

    topic: str
    partition: int | None  # None: the whole topic
    why: str
    go_on: int | None  # where reading can continue; None: nowhere, the topic is gone


def gaps(mark: OffsetsMark, topics: Topics) -> list[Gap]:
    """Every gap between the mark and the logs (G9)."""
    mismatches: list[Gap] = []
    for name, offsets in sorted(mark.topics.items()):
        topic = topics.get(name)
        if topic is None:
            mismatches.append(Gap(name, None, f"{name}: the topic is gone, read up to {_offsets_text(offsets)}", None))
        elif was_recreated(mark, name, topic):
            why = (
                f"{name}: the topic was deleted and created again (id {mark.ids.get(name) or 'unknown'} is now "
                f"{topic.id or 'unknown'}); the mark stands at {_offsets_text(offsets)} of the old one"
            )
            mismatches.append(Gap(name, None, why, 0))
        else:
            mismatches.extend(_gaps_of(name, offsets, topic))
    return mismatches


def was_recreated(mark: OffsetsMark, name: str, topic: Topic) -> bool:
    """Another id, or fewer partitions: Kafka never takes one away."""
    known = mark.ids.get(name, "")
    return bool(known and topic.id and known != topic.id) or bool(mark.topics[name].keys() - topic.partitions.keys())


def _gaps_of(name: str, offsets: Mapping[int, int], topic: Topic) -> list[Gap]:
    mismatches = []
    for number, log in sorted(topic.partitions.items()):
        at = offsets.get(number, 0)  # a partition that came later is read from its first message
        if at < log.first:
            why = (
                f"{name} partition {number}: the mark stands at {at:,}, the log begins at {log.first:,}: "
                f"{log.first - at:,} offsets were removed unread"
            )
            mismatches.append(Gap(name, number, why, log.first))
        elif at > log.end:
            why = (
                f"{name} partition {number}: the mark stands at {at:,}, the log ends at {log.end:,}: "
                f"{at - log.end:,} offsets that were read are no longer there"
            )
            mismatches.append(Gap(name, number, why, log.end))
    return mismatches


def _offsets_text(offsets: Mapping[int, int]) -> str:
    return ", ".join(f"{partition}: {offset:,}" for partition, offset in sorted(offsets.items()))


def changed(address: str, mismatches: list[Gap]) -> SourceChanged:
    """The error that stops the pipeline, with the gap in numbers and the ways out."""
    return SourceChanged(
        f"{address}: {'; '.join(gap.why for gap in mismatches)} (G9)",
        hint="continue behind the gap: headwater rewind NAME --skip-gap --why TEXT; "
        "or read all that is there: headwater rewind NAME --to earliest --why TEXT",
    )


def without_gaps(mark: OffsetsMark, topics: Topics) -> OffsetsMark:
    """The mark with every gap skipped; what has none stays where it is."""
    moved = {name: dict(offsets) for name, offsets in mark.topics.items()}
    ids = dict(mark.ids)
    for gap in gaps(mark, topics):
        if gap.partition is not None and gap.go_on is not None:
            moved[gap.topic][gap.partition] = gap.go_on
        elif gap.go_on is None:
            del moved[gap.topic]
            ids.pop(gap.topic, None)
        else:
            moved[gap.topic] = {number: log.first for number, log in topics[gap.topic].partitions.items()}
            ids[gap.topic] = topics[gap.topic].id
    return OffsetsMark(moved, ids)


def mark_of(offsets: Mapping[Partition, int], topics: Topics) -> OffsetsMark:
    """A mark at these offsets, with the ids of their topics."""
    by_topic: dict[str, dict[int, int]] = {}
    for (name, number), offset in offsets.items():
        by_topic.setdefault(name, {})[number] = offset
    return OffsetsMark(by_topic, {name: topics[name].id for name in by_topic if name in topics and topics[name].id})


def begins(mark: OffsetsMark, topics: Topics) -> dict[Partition, int]:
    """Where reading continues; partitions and topics that the mark does not know begin at their first message,
    whatever `start` says: what they hold came after it.
    """
    return {
        (name, number): mark.topics.get(name, {}).get(number, log.first)
        for name, topic in topics.items()
        for number, log in topic.partitions.items()
    }


def apart(window: Window, names: frozenset[str]) -> tuple[Window, Window]:
    """What some topics bring to a window, and the rest of it, in which they stay where the window begins."""
    begin = window.start if isinstance(window.start, OffsetsMark) else OffsetsMark({})
    end = window.end if isinstance(window.end, OffsetsMark) else OffsetsMark({})
    others = end.topics.keys() - names
    part = Window(_only(begin, names), _only(end, names))
    rest = Window(begin, _only(end, others).join(_only(begin, names)))
    return part, rest


def _only(mark: OffsetsMark, names: Collection[str]) -> OffsetsMark:
    """What a mark holds of some topics."""
    topics = {name: offsets for name, offsets in mark.topics.items() if name in names}
    ids = {name: known for name, known in mark.ids.items() if name in names}
    streams = {name: state for name, state in mark.streams.items() if name in names}
    return OffsetsMark(topics, ids, streams)


def ends(begin: Mapping[Partition, int], topics: Topics, max_rows: int | None) -> dict[Partition, int]:
    """Where the window ends: where the logs end, or nearer when they hold more than `max_rows` together."""
    available = {
        (name, number): max(topics[name].partitions[number].end - at, 0) for (name, number), at in begin.items()
    }
    shares = available if max_rows is None else fair_shares(available, max_rows)
    return {partition: at + shares[partition] for partition, at in begin.items()}


def fair_shares(available: Mapping[Partition, int], limit: int) -> dict[Partition, int]:
    """At most `limit` in all: the small take all they have, the large get equal parts of the rest."""
    shares: dict[Partition, int] = {}
    waiting = sorted(available, key=lambda partition: (available[partition], partition))
    left = limit
    for position, partition in enumerate(waiting):
        part = -(-left // (len(waiting) - position))  # rounded up, so that a limit below the count still moves
        shares[partition] = min(available[partition], part, left)
        left -= shares[partition]
    return shares


def since(broker: Broker, logs: Mapping[Partition, Log], moment: dt.datetime) -> dict[Partition, int]:
    """The first offsets not before the moment; where nothing is that young, the log's end."""
    if moment > dt.datetime.now(dt.UTC):
        raise InputError(f"{moment.isoformat()} lies in the future", hint="use a past timestamp, earliest or latest")
    offsets = broker.offsets_since(logs, round(moment.timestamp() * 1000))
    return {
        partition: log.end if offsets[partition] == _NO_MESSAGE else offsets[partition]
        for partition, log in logs.items()
    }


_PARTITION_OFFSET = re.compile(r"(?P<topic>[\w.\-]+):(?P<partition>\d+)=(?P<offset>\d+)", re.ASCII)
_WAYS = 'write start, earliest, latest, 2026-03-02T08:00:00Z, orders:0=100,orders:1=150 or {"orders": {"0": 100}}'


def position(text: str, mark: OffsetsMark, broker: Broker, topics: Mapping[str, Topic]) -> OffsetsMark:
    """Where the text leads to. Raises BadPosition."""
    text = text.strip()
    logs = {(name, number): log for name, topic in topics.items() for number, log in topic.partitions.items()}
    if text == "earliest":
        return mark_of({partition: log.first for partition, log in logs.items()}, topics)
    if text == "latest":
        return mark_of({partition: log.end for partition, log in logs.items()}, topics)
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
            mark = OffsetsMark.from_json({"topics": json.loads(text)})
        except (ValueError, AttributeError, TypeError) as error:
            raise BadPosition(f"no offsets by topic and partition: {error}", hint=_WAYS) from None
        return {(name, number): at for name, offsets in mark.topics.items() for number, at in offsets.items()}
    if "=" not in text:
        return None
    by_partition = {}
    for part in text.split(","):
        match = _PARTITION_OFFSET.fullmatch(part.strip())
        if not match:
            raise BadPosition(f"{part.strip()!r} is no topic:partition=offset", hint=_WAYS)
        by_partition[match["topic"], int(match["partition"])] = int(match["offset"])
    return by_partition


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


_PATIENCE_SECONDS = 3.0
_AT_ONCE = 500


def measure_lag(
    options: ClientOptions, isolation: str, topics: Mapping[str, Topic], begin: Mapping[Partition, int]
) -> Sequence[Lag]:
    """One entry per partition, by topic and number."""
    ends = {(name, number): log.end for name, topic in topics.items() for number, log in topic.partitions.items()}
    firsts = {(name, number): log.first for name, topic in topics.items() for number, log in topic.partitions.items()}
    behind = {partition: max(at, firsts[partition]) for partition, at in begin.items() if at < ends[partition]}
    ages = _ages(options, isolation, behind) if behind else {}
    return [
        Lag(partition[0], str(partition[1]), begin[partition], ends[partition], ages.get(partition))
        for partition in sorted(begin)
    ]


def _ages(options: ClientOptions, isolation: str, behind: Mapping[Partition, int]) -> dict[Partition, float]:
    """Seconds since the first unread message of each partition; what does not come in time is left out."""
    client_options = options.reveal() | {
        "group.id": "headwater-measures-lag",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "auto.offset.reset": "error",
        "fetch.message.max.bytes": 1024,  # a broker sends at least one message, and we want no more
        "queued.min.messages": 1,
    }
    consumer = Consumer(client_options)
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
                partition, (kind, moment) = (message.topic(), message.partition()), message.timestamp()
                if partition not in ages:
                    ages[partition] = max(time.time() - moment / 1000, 0.0) if kind else 0.0
                    consumer.incremental_unassign([TopicPartition(*partition)])
    finally:
        consumer.close()
    return ages
