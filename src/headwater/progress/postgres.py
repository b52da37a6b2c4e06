"""Progress in a PostgreSQL database: for several machines. The database's clock decides when a lease ends.

The tables are created in the first schema of the search path (`?options=-csearch_path%3Dops` names another).
Works behind a transaction pooler: nothing relies on the session from one transaction to the next.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headwater.model.errors import HeadwaterError, InputError, StoreDamaged, StoreUnreachable
from headwater.model.secret import Secret, masked
from headwater.progress.migrations import NEWEST, POSTGRES, Execute, Row, schema_version, upgrade
from headwater.progress.record_store import RESTORE
from headwater.progress.sql import COLUMNS, SqlProgress, on_conflict

T = TypeVar("T")

_DEFAULTS = {"connect_timeout": "10", "application_name": "headwater"}
_MIGRATION_LOCK = 7_164_218_350_021  # an arbitrary number, unique among advisory locks
# Read once the row is locked: the clock must not be older than the wait for the lock.
_LOCKING_READ = f"""
WITH locked AS MATERIALIZED (SELECT {COLUMNS} FROM headwater_progress WHERE pipeline = :pipeline FOR UPDATE)
SELECT locked.*, clock_timestamp() FROM locked"""  # noqa: S608 - constant
# A process that is stopped in a transaction must not keep others out for long; what is acknowledged is durable.
_BEGIN = """
SELECT set_config('lock_timeout', :patience, true), set_config('idle_in_transaction_session_timeout', '30s', true),
       CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"""


class PostgresProgress(SqlProgress[psycopg.Connection]):
    """Plain SQL over one connection, which is reopened after a failure."""

    def __init__(self, url: Secret, patience_seconds: float = 10.0) -> None:
        super().__init__()
        self._url = url
        self._patience_seconds = patience_seconds
        self._address = masked(url.reveal())

    @property
    def address(self) -> str:
        return self._address

    @property
    def _locking_read(self) -> str:
        return _LOCKING_READ

    def _now_parameters(self) -> dict[str, object]:
        return {}

    def _bind_timestamp(self, moment: dt.datetime) -> object:
        return moment

    def _run(self, work: Callable[[Execute], T]) -> T:
        with self._lock, self._translated():
            reused = self._own.get() is not None
            attempt = _Attempt(self._connection(), self._patience_seconds)
            try:
                return attempt.run(work)
            except psycopg.OperationalError:
                # The server may have closed an idle connection since the last cycle. Once the commit was sent, its
                # outcome is unknown, so the caller must load again.
                if not reused or attempt.committing or not attempt.connection.broken:
                    raise
                self.close()
                return _Attempt(self._connection(), self._patience_seconds).run(work)

    def _query(self, statement: str, values: Mapping[str, object]) -> Sequence[Row]:
        return self._run(lambda execute: execute(statement, values))

    def _connection(self) -> psycopg.Connection:
        connection = self._own.get()
        if connection is not None and not connection.closed:
            return connection
        connection = self._connect()
        try:
            _Attempt(connection, self._patience_seconds).run(_ensure_schema)
        except BaseException:
            connection.close()
            raise
        return self._own.keep(connection)

    def _connect(self) -> psycopg.Connection:
        url = self._url.reveal()
        try:
            _check_password(url)
            options = {**_DEFAULTS, **{k: str(v) for k, v in conninfo_to_dict(url).items() if v is not None}}
        except psycopg.ProgrammingError:
            raise InputError(
                f"{self.address} is not a PostgreSQL address",
                hint="write postgresql://user:password@host:port/database; in the password, @ is %40 and / is %2F",
            ) from None
        # Prepared statements would tie us to one server session, which a transaction pooler does not keep.
        connection = psycopg.connect(**options, prepare_threshold=None)  # type: ignore[arg-type]
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection

    @property
    def _foreign(self) -> tuple[type[Exception], ...]:
        return (psycopg.Error,)

    def _error(self, error: Exception) -> HeadwaterError:
        message = f"{self.address}: {masked(str(error)).strip() or type(error).__name__}"
        match error:
            case psycopg.errors.InsufficientPrivilege() | psycopg.errors.InvalidSchemaName():
                hint = "let the user create tables: GRANT USAGE, CREATE ON SCHEMA … TO …"
            case psycopg.errors.ReadOnlySqlTransaction():
                hint = "the address leads to a standby or a read-only database; name the primary"
            case psycopg.errors.LockNotAvailable():
                hint = "another session holds a lock on headwater_progress; end its transaction"
            case psycopg.OperationalError() | psycopg.InterfaceError():
                hint = "check that the server runs and that address, user and password are right"
            case _:
                return StoreDamaged(message, hint=RESTORE)
        return StoreUnreachable(message, hint=hint)


class _Attempt:
    """One try at a transaction, which knows whether the commit was sent."""

    def __init__(self, connection: psycopg.Connection, patience_seconds: float) -> None:
        self.connection = connection
        self._patience = f"{patience_seconds * 1000:.0f}ms"
        self.committing = False

    def run(self, work: Callable[[Execute], T]) -> T:
        try:
            self(_BEGIN, {"patience": self._patience})
            result = work(self)
            self.committing = True
            self.connection.commit()
            return result
        except BaseException:
            with contextlib.suppress(psycopg.Error):
                self.connection.rollback()
            raise

    def __call__(self, statement: str, values: Mapping[str, object]) -> Sequence[Row]:
        cursor = self.connection.execute(_psycopg_sql(statement), values, binary=True)
        return cursor.fetchall() if cursor.description else []

    def each(self, statement: str, values: Sequence[Mapping[str, object]]) -> list[Row]:
        """All in one statement: one round trip instead of one per value."""
        if not values:
            return []
        columns = {name: [row[name] for row in values] for name in values[0]}
        names = ", ".join(f'"{name}"' for name in columns)
        requests = f'unnest({_arrays(columns)}) WITH ORDINALITY AS request({names}, "number")'
        lateral = _PARAMETER.sub(r'request."\1"', statement)
        query = f"SELECT request.number, result.* FROM {requests} CROSS JOIN LATERAL ({lateral}) AS result"  # noqa: S608 - names are constants
        rows = self.connection.execute(query.encode(), columns, binary=True).fetchall()
        return [row[1:] for row in sorted(rows, key=itemgetter(0))]  # a plan may join them in any order

    def many(self, table: str, columns: Mapping[str, Sequence[object]], key: Sequence[str]) -> None:
        names = ", ".join(columns)
        rows = f"SELECT * FROM unnest({_arrays(columns)})"  # noqa: S608 - names are constants
        statement = f"INSERT INTO {table} ({names}) {rows} {on_conflict(columns, key)}"
        self.connection.execute(statement.encode(), {name: list(values) for name, values in columns.items()})


def _ensure_schema(execute: Execute) -> None:
    if schema_version(execute, POSTGRES) < NEWEST:
        execute("SELECT pg_advisory_xact_lock(:key)", {"key": _MIGRATION_LOCK})
        upgrade(execute, POSTGRES)


def _check_password(url: str) -> None:
    """A bare @ or / in a password would end it early, and libpq would show the rest in its errors (G11)."""
    authority, _, path = url.partition("?")[0].partition("://")[2].partition("/")
    if authority.count("@") > 1 or "@" in path:
        raise psycopg.ProgrammingError


_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_ARRAY_TYPES = {str: "text[]", int: "bigint[]", bool: "boolean[]", bytes: "bytea[]", type(None): "bigint[]"}


def _example(values: Sequence[object]) -> object:
    return next((value for value in values if value is not None), None)


def _arrays(columns: Mapping[str, Sequence[object]]) -> str:
    return ", ".join(f"%({name})s::{_ARRAY_TYPES[type(_example(values))]}" for name, values in columns.items())


@functools.cache
def _psycopg_sql(statement: str) -> bytes:
    return _PARAMETER.sub(r"%(\1)s", statement).encode()
