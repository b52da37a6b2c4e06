"""A pipeline in miniature, without Spark and store, for tests of sources; a source that records acknowledgements."""

from __future__ import annotations

import datetime as dt
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.model.position.marks import Mark, mark_from_json
from headwater.model.position.window import Window
from headwater.model.progress import Lease
from headwater.model.protocols.source import Abandons, Acknowledges, Claim, IsolatesStreams, Plan, Source
from headwater.model.rows import Reject, Rows, Split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Content = dict[str, list[int]]  # stream → the ids of its rows, sorted; streams without rows are left out

_MOST_WINDOWS = 50


class SourceOrigin(ABC):
    """The system that one test reads: empty at first, with every stream already there."""

    streams: tuple[str, ...] = ("orders",)
    """The source's names of its streams."""
    secret: str = ""
    """A secret in the settings of `open`, if they can hold one."""

    @abstractmethod
    def open(self) -> Source:
        """Another source on the same system, with the same settings, as another process opens it."""

    @abstractmethod
    def append(self, stream: str, ids: Sequence[int]) -> None:
        """Add rows that can be read when this returns. Ids grow with every call, over all streams."""

    @abstractmethod
    def open_unreachable(self) -> tuple[Source, str]:
        """A source on an address where nothing answers, and the secret in its settings (empty: no secret)."""

    def id_of(self, row: Mapping[str, object]) -> int | None:
        """None: a row that says something of others, such as a truncation, and counts for none."""
        return None if row["id"] is None else int(str(row["id"]))

    @property
    def lease(self) -> Lease:
        """The right to write, for a source that stages its windows."""
        return Lease("contract", "me", 1, dt.datetime.now(dt.UTC), 3600)

    def spark(self) -> SparkSession:
        """The session for rows that only Spark can read."""
        raise AssertionError("these rows are read without a Spark session")


@dataclass
class Follower:
    """A pipeline in miniature: takes windows, reads them, keeps the mark as a store keeps it, acknowledges last."""

    origin: SourceOrigin
    sources: Callable[[], Source]
    mark: Mark | None = None

    def __post_init__(self) -> None:
        self.windows: list[Window] = []
        self.source = self.sources()

    def restart(self) -> None:
        """As another process, which knows the mark alone."""
        self.source.close()
        self.source = self.sources()

    def plan(self) -> Plan:
        return plan_next(self.source, self.mark, self.origin.lease)

    def next_window(self) -> Window:
        """The next window with rows."""
        window = self._window_with_rows()
        assert window is not None, "rows have been appended, and the source plans no window"
        return window

    def has_nothing_new(self) -> bool:
        return self._window_with_rows() is None

    def _window_with_rows(self) -> Window | None:
        """Those without, which only move the mark, are passed. None: no window is planned."""
        for _ in range(_MOST_WINDOWS):
            plan = self.plan()
            if plan.window is None:
                return None
            window = stored(plan.window)
            if self.read(window):
                return window
            self.advance(window)
        raise AssertionError(f"the source plans more than {_MOST_WINDOWS} windows without rows")

    def can_read(self, window: Window) -> bool:
        return not (isinstance(self.source, Abandons) and self.source.abandoned(window))

    def read(self, window: Window) -> dict[str, list[dict[str, object]]]:
        """The rows of a window by stream, in the order of their ids."""
        with self.source.read(window) as streams:
            tables = {rows.stream: read_rows(rows, self.origin.spark) for rows in streams}
            assert len(tables) == len(streams), "one Rows per stream"
        ordered = {stream: self._counted(table) for stream, table in tables.items()}
        return {stream: rows for stream, rows in ordered.items() if rows}

    def _counted(self, table: pa.Table) -> list[dict[str, object]]:
        numbered = [(self.origin.id_of(row), number, row) for number, row in enumerate(table.to_pylist())]
        return [row for _, _, row in sorted(each for each in numbered if each[0] is not None)]

    def advance(self, window: Window) -> None:
        assert self.mark is None or window.end.covers(self.mark), "a mark never moves backwards (G3)"
        self.windows.append(window)
        self.mark = stored(window).end
        if isinstance(self.source, Acknowledges):
            self.source.acknowledge(self.mark)

    def cycle(self) -> Content:
        """The content of one window; empty without a window."""
        plan = self.plan()
        if plan.window is None:
            return {}
        window = stored(plan.window)
        rows = self.read(window)
        self.advance(window)
        return ids_by_stream(self.origin, rows)

    def catch_up(self) -> Content:
        """What all windows bring until nothing is new."""
        content: Content = {}
        for _ in range(_MOST_WINDOWS):
            before = len(self.windows)
            add(content, self.cycle())
            if len(self.windows) == before:
                return {stream: sorted(ids) for stream, ids in content.items()}
        raise AssertionError("the source always has a new window")

    def rewind(self, text: str) -> None:
        mark = self.source.position(text, self.mark)
        self.mark = None if mark is None else mark_from_json(json.loads(json.dumps(mark.to_json())))
        self.restart()


def plan_next(source: Source, mark: Mark | None, lease: Lease) -> Plan:
    """Plan as a cycle does: with a claim, so that a source with a ledger stages its window."""
    return source.plan(mark, claim=Claim(lease, "run"))


def read_rows(rows: Rows, spark: Callable[[], SparkSession]) -> pa.Table:
    """All rows of a stream in its schema. None of them may be a reject."""
    if rows.splits is None:
        return rows.dataframe(spark()).toArrow().cast(rows.schema)
    return pa.concat_tables([rows.schema.empty_table(), *(read_split(split, rows.schema) for split in rows.splits)])


def read_split(split: Split, schema: pa.Schema) -> pa.Table:
    """As a worker reads it."""
    rejects: list[Reject] = []
    batches = []
    for batch in split.read(rejects.append):
        batch.validate(full=True)
        assert batch.schema == schema, "every batch has the stream's schema"
        batches.append(batch)
    assert rejects == [], "all these rows can be kept"
    return pa.Table.from_batches(batches, schema=schema)


def stored(window: Window) -> Window:
    """As a store returns it."""
    return Window.from_json(json.loads(json.dumps(window.to_json())))


def ids_by_stream(origin: SourceOrigin, rows: Mapping[str, Sequence[Mapping[str, object]]]) -> Content:
    return {
        stream: [number for row in stream_rows if (number := origin.id_of(row)) is not None]
        for stream, stream_rows in rows.items()
    }


def add(content: Content, other: Content) -> None:
    for stream, ids in other.items():
        content.setdefault(stream, []).extend(ids)


class RecordingSource:
    """Delegates to a source, and appends each acknowledged mark as a line to a file."""

    def __init__(self, source: Source, record: Path) -> None:
        self._source, self._record = source, record

    @property
    def address(self) -> str:
        return self._source.address

    def plan(self, mark: Mark | None, *, claim: Claim | None = None, skip: frozenset[str] = frozenset()) -> Plan:
        return self._source.plan(mark, claim=claim, skip=skip)

    def apart(self, window: Window, streams: frozenset[str]) -> tuple[Window, Window] | None:
        return self._source.apart(window, streams) if isinstance(self._source, IsolatesStreams) else None

    def read(self, window: Window) -> AbstractContextManager[Sequence[Rows]]:
        return self._source.read(window)

    def position(self, text: str, mark: Mark | None) -> Mark | None:
        return self._source.position(text, mark)

    def acknowledge(self, mark: Mark) -> None:
        with self._record.open("a") as record:
            record.write(f"{mark}\n")

    def close(self) -> None:
        self._source.close()
