"""How far a source has been read: one algebra for every kind of source.

A mark is a position, and immutable. `join` returns the smallest mark that is not below either; `covers` says whether one
stands at or past another. No other module compares marks. What a mark remembers of its streams (`stream_state.py`) travels
with it, in the stored form of 0.1.0, and decides nothing but which of two marks at one position is chosen.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

from headwater.model.errors import InputError, StoreDamaged
from headwater.model.position.lsn import LastCommit, lsn_number, lsn_text
from headwater.model.position.seen_rows import SeenDigests, SeenTransactions
from headwater.model.position.stream_state import (
    KEY_TYPE,
    StreamState,
    TableState,
    columns_json,
    key_json,
    state_from_json,
    union,
)
from headwater.model.types import CursorType, CursorValue

Json = Any  # what the json module reads and writes


class Mark(ABC):
    """One kind of position; every kind keeps the laws that `headwater.testing.marks` checks."""

    kind: ClassVar[str]
    streams: Mapping[str, StreamState] = MappingProxyType({})  # what is remembered of each, beside the position

    def comparable(self, other: Mark) -> bool:
        """Whether `join` and `covers` make sense between the two: marks of one kind, of one column."""
        return type(self) is type(other)

    @abstractmethod
    def join(self, other: Self) -> Self:
        """The smallest mark of this kind that is at or past both."""

    @abstractmethod
    def covers(self, other: Self) -> bool:
        """True when this mark stands at or past `other`."""

    @abstractmethod
    def to_json(self) -> dict[str, Json]:
        """A JSON object with `kind` and `version`; `mark_from_json` reads it back, equal."""

    @abstractmethod
    def __str__(self) -> str:
        """A short text for people."""

    def __hash__(self) -> int:
        return hash(self._text())

    def _text(self) -> str:
        return json.dumps(self.to_json(), sort_keys=True)


class OrderedMark(Mark):
    """Of any two positions of this kind one is at or past the other."""

    @abstractmethod
    def _rank(self) -> tuple[Any, ...]:
        """Orders the positions."""

    def join(self, other: Self) -> Self:
        # Marks at one position may differ in what they remember of it. Either will do, but every process has to
        # choose the same one: windows are recognised by the text of their marks (G5).
        return max(self, other, key=OrderedMark._preference)

    def covers(self, other: Self) -> bool:
        return self._rank() >= other._rank()

    def _preference(self) -> tuple[tuple[Any, ...], str]:
        return self._rank(), self._text()


@dataclass(frozen=True)
class ColumnMark(OrderedMark):
    """The greatest value read of an ordered column; None stands before every value."""

    kind: ClassVar[str] = "column"

    column: str
    type: CursorType
    value: CursorValue | None
    snapshot: SeenTransactions | None = None
    edge: SeenDigests | None = None

    def comparable(self, other: Mark) -> bool:
        return isinstance(other, ColumnMark) and (self.column, self.type) == (other.column, other.type)

    def _rank(self) -> tuple[tuple[bool, Any], int]:
        value = (False, 0) if self.value is None else (True, self.type.order(self.value))
        return value, (self.snapshot.horizon if self.snapshot else -1)

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {
            "kind": self.kind,
            "version": 1,
            "column": self.column,
            "type": self.type.value,
            "value": None if self.value is None else self.type.to_json(self.value),
        }
        if self.snapshot:
            data["snapshot"] = self.snapshot.to_json()
        if self.edge:
            data["edge"] = self.edge.to_json(self.type)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> ColumnMark:
        kind = CursorType(data["type"])
        if not isinstance(data["column"], str):
            raise TypeError(f"a column is named by a text, not by {data['column']!r}")
        return cls(
            column=data["column"],
            type=kind,
            value=None if data["value"] is None else kind.from_json(data["value"]),
            snapshot=SeenTransactions.from_json(data["snapshot"]) if "snapshot" in data else None,
            edge=SeenDigests.from_json(data["edge"], kind) if "edge" in data else None,
        )

    def __str__(self) -> str:
        text = "before every row" if self.value is None else self.type.to_text(self.value)
        return f"{self.column} = {text}"


_KEY_ENTRY = " key"  # stored behind a topic's name, which has no space


@dataclass(frozen=True)
class OffsetsMark(Mark):
    """Topic → partition → the next offset to read. A partition that is absent stays."""

    kind: ClassVar[str] = "offsets"

    topics: Mapping[str, Mapping[int, int]]
    ids: Mapping[str, str] = field(default_factory=dict)  # topic → Kafka's id of it: a topic made anew has another (G9)
    streams: Mapping[str, StreamState] = field(default_factory=dict)  # topic → what was inferred from its messages

    def join(self, other: OffsetsMark) -> OffsetsMark:
        return OffsetsMark(
            union(self.topics, other.topics, lambda mine, theirs: union(mine, theirs, max)),
            # It is unknown which of two ids is newer; every process has to choose the same one.
            union(self.ids, other.ids, max),
            union(self.streams, other.streams, StreamState.join),
        )

    def covers(self, other: OffsetsMark) -> bool:
        return all(
            self.topics.get(topic, {}).get(partition, -1) >= offset
            for topic, offsets in other.topics.items()
            for partition, offset in offsets.items()
        )

    def to_json(self) -> dict[str, Json]:
        topics = {
            topic: {str(partition): offset for partition, offset in sorted(offsets.items())}
            for topic, offsets in sorted(self.topics.items())
        }
        data = {"kind": self.kind, "version": 1, "topics": topics, "ids": dict(sorted(self.ids.items()))}
        columns = {}
        for topic, state in self.streams.items():
            if state.columns or not state.key_positions:
                columns[topic] = columns_json(state.columns)
            if state.key_positions:
                columns[topic + _KEY_ENTRY] = key_json(state)
        if columns:
            data["columns"] = {entry: dict(sorted(columns[entry].items())) for entry in sorted(columns)}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> OffsetsMark:
        topics = {
            topic: {int(partition): _whole_number(offset) for partition, offset in offsets.items()}
            for topic, offsets in data["topics"].items()
        }
        columns = data.get("columns", {})
        streams = {
            topic: state_from_json(columns.get(topic, {}), columns.get(topic + _KEY_ENTRY, {}))
            for topic in (entry.removesuffix(_KEY_ENTRY) for entry in columns)
        }
        return cls(topics, dict(data.get("ids", {})), streams)

    __hash__ = Mark.__hash__

    def __str__(self) -> str:
        topics = (
            f"{topic} {', '.join(f'{partition}: {offset}' for partition, offset in sorted(offsets.items())) or 'empty'}"
            for topic, offsets in sorted(self.topics.items())
        )
        return "; ".join(topics) or "no topic yet"


def _whole_number(value: Json) -> int:
    """An offset or a generation. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"an offset or a generation is a whole number from 0, not {value!r}")
    return value


_STREAM = "objects"  # the name of the only stream in its mark, whatever the settings call it
_KEY_PREFIX = " key "  # stored before the name of a key's column


@dataclass(frozen=True)
class ObjectsMark(OrderedMark):
    """The generation of the bookmark ledger that has been read; the bookmarks themselves are in the progress store."""

    kind: ClassVar[str] = "objects"

    generation: int
    count: int = 0  # objects with a bookmark up to here
    turn: int = 0  # grows with every rewind: the same generations, read again, are another window
    reached: int = 0  # the greatest generation that landed before a rewind
    streams: Mapping[str, StreamState] = field(default_factory=dict)  # one at most: see `state`
    feed: Json = None  # how far the feed of events has been read, in its own words

    @property
    def state(self) -> StreamState:
        """Of the only stream."""
        return self.streams.get(_STREAM, StreamState())

    def with_state(self, state: StreamState) -> ObjectsMark:
        """Raises InputError for a column that has the stored name of a key's column: a retry would not know it (G5)."""
        taken = state.columns.keys() & {_KEY_PREFIX + name for name in state.key}
        if taken:
            raise InputError(
                f"column {min(taken)!r} cannot stand beside the key {', '.join(state.key)}",
                hint="rename the column in the source, or write schema: with the columns to keep",
            )
        return replace(self, streams={_STREAM: state} if state != StreamState() else {})

    def _rank(self) -> tuple[int, int]:
        return self.turn, self.generation

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {
            "kind": self.kind,
            "version": 1,
            "generation": self.generation,
            "count": self.count,
            "turn": self.turn,
            "reached": self.reached,
        }
        if self.streams:
            key = {_KEY_PREFIX + name: stored for name, stored in key_json(self.state).items()}
            data["columns"] = {**columns_json(self.state.columns), **key}
        if self.feed is not None:
            data["feed"] = self.feed
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> ObjectsMark:
        numbers = {name: _whole_number(data[name]) for name in ("generation", "count", "turn", "reached")}
        stored = data.get("columns", {})
        # A column may have a name like that, but not that type.
        key = {name for name, (_, kind) in stored.items() if kind == KEY_TYPE and name.startswith(_KEY_PREFIX)}
        state = state_from_json(
            {name: column for name, column in stored.items() if name not in key},
            {name.removeprefix(_KEY_PREFIX): column for name, column in stored.items() if name in key},
        )
        return cls(**numbers, streams={_STREAM: state} if stored else {}, feed=data.get("feed"))

    __hash__ = Mark.__hash__

    def __str__(self) -> str:
        return f"generation {self.generation} ({self.count:,} objects)"


_ERA_BITS = 56  # a log of 64 petabytes, 127 times; positions have room for 63 bits


@dataclass(frozen=True)
class LsnMark(OrderedMark):
    """Every transaction that committed before `lsn` has landed: the end of a commit, or of a snapshot's past."""

    kind: ClassVar[str] = "lsn"

    lsn: int
    cluster: str = ""  # system identifier and database: an LSN means nothing elsewhere
    timeline: int = 0
    slot: str = ""
    turn: int = 0  # grows with every copy of a table and every rewind, which leave the LSN as it was
    era: int = 0  # grows when the WAL starts over, in another cluster or an older copy of it: see `ordinal`
    commit: LastCommit | None = None
    streams: Mapping[str, TableState] = field(default_factory=dict)
    labels: tuple[str, ...] = ()  # that stand right here in the log
    cut: int = 0  # the last position where a window ended for a verification

    def ordinal(self, lsn: int) -> int:
        """What orders changes (`position` in `model/rows.py`): LSNs of a WAL that started over come after all of the old."""
        return (self.era << _ERA_BITS) + lsn

    def _rank(self) -> tuple[int, int, int]:
        return self.era, self.lsn, self.turn

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {
            "kind": self.kind,
            "version": 1,
            "lsn": lsn_text(self.lsn),
            "cluster": self.cluster,
            "timeline": self.timeline,
            "slot": self.slot,
            "turn": self.turn,
            "era": self.era,
            "tables": {stream: table.to_json() for stream, table in sorted(self.streams.items())},
        }
        if self.commit:
            data["commit"] = self.commit.to_json()
        if self.cut:
            data["cut"] = lsn_text(self.cut)
        return {**data, "labels": list(self.labels)} if self.labels else data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> LsnMark:
        return cls(
            lsn=lsn_number(data["lsn"]),
            cluster=data["cluster"],
            timeline=int(data["timeline"]),
            slot=data["slot"],
            turn=int(data["turn"]),
            era=int(data["era"]),
            commit=LastCommit.from_json(data["commit"]) if "commit" in data else None,
            streams={stream: TableState.from_json(table) for stream, table in data["tables"].items()},
            labels=tuple(data.get("labels", ())),
            cut=lsn_number(data["cut"]) if "cut" in data else 0,
        )

    __hash__ = Mark.__hash__

    def __str__(self) -> str:
        copying = [f"{stream} is being copied" for stream, t in sorted(self.streams.items()) if t.copied_to is not None]
        return "; ".join([lsn_text(self.lsn), *copying])


@dataclass(frozen=True)
class StreamsMark(Mark):
    """One mark per stream, for streams that move on their own. A stream that is absent stays."""

    kind: ClassVar[str] = "streams"

    marks: Mapping[str, Mark]

    def comparable(self, other: Mark) -> bool:
        return isinstance(other, StreamsMark) and all(
            mark.comparable(other.marks[stream]) for stream, mark in self.marks.items() if stream in other.marks
        )

    def join(self, other: StreamsMark) -> StreamsMark:
        return StreamsMark(union(self.marks, other.marks, lambda mine, theirs: mine.join(theirs)))

    def covers(self, other: StreamsMark) -> bool:
        return all(stream in self.marks and self.marks[stream].covers(mark) for stream, mark in other.marks.items())

    def to_json(self) -> dict[str, Json]:
        marks = {stream: mark.to_json() for stream, mark in sorted(self.marks.items())}
        return {"kind": self.kind, "version": 1, "streams": marks}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> StreamsMark:
        return cls({stream: mark_from_json(mark) for stream, mark in data["streams"].items()})

    def __hash__(self) -> int:
        return hash(tuple(sorted((stream, hash(mark)) for stream, mark in self.marks.items())))

    def __str__(self) -> str:
        return "; ".join(f"{stream}: {mark}" for stream, mark in sorted(self.marks.items())) or "no stream yet"


_KINDS: Mapping[str, type[ColumnMark | OffsetsMark | ObjectsMark | LsnMark | StreamsMark]] = {
    kind.kind: kind for kind in (ColumnMark, OffsetsMark, ObjectsMark, LsnMark, StreamsMark)
}


def mark_from_json(data: Mapping[str, Json]) -> Mark:
    """The mark that `to_json` wrote. What cannot be read is damage, never 'no mark' (W3)."""
    try:
        if data["version"] != 1:
            raise StoreDamaged(
                f"a mark of version {data['version']!r} was written by a newer Headwater",
                hint="run the version that wrote it, or newer",
            )
        return _KINDS[data["kind"]].from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StoreDamaged(
            f"stored mark cannot be read ({type(error).__name__}: {error})",
            hint="restore the progress store from a backup, or rewind the pipeline",
        ) from error
