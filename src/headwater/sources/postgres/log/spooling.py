"""Raw rows of many layouts on their way to segments: decoded some megabytes at a time, written, forgotten.

Tables whose rows come in turn would make small batches if each chunk were decoded when it comes. So rows wait for others
of their layout; all that wait together is bounded, however many tables there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headwater.model.rejects import Reject
from headwater.sources.postgres.log.decoding import Decoder
from headwater.sources.postgres.log.layout import Layout
from headwater.sources.postgres.log.raw_rows import RawRows, joined
from headwater.sources.postgres.log.segment import Part, Segment, segment_schema

_BATCH = 4 << 20  # bytes of messages
_WAITING = 64 << 20  # of all layouts together

Kinds = Callable[[Layout], Sequence[str]]


@dataclass(frozen=True)
class TableOrder:
    """A table whose changes are wanted: of transactions that committed at `since` or later and end behind `after`."""

    stream: str
    since: int
    after: int
    key: tuple[str, ...]

    @property
    def lowest(self) -> int:
        """Marks are ends of commits: what committed before one ends there or earlier, and what did not ends later."""
        return max(self.since, self.after)


class Spool:
    """The segments of one read of the log, in a folder."""

    def __init__(self, folder: Path, kinds: Kinds, era: int) -> None:
        self._folder, self._kinds, self._era = folder, kinds, era
        self._writers: dict[Layout, SegmentWriter] = {}

    def writer(self, layout: Layout, order: TableOrder) -> SegmentWriter:
        """The same for a layout that comes back."""
        if layout not in self._writers:
            path = self._folder / f"{len(self._writers):05}.arrows"
            decoder = Decoder(order.stream, layout, tuple(self._kinds(layout)), order.key, self._era)
            self._writers[layout] = SegmentWriter(path, decoder)
        return self._writers[layout]

    def settle(self) -> None:
        """Decode what has become enough, or too much. Asked after every chunk."""
        for writer in self._writers.values():
            if writer.waiting >= _BATCH:
                writer.flush()
        if sum(writer.waiting for writer in self._writers.values()) > _WAITING:
            for writer in self._writers.values():
                writer.flush()

    def finish(self) -> tuple[Segment, ...]:
        for writer in self._writers.values():
            writer.flush()
        return tuple(writer.segment() for writer in self._writers.values())


class SegmentWriter:
    """Opens its file only to write a batch: there may be more tables than files that a process may hold open."""

    def __init__(self, path: Path, decoder: Decoder) -> None:
        self._path, self._decoder = path, decoder
        self._raw: list[RawRows] = []
        self._parts: list[Part] = []
        self._first: int | None = None
        self._size = self._rejects = 0
        self._truncates = False
        self.waiting = 0

    def add(self, rows: RawRows) -> None:
        self._raw.append(rows)
        self.waiting += rows.size
        self._begin(int(rows.lsns[0]))

    def truncate(self, lsn: int, number: int, time: int, transaction: int) -> None:
        self.flush()
        self._begin(lsn)
        self._truncates = True
        self._write(self._decoder.truncated(lsn, number, time, transaction))

    def flush(self) -> None:
        if not self._raw:
            return
        raw, self._raw, self.waiting = joined(self._raw), [], 0
        batch, rejects = self._decoder.decoded(raw)
        if batch.num_rows:
            self._write(batch)
        if rejects:
            self._set_aside(rejects)

    def segment(self) -> Segment:
        decoder = self._decoder
        return Segment(
            decoder.stream,
            decoder.layout,
            decoder.kinds,
            str(self._path),
            self._first or 0,
            tuple(self._parts),
            self._rejects,
            self._truncates,
        )

    def _begin(self, lsn: int) -> None:
        if self._first is None:
            self._first = lsn
            schema = segment_schema(self._decoder.layout, self._decoder.kinds).serialize()
            self._path.write_bytes(schema)
            self._size = schema.size

    def _write(self, batch: pa.RecordBatch) -> None:
        held = batch.serialize()  # not compressed: LZ4 takes three times as long to write, and a map reads for nothing
        with self._path.open("ab") as file:
            file.write(held)
        self._parts.append(Part(self._size, batch.num_rows))
        self._size += held.size

    def _set_aside(self, rejects: Sequence[Reject]) -> None:
        self._rejects += len(rejects)
        lines = "".join(json.dumps(reject.to_json()) + "\n" for reject in rejects)
        with self.segment().rejects_path.open("a", encoding="utf-8") as file:
            file.write(lines)
