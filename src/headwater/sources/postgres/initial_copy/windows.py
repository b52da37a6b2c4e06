"""Windows that copy tables, cut into splits: all of them in one exported snapshot, whose LSN is known."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import psycopg
import pyarrow as pa

from headwater.config.sources.postgres import PostgresSourceSettings
from headwater.model.errors import SnapshotGone
from headwater.model.position.marks import LsnMark
from headwater.model.position.stream_state import TableState
from headwater.model.rows import CHANGE_COLUMNS, POSITION, Changes, Rows
from headwater.model.secret import Secret
from headwater.sources.postgres.catalog import ARRIVAL, EVENT_KEY, ROW, CatalogTable, ColumnTypes, stream_schema
from headwater.sources.postgres.initial_copy.pages import CopiedColumn, cut_pages, split_ranges
from headwater.sources.postgres.initial_copy.reader import CopySession, interrupted
from headwater.sources.postgres.initial_copy.snapshot import DEFAULT, CopySnapshot, Tuning
from headwater.sources.postgres.initial_copy.splits import CopySplit
from headwater.sources.postgres.tables import TablesNow, described, homes

__all__ = ["CopyRequest", "copied_rows", "cut_pages", "why_not_copied"]


@dataclass(frozen=True)
class CopyRequest:
    """Some of a table's pages, at one snapshot. What its layout leaves out (generated columns) is not read."""

    stream: str
    table: CatalogTable  # with the heaps as they were when the copy began: pages count by them
    column_types: tuple[str, ...]  # of the layout's columns
    homes: tuple[tuple[str, str], ...]  # column of the table → column of the stream
    schema: pa.Schema  # of the stream in this window (`change_schema`)
    where: str
    snapshot: str
    ordinal: int  # of the snapshot's LSN (`LsnMark.ordinal`)
    moment: int
    first: int  # a page (`pages.py`); 0: the beginning
    end: int | None  # None: all the rest
    replaces: bool  # what landed of the table before is truncated first
    splits: int  # at most
    declared: tuple[str, ...] = ()  # the server's names of the columns' types, for messages
    tuning: Tuning = DEFAULT


def copied_rows(url: Secret, request: CopyRequest) -> Rows:
    """The rows of the request; nothing is read yet."""
    homes = dict(request.homes)
    columns = _columns(request)
    key = request.table.key if set(request.table.key) <= homes.keys() else ()
    parts = split_ranges(request.table.leaves, request.first, request.end, request.splits) or [()]
    splits = tuple(
        CopySplit(
            stream=request.stream,
            url=url,
            snapshot=request.snapshot,
            ranges=ranges,
            ordinal=request.ordinal,
            moment=request.moment,
            key=key,
            columns=columns,
            schema=request.schema,
            homes=homes,
            where=request.where,
            replaces=request.replaces and number == 0,
            tuning=request.tuning,
        )
        for number, ranges in enumerate(parts)
    )
    beside = (*CHANGE_COLUMNS, ROW)
    columns_of_table = tuple(name for name in request.schema.names if name not in beside)
    changes = Changes(columns_of_table, EVENT_KEY, ARRIVAL, is_copy=True)
    return Rows(
        request.stream, request.schema, tuple(homes[name] for name in key), (POSITION,), splits, changes=changes
    )


def why_not_copied(url: Secret, request: CopyRequest) -> str:
    """Why these pages can no longer be copied in their snapshot; empty: they can. Asked before a window is tried again."""
    try:
        with contextlib.closing(CopySession(url, request.snapshot, request.stream)) as session:
            for ranges in split_ranges(request.table.leaves, request.first, request.end, count=1):
                for heap in ranges:
                    session.check(heap, _columns(request))
    except SnapshotGone as gone:
        return gone.message
    except psycopg.Error as error:
        raise interrupted(request.stream, url, error) from None
    return ""


def _columns(request: CopyRequest) -> tuple[CopiedColumn, ...]:
    declared = request.declared or ("",) * len(request.column_types)
    return tuple(
        CopiedColumn(column.name, column_type, column.type, name)
        for column, column_type, name in zip(request.table.layout.columns, request.column_types, declared, strict=True)
    )


# The snapshot lives as long as a connection of this process. Changes of a table that commit after it come from the WAL;
# while a table is copied in several windows they wait (`TableState.landed`). A copy begins with a truncate: it stands for
# everything that landed of the table before, and for whatever an unfinished copy left behind.


@dataclass(frozen=True)
class _Copied:
    """What is copied in the snapshot: tables as they were when it was taken."""

    snapshot: CopySnapshot
    tables: Mapping[str, CatalogTable]
    column_types: Mapping[str, tuple[str, ...]]


class CopyWindows:
    """Copies the tables of one pipeline."""

    def __init__(self, settings: PostgresSourceSettings, column_types: ColumnTypes, cores: int) -> None:
        self._settings, self._column_types, self._cores = settings, column_types, cores
        self._copied: _Copied | None = None

    def close(self) -> None:
        if self._copied is not None:
            self._copied.snapshot.close()
            self._copied = None

    def _is_open(self, lsn: int) -> bool:
        """Whether rows can still be read in the snapshot of that LSN."""
        copied = self._copied
        return copied is not None and copied.snapshot.lsn == lsn and copied.snapshot.is_alive()

    def wanted(self, mark: LsnMark, now: TablesNow) -> list[str]:
        """The tables that are new, have to be copied again, or whose copy has not ended."""
        return [
            stream
            for stream in now.tables
            if stream not in mark.streams or mark.streams[stream].stale or mark.streams[stream].copied_to is not None
        ]

    def under_way(self, mark: LsnMark) -> bool:
        """Whether some window of a copy has landed, and its snapshot is there for the next."""
        return any(t.copied_to is not None and self._is_open(t.copied) for t in mark.streams.values())

    def following(self, mark: LsnMark, now: TablesNow, streams: Sequence[str]) -> LsnMark:
        """The mark behind the next window, which copies as much of these tables as settings allow."""
        if not self.under_way(mark):
            mark = self._begin(mark, now, streams)
        assert self._copied is not None  # noqa: S101 - it has begun
        tables, budget = dict(mark.streams), self._settings.copy_bytes
        for stream, table in self._copied.tables.items():
            seen = tables[stream]
            if seen.copied_to is None or budget <= 0:
                continue
            upto, cost = cut_pages(table.leaves, seen.copied_to, budget)
            budget -= cost
            # What the WAL brought for other tables meanwhile is still to come for this one.
            landed = seen.copied if upto is None and mark.lsn > seen.copied else None
            tables[stream] = replace(seen, copied_to=upto, landed=landed)
        return replace(mark, turn=mark.turn + 1, streams=tables, labels=())

    def _begin(self, mark: LsnMark, now: TablesNow, streams: Sequence[str]) -> LsnMark:
        """Export a snapshot for all of these tables."""
        self.close()
        snapshot = CopySnapshot(self._settings.url)
        wanted = {stream: now.tables[stream] for stream in streams if stream in now.tables}
        as_text = self._settings.as_text
        column_types = {
            stream: self._column_types.of(table.layout, as_text.get(stream, ())) for stream, table in wanted.items()
        }
        self._copied = _Copied(snapshot, wanted, column_types)
        tables = {stream: seen for stream, seen in mark.streams.items() if stream in now.tables}
        for stream, table in wanted.items():
            seen = described(tables.get(stream), table, column_types[stream], now.identities[stream], snapshot.lsn)
            tables[stream] = replace(seen, copied_to=0)
        return replace(mark, streams=tables)

    def rows(self, start: LsnMark | None, end: LsnMark) -> Sequence[Rows]:
        """Of the pages between the two marks."""
        return [copied_rows(self._settings.url, request) for request in self._requests(start, end)]

    def why_not_again(self, start: LsnMark | None, end: LsnMark) -> str:
        """Why the pages between the two marks cannot be read any more; empty: they can."""
        requests = self._requests(start, end) if self._copied and self._copied.snapshot.is_alive() else []
        if not requests:
            return "the exported snapshot ended with its process; the tables are copied in a new one"
        why = next(filter(None, (why_not_copied(self._settings.url, request) for request in requests)), "")
        if why:
            self.close()
        return why

    def _requests(self, start: LsnMark | None, end: LsnMark) -> list[CopyRequest]:
        copied = self._copied
        assert copied is not None  # noqa: S101 - a copy was planned here
        requested = []
        for stream, seen in sorted(end.streams.items()):
            first = self._first_page(start.streams.get(stream) if start else None, seen)
            if seen.copied == copied.snapshot.lsn and first is not None and first != seen.copied_to:
                requested.append(self._request(stream, seen, first, end.ordinal(seen.copied)))
        return requested

    def _first_page(self, before: TableState | None, seen: TableState) -> int | None:
        """None: all of it was copied before the window."""
        return before.copied_to if before is not None and before.copied == seen.copied else 0

    def _request(self, stream: str, seen: TableState, first: int, ordinal: int) -> CopyRequest:
        copied = self._copied
        assert copied is not None  # noqa: S101 - as above
        table, column_types = copied.tables[stream], copied.column_types[stream]
        return CopyRequest(
            stream=stream,
            table=table,
            column_types=column_types,
            homes=homes(seen.types, table.layout, column_types),
            schema=stream_schema(seen),
            where=self._settings.where.get(stream, ""),
            snapshot=copied.snapshot.name,
            ordinal=ordinal,
            moment=copied.snapshot.moment,
            first=first,
            end=seen.copied_to,
            replaces=first == 0,
            splits=self._settings.splits or self._cores * 2,
        )
