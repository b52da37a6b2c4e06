"""A slot's WAL, read once: typed change rows of the captured tables, decoded some megabytes at a time into files; logical messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headwater.model.errors import RunError
from headwater.model.rows import Reject
from headwater.pg.connection import Connection
from headwater.pg.copy.binary import Numbers
from headwater.sources.postgres.catalog import Commit, Layout
from headwater.sources.postgres.wal import messages as wire
from headwater.sources.postgres.wal.decoder import Decoder, RawRows, concat_rows, copy_rows
from headwater.sources.postgres.wal.messages import read
from headwater.sources.postgres.wal.segment import Segment, StoredBatch, segment_schema
from headwater.sources.postgres.wal.transactions import (
    DEFAULT,
    MessagePositions,
    Peek,
    Transactions,
    Tuning,
    WalMessage,
    read_slot,
)

__all__ = ["Segment", "TableRequest", "WalMessage", "WalRead", "read_wal"]


@dataclass(frozen=True)
class WalRead:
    """The result of a peek. Transactions that were known before count, without their rows and notes."""

    first: Commit | None
    last: Commit | None
    last_known: Commit | None
    first_new: Commit | None
    transactions: int
    messages: int
    segments: tuple[Segment, ...]
    notes: tuple[WalMessage, ...]


def read_wal(
    connection: Connection,
    peek: Peek,
    tables: Mapping[int, TableRequest],
    column_types: TypesOfLayout,
    folder: Path,
    *,
    after: int,
    era: int = 0,
    stop: Callable[[WalMessage], bool],
    tuning: Tuning = DEFAULT,
) -> WalRead:
    """Read until the peek ends, or after the first new transaction with a note at which to `stop`.

    `tables` by their oids: other tables' rows only count. `after` is the end of the last known transaction. Closes the
    connection unless it read everything. Memory does not grow with transactions, only with the largest row.
    """
    transactions = Transactions(after, peek.upto, stop)
    spool = Spool(folder, column_types, era, tuning)
    router = RowRouter(tables, spool)
    try:
        with closing(read_slot(connection, peek, tuning)) as chunks:
            for messages in chunks:
                router.add(transactions.follow(messages))
                spool.settle()
                if transactions.ended:
                    break
    except BaseException:
        connection.close()
        raise
    if transactions.ended:
        connection.close()
    transactions.finish()
    return WalRead(
        transactions.first,
        transactions.last,
        transactions.last_known,
        transactions.first_new,
        transactions.count,
        transactions.messages,
        spool.finish(),
        tuple(transactions.notes),
    )


class RowRouter:
    """Passes every row to the writer of its table's current layout."""

    def __init__(self, tables: Mapping[int, TableRequest], spool: Spool) -> None:
        self._tables, self._spool = tables, spool
        self._layouts: dict[int, Layout] = {}
        self._writers: dict[int, SegmentWriter] = {}

    def add(self, positions: MessagePositions) -> None:
        begin = 0
        for index in np.flatnonzero(
            (positions.letters == wire.RELATION) | (positions.letters == wire.TRUNCATE)
        ).tolist():
            message = positions.message(index)
            if positions.letters[index] == wire.TRUNCATE:
                self._rows(positions, begin, index)
                self._truncate(positions, index, wire.truncated_oids(message))
                begin = index
            elif self._differs(layout := wire.layout(message)):
                self._rows(positions, begin, index)
                self._layouts[layout.oid] = layout
                self._writers.pop(layout.oid, None)
                begin = index
        self._rows(positions, begin, len(positions.letters))

    def _differs(self, layout: Layout) -> bool:
        """True if earlier rows of the table may have another layout."""
        if layout.oid not in self._tables:
            return False
        previous = self._layouts.setdefault(layout.oid, layout)
        return previous != layout

    def _rows(self, positions: MessagePositions, begin: int, until: int) -> None:
        """The rows among these messages, to their writers."""
        letters = positions.letters[begin:until]
        indices = begin + np.flatnonzero((letters == wire.INSERT) | (letters == wire.UPDATE) | (letters == wire.DELETE))
        oids = read(positions.messages.data, positions.messages.starts[indices] + 1, ">u4")
        for oid, rows in _by_number(oids.astype(np.int64), indices):
            request = self._tables.get(oid)
            if request is None:
                continue
            wanted = rows[positions.lsns[rows] >= request.lowest]
            if len(wanted):
                self._writer(oid, request).add(copy_rows(positions, wanted))

    def _truncate(self, positions: MessagePositions, index: int, oids: tuple[int, ...]) -> None:
        numbers = (positions.lsns, positions.numbers, positions.times, positions.transactions)
        for oid in oids:
            request = self._tables.get(oid)
            if request is not None and positions.lsns[index] >= request.lowest:
                self._writer(oid, request).truncate(*(int(array[index]) for array in numbers))

    def _writer(self, oid: int, request: TableRequest) -> SegmentWriter:
        if oid not in self._writers:
            if oid not in self._layouts:
                raise RunError(f"{request.stream}: the WAL holds rows of the table before its columns")
            self._writers[oid] = self._spool.writer(self._layouts[oid], request)
        return self._writers[oid]


def _by_number(numbers: Numbers, items: Numbers) -> list[tuple[int, Numbers]]:
    """Items of each number, in their order."""
    if not len(numbers):
        return []
    if (numbers == numbers[0]).all():
        return [(int(numbers[0]), items)]
    order = np.argsort(numbers, kind="stable")
    edges = np.flatnonzero(np.diff(numbers[order])) + 1
    groups = np.split(items[order], edges)
    return [(int(numbers[order[at]]), group) for at, group in zip([0, *edges.tolist()], groups, strict=True)]


# Tables whose rows alternate would make small batches if each chunk were decoded at once. So rows wait for others of their
# layout; the total that waits is bounded, whatever the number of tables.

TypesOfLayout = Callable[[Layout], Sequence[str]]


@dataclass(frozen=True)
class TableRequest:
    """A table whose changes are wanted: of transactions that committed at `since` or later and end after `after`."""

    stream: str
    since: int
    after: int
    key: tuple[str, ...]

    @property
    def lowest(self) -> int:
        """The first wanted LSN of a commit record. Marks are ends of commits, so records at or after a mark end later."""
        return max(self.since, self.after)


class Spool:
    """The segments of one read of the WAL, in a folder."""

    def __init__(self, folder: Path, column_types: TypesOfLayout, era: int, tuning: Tuning = DEFAULT) -> None:
        self._folder, self._column_types, self._era, self._tuning = folder, column_types, era, tuning
        self._writers: dict[Layout, SegmentWriter] = {}

    def writer(self, layout: Layout, request: TableRequest) -> SegmentWriter:
        """The layout's writer, also when the layout returns."""
        if layout not in self._writers:
            path = self._folder / f"{len(self._writers):05}.arrows"
            decoder = Decoder(request.stream, layout, tuple(self._column_types(layout)), request.key, self._era)
            self._writers[layout] = SegmentWriter(path, decoder)
        return self._writers[layout]

    def settle(self) -> None:
        """Decode layouts with enough rows, or all if too much waits. Called after every chunk."""
        for writer in self._writers.values():
            if writer.pending_bytes >= self._tuning.batch_bytes:
                writer.flush()
        if sum(writer.pending_bytes for writer in self._writers.values()) > self._tuning.pending_bytes:
            for writer in self._writers.values():
                writer.flush()

    def finish(self) -> tuple[Segment, ...]:
        for writer in self._writers.values():
            writer.flush()
        return tuple(writer.segment() for writer in self._writers.values())


class SegmentWriter:
    """Opens its file only to write a batch: a process may hold fewer files open than there are tables."""

    def __init__(self, path: Path, decoder: Decoder) -> None:
        self._path, self._decoder = path, decoder
        self._raw: list[RawRows] = []
        self._batches: list[StoredBatch] = []
        self._first: int | None = None
        self._size = self._rejects = 0
        self._truncates = False
        self.pending_bytes = 0

    def add(self, rows: RawRows) -> None:
        self._raw.append(rows)
        self.pending_bytes += rows.size
        self._begin(int(rows.lsns[0]))

    def truncate(self, lsn: int, number: int, time: int, transaction: int) -> None:
        self.flush()
        self._begin(lsn)
        self._truncates = True
        self._write(self._decoder.truncate(lsn, number, time, transaction))

    def flush(self) -> None:
        if not self._raw:
            return
        raw, self._raw, self.pending_bytes = concat_rows(self._raw), [], 0
        batch, rejects = self._decoder.decode(raw)
        if batch.num_rows:
            self._write(batch)
        if rejects:
            self._write_rejects(rejects)

    def segment(self) -> Segment:
        decoder = self._decoder
        return Segment(
            decoder.stream,
            decoder.layout,
            decoder.column_types,
            str(self._path),
            self._first or 0,
            tuple(self._batches),
            self._rejects,
            self._truncates,
        )

    def _begin(self, lsn: int) -> None:
        if self._first is None:
            self._first = lsn
            schema = segment_schema(self._decoder.layout, self._decoder.column_types).serialize()
            self._path.write_bytes(schema)
            self._size = schema.size

    def _write(self, batch: pa.RecordBatch) -> None:
        # Uncompressed: LZ4 takes three times as long to write, and a memory map reads for free.
        message = batch.serialize()
        with self._path.open("ab") as file:
            file.write(message)
        self._batches.append(StoredBatch(self._size, batch.num_rows))
        self._size += message.size

    def _write_rejects(self, rejects: Sequence[Reject]) -> None:
        self._rejects += len(rejects)
        lines = "".join(json.dumps(reject.to_json()) + "\n" for reject in rejects)
        with self.segment().rejects_path.open("a", encoding="utf-8") as file:
            file.write(lines)
