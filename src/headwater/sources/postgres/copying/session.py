"""A connection that reads in an exported snapshot, in the order of places, and how its COPY arrives."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import numpy as np
import psycopg

from headwater.model.errors import SnapshotGone, SourceUnreachable
from headwater.model.secret import Secret, masked
from headwater.sources.postgres.copying.heap_check import Connection, what_changed
from headwater.sources.postgres.copying.pages import HeapRange
from headwater.sources.postgres.copying.statement import CopiedColumn, Item, copy_query
from headwater.sources.sql.copy_binary import PADDING
from headwater.sources.sql.copy_stream import Chunk, CopyRefused, can_copy, copy_rows
from headwater.sources.sql.postgres_session import BEGIN, SESSION

# A copy may take hours. It goes on behind the last row that it got, so rows must come by their places: no scan that
# begins in the middle or runs in parallel, no index. Row security would leave rows out without a word: off, it is an error.
_SETTINGS = {
    **SESSION, "statement_timeout": "0", "transaction_timeout": "0", "row_security": "off",
    "synchronize_seqscans": "off", "max_parallel_workers_per_gather": "0", "enable_seqscan": "off",
    "enable_indexscan": "off", "enable_indexonlyscan": "off", "enable_bitmapscan": "off", "jit": "off",
}  # fmt: skip
_SET = (
    "SELECT set_config(name, given.value, false) FROM pg_settings JOIN (VALUES {}) AS given (name, value) USING (name)"
)
_CHUNK = 2 << 20
_HEADER = len(b"PGCOPY\n\xff\r\n\x00") + 4  # and then the length of an extension
_FIELDS = 2  # bytes of a row's number of fields
_STATE = re.compile(r"\((\w{5})\)$")
# Connection, operator's intervention, idle in transaction, resources, a standby's conflict: another try may go well.
_PASSING = ("08", "57", "25P03", "53", "40")


def gone(stream: str, snapshot: str, why: str) -> SnapshotGone:
    return SnapshotGone(
        f"{stream}: snapshot {snapshot}, in which it is copied, is of no use any more: {why}",
        hint="the table is copied anew, in another snapshot",
    )


class CopySession:
    """One transaction in the snapshot. After an error it is of no use: open another."""

    def __init__(self, url: Secret, snapshot: str, stream: str) -> None:
        self._stream, self._snapshot = stream, snapshot
        self._connection: Connection = psycopg.connect(
            url.reveal(), autocommit=True, prepare_threshold=None, application_name="headwater", client_encoding="UTF8"
        )
        try:
            self._begin()
            self._plain = can_copy(self._connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def check(self, heap: HeapRange, columns: tuple[CopiedColumn, ...]) -> None:
        """Raises SnapshotGone where the heap is not what the snapshot saw."""
        changed = what_changed(self._connection, heap, columns)
        if changed:
            raise gone(self._stream, self._snapshot, f"{changed} since it was taken")

    def copy(
        self, heap: HeapRange, columns: tuple[CopiedColumn, ...], where: str, behind: Item | None
    ) -> Iterator[Chunk]:
        """The rows of the range behind a place, in order; a chunk is overwritten by the next."""
        query = copy_query(columns, heap, where, behind)
        if not self._plain:
            yield from _through_libpq(self._connection, query)
            return
        yield from copy_rows(self._connection, query, len(columns) + 1)
        os.set_blocking(self._connection.pgconn.socket, False)  # as libpq left it

    def _begin(self) -> None:
        self._connection.execute(BEGIN)
        try:
            self._connection.execute(f"SET TRANSACTION SNAPSHOT '{self._snapshot}'")
        except psycopg.Error as error:
            if passing(error):
                raise
            raise gone(self._stream, self._snapshot, " ".join(str(error).split())) from None
        values = ", ".join(f"('{name}', '{value}')" for name, value in _SETTINGS.items())
        self._connection.execute(_SET.format(values))


def passing(error: Exception) -> bool:
    """Whether it is the connection that broke, and not the statement that is wrong."""
    if isinstance(error, psycopg.Error):
        return error.sqlstate.startswith(_PASSING) if error.sqlstate else isinstance(error, psycopg.OperationalError)
    if isinstance(error, CopyRefused):
        state = _STATE.search(str(error))
        return state is None or state[1].startswith(_PASSING)
    return isinstance(error, OSError)


def broken(stream: str, url: Secret, error: Exception) -> SourceUnreachable:
    """The error for a copy that cannot go on, in the server's words."""
    hint = "the window is read again by the next cycle; check the server if it happens again"
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        hint = "let the role read the whole table, and each of its partitions: GRANT SELECT ON … TO …; ALTER ROLE … BYPASSRLS"
    words = masked(" ".join(str(error).split()))
    return SourceUnreachable(f"{stream}: the copy from {masked(url.reveal())} broke off: {words}", hint=hint)


def _through_libpq(connection: Connection, query: str) -> Iterator[Chunk]:
    """Row by row, where the socket is encrypted."""
    rows: list[bytes] = []
    size, is_first = 0, True
    with connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT binary)".encode()) as copy:
        for found in copy:
            row = bytes(found)
            if is_first:
                row, is_first = row[_HEADER + 4 + int.from_bytes(row[_HEADER : _HEADER + 4], "big") :], False
            if len(row) <= _FIELDS:  # no fields: the end
                continue
            rows.append(row)
            size += len(row)
            if size >= _CHUNK:
                yield _chunk(rows)
                rows, size = [], 0
    if rows:
        yield _chunk(rows)


def _chunk(rows: list[bytes]) -> Chunk:
    ends = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
    starts = np.concatenate([[0], ends[:-1]]) + _FIELDS
    return Chunk(bytearray(b"".join([*rows, bytes(PADDING)])), starts, ends)
