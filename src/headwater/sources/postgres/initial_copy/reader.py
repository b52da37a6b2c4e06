"""The rows of heaps in ctid order, in an exported snapshot. After a broken connection the read continues after the last row."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import psycopg

from headwater.model.errors import HeadwaterError, RunError, SnapshotGone
from headwater.model.secret import Secret, masked
from headwater.pg.connection import SESSION, Connection, is_transient, server_message, supported_session_sql, translate
from headwater.pg.copy.reader import SnapshotReader, UnusableSnapshot
from headwater.pg.copy.stream import Chunk, CopyRefused
from headwater.pg.types import column_type
from headwater.sources.postgres.initial_copy.pages import (
    CopiedColumn,
    Ctid,
    HeapRange,
    Numbers,
    copy_query,
    ctid_of,
    ctids_of,
    describe_query,
    heap_name,
    is_ascending,
)
from headwater.sources.postgres.initial_copy.snapshot import DEFAULT, Tuning

# A copy may take hours. A retry continues after the last row, so rows must come in the order of ctid: no scan that
# begins in the middle or runs in parallel, no index. With row security off, hidden rows are an error.
_SETTINGS = {
    **SESSION, "statement_timeout": "0", "transaction_timeout": "0", "row_security": "off",
    "synchronize_seqscans": "off", "max_parallel_workers_per_gather": "0", "enable_seqscan": "off",
    "enable_indexscan": "off", "enable_indexonlyscan": "off", "enable_bitmapscan": "off", "jit": "off",
}  # fmt: skip


def snapshot_gone(stream: str, snapshot: str, why: str) -> SnapshotGone:
    return SnapshotGone(
        f"{stream}: the copy's snapshot {snapshot} can no longer be used: {why}",
        hint="the next cycle copies the table again, in a new snapshot",
    )


class CopySession:
    """One transaction in the snapshot. After an error, close it and open another."""

    def __init__(self, url: Secret, snapshot: str, stream: str) -> None:
        self._stream, self._snapshot = stream, snapshot
        try:
            self._reader = SnapshotReader(url, snapshot, supported_session_sql(_SETTINGS))
        except UnusableSnapshot as error:
            if is_transient(error.reason):
                raise error.reason from None
            raise snapshot_gone(stream, snapshot, server_message(error)) from None

    def close(self) -> None:
        self._reader.close()

    def check(self, heap: HeapRange, columns: tuple[CopiedColumn, ...]) -> None:
        """Raises SnapshotGone if the heap is not the one of the snapshot."""
        changed = what_changed(self._reader.connection, heap, columns)
        if changed:
            raise snapshot_gone(self._stream, self._snapshot, f"{changed} since it was taken")

    def copy(
        self, heap: HeapRange, columns: tuple[CopiedColumn, ...], where: str, after: Ctid | None
    ) -> Iterator[Chunk]:
        """The rows of the range after a ctid, in order; the next chunk overwrites a chunk."""
        return self._reader.chunks(copy_query(columns, heap, where, after), len(columns) + 1)


def interrupted(stream: str, url: Secret, error: Exception) -> HeadwaterError:
    """The error for a copy that cannot continue."""
    return translate(error, f"{stream}: the copy from {masked(url.reveal())} broke off", "copy")


_HEAP = """
SELECT c.relfilenode::bigint, coalesce(pg_relation_filenode(c.oid), 0)::bigint FROM pg_class c
WHERE c.oid = %s::bigint::oid"""
_COLUMNS = """
SELECT attname, attnum::int FROM pg_attribute WHERE attrelid = %s::bigint::oid AND attnum > 0 AND NOT attisdropped"""


def what_changed(connection: Connection, heap: HeapRange, columns: Sequence[CopiedColumn]) -> str:
    """A sentence; empty: nothing. Locks the table until the transaction ends, so that nothing changes later."""
    try:
        result = connection.execute(describe_query(columns, heap)).pgresult
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedColumn):
        return f"{heap.schema}.{heap.name} or a column of it was dropped or renamed"
    storage = connection.execute(_HEAP, [heap.oid]).fetchone()
    if result is None or storage is None or result.ftable(0) != heap.oid:
        return f"{heap.schema}.{heap.name} is another table"
    if storage[0] != storage[1]:
        return f"{heap.schema}.{heap.name} was rewritten or truncated"
    numbers: Mapping[str, int] = dict(connection.execute(_COLUMNS, [heap.oid]).fetchall())
    for number, column in enumerate(columns, 1):
        if numbers.get(column.name) != result.ftablecol(number):
            return f"{heap.schema}.{heap.name}: column {column.name} is another one"
        type_ = column_type(result.ftype(number), result.fmod(number)) or "string"
        if column.column_type not in (type_, "string"):
            return f"{heap.schema}.{heap.name}: column {column.name} got another type"
    return ""


@dataclass(frozen=True)
class HeapQuery:
    """The columns and the condition of a read, and its snapshot."""

    stream: str
    url: Secret
    snapshot: str
    columns: tuple[CopiedColumn, ...]
    where: str
    tuning: Tuning = DEFAULT


class HeapReader:
    """One connection at a time. A broken one neither loses nor repeats a row."""

    def __init__(self, query: HeapQuery) -> None:
        self._query = query
        self._session: CopySession | None = None

    def chunks(self, heap: HeapRange) -> Iterator[tuple[Chunk, Numbers]]:
        """Some rows and their ctids. Raises SnapshotGone if the snapshot or its heap is gone."""
        after: Ctid | None = None
        tries = 0
        while True:
            try:
                for chunk in self._open_session(heap).copy(heap, self._query.columns, self._query.where, after):
                    ctids = ctids_of(chunk)
                    if not is_ascending(ctids, after):
                        raise RunError(f"{self._query.stream}: rows of {heap_name(heap)} came out of their order")
                    after, tries = ctid_of(int(ctids[-1])), 0
                    yield chunk, ctids
                return
            except (psycopg.Error, CopyRefused, OSError) as error:
                self.close()
                if tries == len(self._query.tuning.retry_seconds) or not is_transient(error):
                    raise interrupted(self._query.stream, self._query.url, error) from None
            time.sleep(self._query.tuning.retry_seconds[tries])
            tries += 1

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _open_session(self, heap: HeapRange) -> CopySession:
        if self._session is None:
            self._session = CopySession(self._query.url, self._query.snapshot, self._query.stream)
        self._session.check(heap, self._query.columns)
        return self._session
