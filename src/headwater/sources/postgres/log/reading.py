"""A slot's log, read once: typed change rows of the tables that are wanted, in files, and what else was said in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headwater.model.errors import RunError
from headwater.sources.postgres.log import messages as wire
from headwater.sources.postgres.log.layout import Commit, Layout
from headwater.sources.postgres.log.messages import read
from headwater.sources.postgres.log.peeking import Connection, Peek, peeked
from headwater.sources.postgres.log.raw_rows import taken
from headwater.sources.postgres.log.segment import Segment
from headwater.sources.postgres.log.spooling import Kinds, SegmentWriter, Spool, TableOrder
from headwater.sources.postgres.log.transactions import LogMessage, Placed, Transactions
from headwater.sources.sql.copy_binary import Numbers

__all__ = ["LogMessage", "LogRead", "Segment", "TableOrder", "read_log"]


@dataclass(frozen=True)
class LogRead:
    """What a peek brought. Transactions that were known before count, but for their rows and notes."""

    first: Commit | None
    last: Commit | None
    last_known: Commit | None
    first_new: Commit | None
    transactions: int
    messages: int
    segments: tuple[Segment, ...]
    notes: tuple[LogMessage, ...]


def read_log(
    connection: Connection,
    peek: Peek,
    tables: Mapping[int, TableOrder],
    kinds: Kinds,
    folder: Path,
    *,
    after: int,
    era: int = 0,
    stop: Callable[[LogMessage], bool],
) -> LogRead:
    """Read until the peek ends, or behind the first new transaction with a note at which to `stop`.

    `tables` by their oids: other tables' rows are only counted. `after` is the end of the last transaction that is known.
    The connection is closed unless all was read. Memory does not grow with transactions, only with the largest row.
    """
    transactions = Transactions(after, peek.upto, stop)
    spool = Spool(folder, kinds, era)
    sorting = Sorting(tables, spool)
    try:
        with closing(peeked(connection, peek)) as found:
            for messages in found:
                sorting.add(transactions.placed(messages))
                spool.settle()
                if transactions.ended:
                    break
    except BaseException:
        connection.close()
        raise
    if transactions.ended:
        connection.close()
    transactions.finish()
    return LogRead(
        transactions.first,
        transactions.last,
        transactions.last_known,
        transactions.first_new,
        transactions.count,
        transactions.messages,
        spool.finish(),
        tuple(transactions.notes),
    )


class Sorting:
    """Gives every row to the layout of its table that holds right there."""

    def __init__(self, tables: Mapping[int, TableOrder], spool: Spool) -> None:
        self._tables, self._spool = tables, spool
        self._layouts: dict[int, Layout] = {}
        self._writers: dict[int, SegmentWriter] = {}

    def add(self, placed: Placed) -> None:
        begin = 0
        for index in np.flatnonzero((placed.letters == wire.RELATION) | (placed.letters == wire.TRUNCATE)).tolist():
            message = placed.message(index)
            if placed.letters[index] == wire.TRUNCATE:
                self._rows(placed, begin, index)
                self._truncate(placed, index, wire.truncated(message))
                begin = index
            elif self._differs(layout := wire.layout(message)):
                self._rows(placed, begin, index)
                self._layouts[layout.oid] = layout
                self._writers.pop(layout.oid, None)
                begin = index
        self._rows(placed, begin, len(placed.letters))

    def _differs(self, layout: Layout) -> bool:
        """Whether rows of the table may have come before that have another one. The first layout cuts nothing."""
        if layout.oid not in self._tables:
            return False
        known = self._layouts.setdefault(layout.oid, layout)
        return known != layout

    def _rows(self, placed: Placed, begin: int, until: int) -> None:
        """The rows among these messages, to their writers."""
        letters = placed.letters[begin:until]
        found = begin + np.flatnonzero((letters == wire.INSERT) | (letters == wire.UPDATE) | (letters == wire.DELETE))
        oids = read(placed.messages.data, placed.messages.starts[found] + 1, ">u4")
        for oid, rows in _by_number(oids.astype(np.int64), found):
            order = self._tables.get(oid)
            if order is None:
                continue
            wanted = rows[placed.lsns[rows] >= order.lowest]
            if len(wanted):
                self._writer(oid, order).add(taken(placed, wanted))

    def _truncate(self, placed: Placed, index: int, oids: tuple[int, ...]) -> None:
        numbers = (placed.lsns, placed.numbers, placed.times, placed.transactions)
        for oid in oids:
            order = self._tables.get(oid)
            if order is not None and placed.lsns[index] >= order.lowest:
                self._writer(oid, order).truncate(*(int(each[index]) for each in numbers))

    def _writer(self, oid: int, order: TableOrder) -> SegmentWriter:
        if oid not in self._writers:
            if oid not in self._layouts:
                raise RunError(f"{order.stream}: the server's log holds rows of the table before it tells its columns")
            self._writers[oid] = self._spool.writer(self._layouts[oid], order)
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
