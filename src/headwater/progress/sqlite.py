"""Progress in a SQLite file: the embedded default.

For one machine: SQLite's write-ahead log needs a local disk. Query it while pipelines run:
`sqlite3 progress.db "SELECT pipeline, mark_text, updated_at FROM headwater_progress"`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

from headwater.model.errors import HeadwaterError, StoreDamaged, StoreUnreachable
from headwater.progress.migrations import NEWEST, SQLITE, Execute, Row, schema_version, upgrade
from headwater.progress.record_store import RESTORE, Clock, wall_clock
from headwater.progress.sql import COLUMNS, SqlProgress, on_conflict

T = TypeVar("T")

_ROWS_PER_INSERT = 20  # one by one takes half as long again
_MAGIC = b"SQLite format 3\0"
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH}


class SqliteProgress(SqlProgress[sqlite3.Connection]):
    """One file, created under another name and then linked, so an empty file is always damage."""

    def __init__(self, path: Path, clock: Clock = wall_clock, patience_seconds: float = 10.0) -> None:
        super().__init__()
        self._path = path.absolute()
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._inode = 0

    @property
    def address(self) -> str:
        return f"sqlite:///{self._path}"

    @property
    def _locking_read(self) -> str:
        # BEGIN IMMEDIATE has locked the file already.
        return f"SELECT {COLUMNS}, :now FROM headwater_progress WHERE pipeline = :pipeline"  # noqa: S608 - constant

    def _now_parameters(self) -> dict[str, object]:
        return {"now": self._bind_timestamp(self._clock())}

    def _bind_timestamp(self, moment: dt.datetime) -> object:
        return moment.astimezone(dt.UTC).isoformat(timespec="microseconds")

    def _run(self, work: Callable[[Execute], T]) -> T:
        with self._lock, self._translated():
            connection = self._connection()
            return _transaction(connection, "BEGIN IMMEDIATE", work)

    def _query(self, statement: str, values: Mapping[str, object]) -> Sequence[Row]:
        with self._lock, self._translated():
            return self._connection().execute(statement, values).fetchall()

    def _connection(self) -> sqlite3.Connection:
        connection = self._own.get()
        if connection is not None:
            if self._path.exists() and self._path.stat().st_ino == self._inode:
                return connection
            # SQLite would continue on a deleted file, invisible to other processes.
            self.close()
            if not self._path.exists():
                raise StoreUnreachable(
                    f"{self.address}: the file was removed while it was in use", hint="put it back, or start again"
                )
        if not self._path.exists():
            self._create()
        _check_complete(self._path)
        connection = _open(self._path, self._patience_seconds)
        try:
            if _transaction(connection, "BEGIN", lambda execute: schema_version(execute, SQLITE)) < NEWEST:
                _transaction(connection, "BEGIN IMMEDIATE", lambda execute: upgrade(execute, SQLITE))
        except BaseException:
            connection.close()
            raise
        self._inode = self._path.stat().st_ino
        return self._own.keep(connection)

    def _create(self) -> None:
        wal = _wal_path(self._path)
        if wal.exists():
            if self._path.exists():
                return  # another process has just created and used it
            raise StoreDamaged(f"{self.address}: the file is gone, but {wal.name} exists", hint=RESTORE)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.{secrets.token_hex(6)}")
        temporary.touch(exist_ok=False)
        try:
            connection = _open(temporary, self._patience_seconds)
            connection.execute("PRAGMA journal_mode = WAL")
            _transaction(connection, "BEGIN IMMEDIATE", lambda execute: upgrade(execute, SQLITE))
            connection.close()
            # Fails when another process was first; its file is equal to ours.
            with contextlib.suppress(FileExistsError):
                self._path.hardlink_to(temporary)
        finally:
            temporary.unlink(missing_ok=True)
            for suffix in ("-wal", "-shm"):
                temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)

    @property
    def _foreign(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error, OSError)

    def _error(self, error: Exception) -> HeadwaterError:
        if isinstance(error, OSError):
            return StoreUnreachable(
                f"{self.address}: {error.strerror or error}", hint="check that its folder exists and is writable"
            )
        self.close()
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _DAMAGE:
            return StoreDamaged(f"{self.address}: {error}", hint=RESTORE)
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            hint = (
                f"another program has locked it for {self._patience_seconds:.0f} s; end that program or its transaction"
            )
        else:
            hint = "check that the file and its folder exist, are writable, and the disk is not full"
        return StoreUnreachable(f"{self.address}: {error}", hint=hint)


def _open(path: Path, patience_seconds: float) -> sqlite3.Connection:
    # mode=rw: SQLite itself must never create the file.
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=patience_seconds, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _wal_path(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _check_complete(path: Path) -> None:
    """SQLite accepts an empty file as a new database; here it is a damaged one (W3)."""
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(_MAGIC):  # noqa: PLR2004 - the format's
        raise StoreDamaged("the file is not a SQLite database, or was truncated", hint=RESTORE)
    page = int.from_bytes(header[16:18], "big")
    # With a WAL beside it the file may be in the middle of a write that the WAL completes.
    if path.stat().st_size % (65536 if page == 1 else page or 512) and not _wal_path(path).exists():
        raise StoreDamaged("the file ends in the middle of a page: it was truncated", hint=RESTORE)


class _Statements:
    """The statements of one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __call__(self, statement: str, values: Mapping[str, object]) -> Sequence[Row]:
        return self._connection.execute(statement, values).fetchall()

    def each(self, statement: str, values: Sequence[Mapping[str, object]]) -> list[Row]:
        return [row for parameters in values for row in self(statement, parameters)]

    def many(self, table: str, columns: Mapping[str, Sequence[object]], key: Sequence[str]) -> None:
        rows = list(zip(*columns.values(), strict=True))
        full = len(rows) - len(rows) % _ROWS_PER_INSERT
        for chunk, size in ((rows[:full], _ROWS_PER_INSERT), (rows[full:], 1)):
            placeholders = ", ".join([f"({', '.join('?' * len(columns))})"] * size)
            statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES {placeholders} {on_conflict(columns, key)}"  # noqa: S608 - names are constants
            inserts = (chunk[begin : begin + size] for begin in range(0, len(chunk), size))
            self._connection.executemany(statement, (tuple(chain.from_iterable(group)) for group in inserts))


def _transaction(connection: sqlite3.Connection, begin: str, work: Callable[[Execute], T]) -> T:
    connection.execute(begin)
    try:
        result = work(_Statements(connection))
        connection.execute("COMMIT")
        return result
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
