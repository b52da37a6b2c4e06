"""Which offsets a window holds: decided from the mark and what the brokers know, without asking anybody."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headwater.model.errors import SourceChanged
from headwater.model.marks import OffsetsMark
from headwater.model.window import Window
from headwater.sources.kafka.broker import Partition, Topic

Topics = Mapping[str, Topic]


@dataclass(frozen=True)
class Gap:
    """A part of a log that the mark says comes next, and that is not there."""

    topic: str
    partition: int | None  # None: the whole topic
    why: str
    go_on: int | None  # where reading can go on; None: nowhere, the topic is gone


def gaps(mark: OffsetsMark, topics: Topics) -> list[Gap]:
    """Every place where the mark and the logs do not fit together (G9)."""
    found: list[Gap] = []
    for name, offsets in sorted(mark.topics.items()):
        topic = topics.get(name)
        if topic is None:
            found.append(Gap(name, None, f"{name}: the topic is gone, read up to {_shown(offsets)}", None))
        elif was_recreated(mark, name, topic):
            why = (
                f"{name}: the topic was deleted and created again (id {mark.ids.get(name) or 'unknown'} is now "
                f"{topic.id or 'unknown'}); the mark stands at {_shown(offsets)} of the old one"
            )
            found.append(Gap(name, None, why, 0))
        else:
            found.extend(_gaps_of(name, offsets, topic))
    return found


def was_recreated(mark: OffsetsMark, name: str, topic: Topic) -> bool:
    """Another id, or fewer partitions: Kafka never takes one away."""
    known = mark.ids.get(name, "")
    return bool(known and topic.id and known != topic.id) or bool(mark.topics[name].keys() - topic.partitions.keys())


def _gaps_of(name: str, offsets: Mapping[int, int], topic: Topic) -> list[Gap]:
    found = []
    for number, log in sorted(topic.partitions.items()):
        at = offsets.get(number, 0)  # a partition that came later is read from its first message
        if at < log.first:
            why = (
                f"{name} partition {number}: the mark stands at {at:,}, the log begins at {log.first:,}: "
                f"{log.first - at:,} offsets were removed unread"
            )
            found.append(Gap(name, number, why, log.first))
        elif at > log.end:
            why = (
                f"{name} partition {number}: the mark stands at {at:,}, the log ends at {log.end:,}: "
                f"{at - log.end:,} offsets that were read are no longer there"
            )
            found.append(Gap(name, number, why, log.end))
    return found


def _shown(offsets: Mapping[int, int]) -> str:
    return ", ".join(f"{partition}: {offset:,}" for partition, offset in sorted(offsets.items()))


def changed(address: str, found: list[Gap]) -> SourceChanged:
    """The error that stops the pipeline, with the gap in numbers and the ways to go on."""
    return SourceChanged(
        f"{address}: {'; '.join(gap.why for gap in found)} (G9)",
        hint="go on behind the gap: headwater rewind NAME --skip-gap --why TEXT; "
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
    made: dict[str, dict[int, int]] = {}
    for (name, number), offset in offsets.items():
        made.setdefault(name, {})[number] = offset
    return OffsetsMark(made, {name: topics[name].id for name in made if name in topics and topics[name].id})


def begins(mark: OffsetsMark, topics: Topics) -> dict[Partition, int]:
    """Where reading goes on; partitions and topics that the mark does not know begin at their first message,
    whatever `start` says: what they hold came after it (K2).
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
    """What a mark holds of some topics; the key of a stream stands beside its columns, under its name and a word."""
    topics = {name: offsets for name, offsets in mark.topics.items() if name in names}
    ids = {name: known for name, known in mark.ids.items() if name in names}
    columns = {entry: found for entry, found in mark.columns.items() if entry.partition(" ")[0] in names}
    return OffsetsMark(topics, ids, columns)


def ends(begin: Mapping[Partition, int], topics: Topics, max_rows: int | None) -> dict[Partition, int]:
    """Where the window ends: where the logs end, or nearer when they hold more than `max_rows` together."""
    available = {
        (name, number): max(topics[name].partitions[number].end - at, 0) for (name, number), at in begin.items()
    }
    taken = available if max_rows is None else fair_shares(available, max_rows)
    return {place: at + taken[place] for place, at in begin.items()}


def fair_shares(available: Mapping[Partition, int], limit: int) -> dict[Partition, int]:
    """At most `limit` in all: the small take all they have, the large get equal parts of the rest."""
    shares: dict[Partition, int] = {}
    waiting = sorted(available, key=lambda place: (available[place], place))
    left = limit
    for position, place in enumerate(waiting):
        part = -(-left // (len(waiting) - position))  # rounded up, so that a limit below the count still moves
        shares[place] = min(available[place], part, left)
        left -= shares[place]
    return shares
