"""Decoded changes of one layout of a table in a local file: an Arrow IPC stream, and rejects beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from headwater.model.errors import ValueNotKept
from headwater.model.rows import CHANGE_COLUMNS, MISSING, OnReject, Reject
from headwater.model.types import arrow_type
from headwater.sources.postgres.catalog import Layout, change_schema


@dataclass(frozen=True)
class StoredBatch:
    """One batch of the file."""

    offset: int
    rows: int


@dataclass(frozen=True)
class Segment:
    """A file that workers on this machine read. Its rows are in the order of the WAL."""

    stream: str
    layout: Layout = field(repr=False)
    column_types: tuple[str, ...] = field(repr=False)  # of the layout's columns
    path: str
    first: int  # the LSN of the first transaction that it has rows of
    batches: tuple[StoredBatch, ...] = field(repr=False, default=())
    rejects: int = 0
    truncates: bool = False  # one of its rows is a truncate of the table

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def schema(self) -> pa.Schema:
        return segment_schema(self.layout, self.column_types)

    @property
    def rejects_path(self) -> Path:
        return Path(f"{self.path}.rejects")


def segment_schema(layout: Layout, column_types: Sequence[str]) -> pa.Schema:
    columns = zip(layout.columns, column_types, strict=True)
    return change_schema(pa.field(column.name, arrow_type(column_type)) for column, column_type in columns)


_BESIDE = len(CHANGE_COLUMNS) + 1  # columns after the table's own
_MISSING = CHANGE_COLUMNS.index(MISSING)


@dataclass(frozen=True)
class SegmentSplit:
    """Some batches of a segment's file; one split of a segment also reads its rejects."""

    segment: Segment
    batches: tuple[StoredBatch, ...] = field(repr=False)
    homes: tuple[tuple[str, str], ...] = field(repr=False)  # column of the segment → column of the schema
    schema: pa.Schema = field(repr=False)
    reads_rejects: bool = True

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        for reject in self._rejects():
            if on_reject is None:
                raise self._not_kept(reject)
            on_reject(reject)
        yield from self._batches()

    def _not_kept(self, reject: Reject) -> ValueNotKept:
        return ValueNotKept(
            f"{self.segment.stream}: the change at {reject.location['lsn']}, number {reject.location['number']}, and "
            f"{self.segment.rejects - 1} more cannot be kept exactly: {reject.reason}",
            hint=f"read the column as text (as_text: {{{self.segment.stream}: […]}}), or allow rejects (max_rejects)",
        )

    def _rejects(self) -> Iterator[Reject]:
        if self.reads_rejects and self.segment.rejects:
            with self.segment.rejects_path.open(encoding="utf-8") as lines:
                yield from (Reject.from_json(json.loads(line)) for line in lines)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if not self.batches:
            return
        schema = self.segment.schema
        with pa.memory_map(self.segment.path) as file:
            for stored in self.batches:
                file.seek(stored.offset)
                yield self._conform(pa.ipc.read_record_batch(pa.ipc.read_message(file), schema))

    def _conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the stream's schema, by position: a table may have columns of any name."""
        names = [column.name for column in self.segment.layout.columns]
        sources = {home: names.index(name) for name, home in self.homes}
        columns = []
        for target in list(self.schema)[:-_BESIDE]:
            if target.name not in sources:
                columns.append(pa.nulls(batch.num_rows, target.type))
                continue
            column = batch.column(sources[target.name])
            columns.append(column if column.type == target.type else column.cast(target.type, safe=True))
        beside = batch.columns[-_BESIDE:]
        beside[_MISSING] = _rename(beside[_MISSING], dict(self.homes))
        return pa.RecordBatch.from_arrays([*columns, *beside], schema=self.schema)


def cut(segment: Segment, count: int, homes: Sequence[tuple[str, str]], schema: pa.Schema) -> tuple[SegmentSplit, ...]:
    """At most so many splits with about equal rows; the first reads the rejects."""
    count = max(1, min(count, len(segment.batches)))
    rows = np.array([batches.rows for batches in segment.batches], np.int64)
    numbers = (np.cumsum(rows) - rows / 2) * count // max(segment.rows, 1)  # by the middle of each batch
    edges = [int(np.searchsorted(numbers, edge)) for edge in range(1, count)]
    pairs = zip([0, *edges], [*edges, len(segment.batches)], strict=True)
    groups = [segment.batches[begin:end] for begin, end in pairs]
    filled = [batches for batches in groups if batches] or [()]
    return tuple(
        SegmentSplit(segment, batches, tuple(homes), schema, number == 0) for number, batches in enumerate(filled)
    )


def _rename(lists: pa.Array, homes: dict[str, str]) -> pa.Array:
    """The names of unchanged columns as the schema has them, without those that it does not have."""
    if lists.null_count == len(lists) or all(name == home for name, home in homes.items()):
        return lists
    renamed = [[homes[name] for name in names or () if name in homes] for names in lists.to_pylist()]
    return pa.array([names or None for names in renamed], lists.type)
