"""How far a source has been read: one algebra for every kind of source.

A mark is immutable. `join` returns the smallest mark that is not below either; `covers` says whether one
stands at or past another. No other module compares marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from headwater.model.errors import StoreDamaged
from headwater.model.lsn_mark import LsnMark
from headwater.model.mark import Json, Mark
from headwater.model.types import CursorType, CursorValue

__all__ = [
    "ColumnMark",
    "Json",
    "LsnMark",
    "Mark",
    "ObjectsMark",
    "OffsetsMark",
    "SeenDigests",
    "SeenTransactions",
    "StreamsMark",
    "columns_learned",
    "mark_from_json",
    "same_kind",
]


@dataclass(frozen=True)
class SeenTransactions:
    """Which PostgreSQL transactions a poll has seen, so that it can tell later ones from them (G6).

    The poll has seen every transaction below `horizon` except those in `pending`, which had not committed when
    it looked. The list of running transactions that PostgreSQL itself offers omits subtransactions, so
    `pending` is made from the state of each transaction instead.
    """

    cluster: str  # system identifier and database: transaction ids mean nothing elsewhere
    horizon: int
    pending: tuple[int, ...] = ()
    # What is needed to bound the search for late rows by the cursor; see sources/sql/windows/watermark.py.
    bounds: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        return {
            "cluster": self.cluster,
            "horizon": self.horizon,
            "pending": list(self.pending),
            "bounds": dict(self.bounds),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> SeenTransactions:
        return cls(data["cluster"], data["horizon"], tuple(data["pending"]), dict(data["bounds"]))


@dataclass(frozen=True)
class SeenDigests:
    """Digests of the rows read at and shortly below the mark, where rows carry no transaction ids (G6)."""

    since: CursorValue | None  # the lowest cursor value that the digests cover
    rows: frozenset[str] = frozenset()

    def to_json(self, kind: CursorType) -> dict[str, Json]:
        since = None if self.since is None else kind.to_json(self.since)
        return {"since": since, "rows": sorted(self.rows)}

    @classmethod
    def from_json(cls, data: Mapping[str, Json], kind: CursorType) -> SeenDigests:
        since = None if data["since"] is None else kind.from_json(data["since"])
        return cls(since, frozenset(data["rows"]))


@dataclass(frozen=True)
class ColumnMark(Mark):
    """The greatest value read of an ordered column; None stands before every value."""

    kind: ClassVar[str] = "column"

    column: str
    type: CursorType
    value: CursorValue | None
    snapshot: SeenTransactions | None = None
    edge: SeenDigests | None = None

    def comparable(self, other: Mark) -> bool:
        return isinstance(other, ColumnMark) and (self.column, self.type) == (other.column, other.type)

    def join(self, other: ColumnMark) -> ColumnMark:
        # Marks at one place may differ in what they remember of it. Either will do, but every process has to
        # choose the same one: windows are recognised by the text of their marks (G5).
        return max(self, other, key=ColumnMark._preference)

    def covers(self, other: ColumnMark) -> bool:
        return self._rank() >= other._rank()

    def _preference(self) -> tuple[tuple[tuple[bool, Any], int], str]:
        return self._rank(), json.dumps(self.to_json(), sort_keys=True)

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
        shown = "before every row" if self.value is None else self.type.to_text(self.value)
        return f"{self.column} = {shown}"


@dataclass(frozen=True)
class OffsetsMark(Mark):
    """Topic → partition → the next offset to read. A partition that is absent stays."""

    kind: ClassVar[str] = "offsets"

    topics: Mapping[str, Mapping[int, int]]
    ids: Mapping[str, str] = field(default_factory=dict)  # topic → Kafka's id of it: a topic made anew has another (G9)
    # Topic → column → when it was found and its type, where no schema is declared: what was inferred once stays, and a
    # window that is read again is read with the columns of the first try (G5).
    columns: Mapping[str, Mapping[str, tuple[int, str]]] = field(default_factory=dict)

    def join(self, other: OffsetsMark) -> OffsetsMark:
        topics = {topic: dict(offsets) for topic, offsets in self.topics.items()}
        for topic, offsets in other.topics.items():
            mine = topics.setdefault(topic, {})
            mine.update({partition: max(offset, mine.get(partition, offset)) for partition, offset in offsets.items()})
        # It is unknown which of two ids is newer; every process has to choose the same one.
        ids = {topic: max(self.ids.get(topic, ""), other.ids.get(topic, "")) for topic in {*self.ids, *other.ids}}
        columns = {topic: dict(found) for topic, found in self.columns.items()}
        for topic, found in other.columns.items():
            mine_too = columns.setdefault(topic, {})
            # A column's type may become wider; of two the wider one holds the values of both.
            mine_too.update({name: max(kind, mine_too.get(name, kind), key=_width) for name, kind in found.items()})
        return OffsetsMark(topics, ids, columns)

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
        if self.columns:
            data["columns"] = {
                topic: {name: list(kind) for name, kind in sorted(found.items())}
                for topic, found in sorted(self.columns.items())
            }
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> OffsetsMark:
        topics = {
            topic: {int(partition): _offset(offset) for partition, offset in offsets.items()}
            for topic, offsets in data["topics"].items()
        }
        columns = {
            topic: {name: (int(number), str(kind)) for name, (number, kind) in found.items()}
            for topic, found in data.get("columns", {}).items()
        }
        return cls(topics, dict(data.get("ids", {})), columns)

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_json()))

    def __str__(self) -> str:
        shown = (
            f"{topic} {', '.join(f'{partition}: {offset}' for partition, offset in sorted(offsets.items())) or 'empty'}"
            for topic, offsets in sorted(self.topics.items())
        )
        return "; ".join(shown) or "no topic yet"


_WIDER = re.compile(r"\b(?:bigint|double)\b|\bdecimal\((\d+)")


def _width(column: tuple[int, str]) -> tuple[int, int, str]:
    """An order of columns in which a wider type comes behind: a join must have one for any two."""
    number, kind = column
    return number, sum(int(found[1] or 1) for found in _WIDER.finditer(kind)), kind


def _offset(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"an offset or a generation is a whole number from 0, not {value!r}")
    return value


@dataclass(frozen=True)
class ObjectsMark(Mark):
    """The generation of the bookmark ledger that has been read; the bookmarks themselves are in the progress store."""

    kind: ClassVar[str] = "objects"

    generation: int
    count: int = 0  # objects with a bookmark up to here
    turn: int = 0  # grows with every rewind: the same generations, read again, are another window
    reached: int = 0  # the greatest generation that landed before a rewind
    columns: Mapping[str, tuple[int, str]] = field(default_factory=dict)  # found in objects: when, and type
    feed: Json = None  # how far the feed of events has been read, in its own words

    def join(self, other: ObjectsMark) -> ObjectsMark:
        return max(self, other, key=ObjectsMark._preference)

    def covers(self, other: ObjectsMark) -> bool:
        return (self.turn, self.generation) >= (other.turn, other.generation)

    def _preference(self) -> tuple[int, int, str]:
        return self.turn, self.generation, json.dumps(self.to_json(), sort_keys=True)

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {
            "kind": self.kind,
            "version": 1,
            "generation": self.generation,
            "count": self.count,
            "turn": self.turn,
            "reached": self.reached,
        }
        if self.columns:
            data["columns"] = {name: list(found) for name, found in self.columns.items()}
        if self.feed is not None:
            data["feed"] = self.feed
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> ObjectsMark:
        columns = {name: (int(number), str(kind)) for name, (number, kind) in data.get("columns", {}).items()}
        numbers = {name: _offset(data[name]) for name in ("generation", "count", "turn", "reached")}
        return cls(**numbers, columns=columns, feed=data.get("feed"))

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_json(), sort_keys=True))

    def __str__(self) -> str:
        return f"generation {self.generation} ({self.count:,} objects)"


@dataclass(frozen=True)
class StreamsMark(Mark):
    """One mark per stream, for streams that move on their own. A stream that is absent stays."""

    kind: ClassVar[str] = "streams"

    streams: Mapping[str, Mark]

    def comparable(self, other: Mark) -> bool:
        return isinstance(other, StreamsMark) and all(
            mark.comparable(other.streams[name]) for name, mark in self.streams.items() if name in other.streams
        )

    def join(self, other: StreamsMark) -> StreamsMark:
        joined = dict(self.streams)
        for name, mark in other.streams.items():
            joined[name] = joined[name].join(mark) if name in joined else mark
        return StreamsMark(joined)

    def covers(self, other: StreamsMark) -> bool:
        return all(name in self.streams and self.streams[name].covers(mark) for name, mark in other.streams.items())

    def to_json(self) -> dict[str, Json]:
        streams = {name: mark.to_json() for name, mark in sorted(self.streams.items())}
        return {"kind": self.kind, "version": 1, "streams": streams}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> StreamsMark:
        return cls({name: mark_from_json(mark) for name, mark in data["streams"].items()})

    def __hash__(self) -> int:
        return hash(tuple(sorted((name, hash(mark)) for name, mark in self.streams.items())))

    def __str__(self) -> str:
        return "; ".join(f"{name}: {mark}" for name, mark in sorted(self.streams.items())) or "no stream yet"


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


def same_kind(mark: Mark, other: Mark) -> bool:
    """Whether two marks can be compared at all."""
    return mark.comparable(other)


def columns_learned(start: Mark | None, end: Mark) -> list[str]:
    """What a window inferred anew about columns, where no schema is declared: one line per column, none for a first window."""
    before, after = _columns_of(start), _columns_of(end)
    return [
        f"{stream}: {'new column ' + name if kind is None else name + ' ' + kind + ' →'} {now}"
        for stream, found in sorted(after.items())
        if stream in before
        for name, (_, now) in sorted(found.items(), key=lambda item: item[1][0])
        if (kind := before[stream][name][1] if name in before[stream] else None) != now
    ]


def _columns_of(mark: Mark | None) -> Mapping[str, Mapping[str, tuple[int, str]]]:
    if isinstance(mark, OffsetsMark):
        return mark.columns
    if isinstance(mark, LsnMark):
        return {
            stream: {name: (place, kind) for place, (name, kind) in enumerate(table.columns.items())}
            for stream, table in mark.tables.items()
        }
    return {"objects": mark.columns} if isinstance(mark, ObjectsMark) and mark.columns else {}
