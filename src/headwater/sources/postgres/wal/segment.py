"""Changes of one layout of a table, decoded, in a file of this machine: an Arrow IPC stream, and rejects beside it."""

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
class Part:
    """One batch of the file."""

    offset: int
    rows: int


@dataclass(frozen=True)
class Segment:
    """Can be sent to a worker on this machine. Its rows stand in the order of the WAL."""

    stream: str
    layout: Layout = field(repr=False)
    kinds: tuple[str, ...] = field(repr=False)  # of the layout's columns
    path: str
    first: int  # the LSN of the first transaction that it has rows of
    parts: tuple[Part, ...] = field(repr=False, default=())
    rejects: int = 0
    truncates: bool = False  # among its rows is the truncate of the table

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def schema(self) -> pa.Schema:
        return segment_schema(self.layout, self.kinds)

    @property
    def rejects_path(self) -> Path:
        return Path(f"{self.path}.rejects")


def segment_schema(layout: Layout, kinds: Sequence[str]) -> pa.Schema:
    columns = zip(layout.columns, kinds, strict=True)
    return change_schema(pa.field(column.name, arrow_type(kind)) for column, kind in columns)


_BESIDE = len(CHANGE_COLUMNS) + 1  # columns behind the table's own
_MISSING = CHANGE_COLUMNS.index(MISSING)


@dataclass(frozen=True)
class SegmentSplit:
    """Some batches of a segment's file; one split of a segment also reads its rejects."""

    segment: Segment
    parts: tuple[Part, ...] = field(repr=False)
    homes: tuple[tuple[str, str], ...] = field(repr=False)  # column of the segment → column of the schema
    schema: pa.Schema = field(repr=False)
    reads_rejects: bool = True

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        for reject in self._rejects():
            if on_reject is None:
                raise self._not_kept(reject)
            on_reject(reject)
        yield from self._batches()

    def _not_kept(self, reject: Reject) -> ValueNotKept:
        return ValueNotKept(
            f"{self.segment.stream}: the change at {reject.place['lsn']}, number {reject.place['number']}, and "
            f"{self.segment.rejects - 1} more cannot be kept exactly: {reject.reason}",
            hint=f"read the column as text (as_text: {{{self.segment.stream}: […]}}), or allow rejects (max_rejects)",
        )

    def _rejects(self) -> Iterator[Reject]:
        if self.reads_rejects and self.segment.rejects:
            with self.segment.rejects_path.open(encoding="utf-8") as lines:
                yield from (Reject.from_json(json.loads(line)) for line in lines)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if not self.parts:
            return
        held = self.segment.schema
        with pa.memory_map(self.segment.path) as file:
            for part in self.parts:
                file.seek(part.offset)
                yield self._conformed(pa.ipc.read_record_batch(pa.ipc.read_message(file), held))

    def _conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """By place: a table may have columns of any name, also of those beside them."""
        names = [column.name for column in self.segment.layout.columns]
        sources = {home: names.index(name) for name, home in self.homes}
        columns = []
        for target in list(self.schema)[:-_BESIDE]:
            if target.name not in sources:
                columns.append(pa.nulls(batch.num_rows, target.type))
                continue
            found = batch.column(sources[target.name])
            columns.append(found if found.type == target.type else found.cast(target.type, safe=True))
        beside = batch.columns[-_BESIDE:]
        beside[_MISSING] = _renamed(beside[_MISSING], dict(self.homes))
        return pa.RecordBatch.from_arrays([*columns, *beside], schema=self.schema)


def cut(segment: Segment, count: int, homes: Sequence[tuple[str, str]], schema: pa.Schema) -> tuple[SegmentSplit, ...]:
    """At most so many splits, of about as many rows each; the first reads the rejects."""
    count = max(1, min(count, len(segment.parts)))
    rows = np.array([part.rows for part in segment.parts], np.int64)
    turns = (np.cumsum(rows) - rows / 2) * count // max(segment.rows, 1)  # by the middle of each batch
    edges = [int(np.searchsorted(turns, number)) for number in range(1, count)]
    pairs = zip([0, *edges], [*edges, len(segment.parts)], strict=True)
    parts = [segment.parts[begin:end] for begin, end in pairs]
    kept = [part for part in parts if part] or [()]
    return tuple(SegmentSplit(segment, part, tuple(homes), schema, place == 0) for place, part in enumerate(kept))


def _renamed(lists: pa.Array, homes: dict[str, str]) -> pa.Array:
    """Names of columns that are left out, as the schema has them; one that it has no column for is not left out."""
    if lists.null_count == len(lists) or all(name == home for name, home in homes.items()):
        return lists
    made = [[homes[name] for name in names or () if name in homes] for names in lists.to_pylist()]
    return pa.array([names or None for names in made], lists.type)
