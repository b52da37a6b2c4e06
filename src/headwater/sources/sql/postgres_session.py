"""One connection to PostgreSQL for planning: fixed session settings, one consistent view, translated errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from headwater.model.errors import HeadwaterError, InputError, RunError, SourceUnreachable, UnknownName
from headwater.model.secret import Secret, masked

# Every session, here and on executors: texts of values must not depend on a server's or a role's defaults.
SESSION = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "standard_conforming_strings": "on",
    "idle_in_transaction_session_timeout": "0",
}
BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SNAPSHOT_NAME = re.compile(r"[0-9A-Fa-f-]+")


def set_session() -> str:
    """The statement that fixes a session's settings, in one round trip."""
    return "SELECT " + ", ".join(f"set_config('{name}', '{value}', false)" for name, value in SESSION.items())


class PostgresSession:
    """Connects when first needed and again after a failure. Between `begin_view` and `end_view` all reads agree."""

    def __init__(self, url: Secret) -> None:
        self._url = url
        self.address = masked(url.reveal())
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._snapshot = ""
        self.connections = 0  # grows with every new connection: what was learnt on an older one may not hold

    def ping(self) -> None:
        """Make sure of a working connection: one that a restart of the server cut is replaced."""
        if self._connection is not None:
            try:
                self._connection.execute("SELECT 1")
            except psycopg.Error:
                self.close()
        self._connected()

    def fetch(self, sql: str, values: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        with translated(self.address):
            try:
                return self._connected().execute(sql, values).fetchall()
            except psycopg.OperationalError:
                self.close()
                raise

    def run(self, sql: str) -> None:
        """A statement that gives no rows."""
        with translated(self.address):
            try:
                self._connected().execute(sql)
            except psycopg.OperationalError:
                self.close()
                raise

    def describe(self, sql: str) -> list[tuple[str, int, int]]:
        """Name, type number and type modifier of each column of a result."""
        with translated(self.address):
            result = self._connected().execute(sql).pgresult
            if result is None:
                raise RunError(f"{self.address}: no description of {sql}")
            found = []
            for number in range(result.nfields):
                name = result.fname(number) or b""
                found.append((name.decode(), result.ftype(number), result.fmod(number)))
            return found

    @property
    def connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        """For those who ask many things at once; errors are theirs to translate."""
        return self._connected()

    @property
    def server_version(self) -> int:
        """As PostgreSQL counts: 180001 is 18.1."""
        return self._connected().info.server_version

    def begin_view(self) -> None:
        """One snapshot for everything up to `end_view`."""
        self.end_view()
        with translated(self.address):
            # The settings again: a pooler in between may give this transaction another server session.
            self._connected().execute(f"{BEGIN}; {set_session()}")

    def export(self) -> str:
        """The name under which executors can read in the same snapshot, as long as the view lasts."""
        if not self._snapshot:
            ((name,),) = self.fetch("SELECT pg_export_snapshot()")
            if not _SNAPSHOT_NAME.fullmatch(name):
                raise RunError(f"{self.address}: unexpected snapshot name {name!r}")
            self._snapshot = name
        return self._snapshot

    def end_view(self) -> None:
        self._snapshot = ""
        connection = self._connection
        if connection is None:
            return
        if connection.broken or connection.closed:
            self.close()
        elif connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            try:
                connection.execute("ROLLBACK")
            except psycopg.Error:
                self.close()  # the next use connects anew

    def close(self) -> None:
        self._snapshot = ""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            with translated(self.address):
                connection = psycopg.connect(
                    self._url.reveal(),
                    autocommit=True,
                    prepare_threshold=None,  # a pooler in between may give each transaction another server session
                    application_name="headwater",
                    client_encoding="UTF8",
                )
                connection.execute(set_session())
                self._connection = connection
                self.connections += 1
        return self._connection


@contextmanager
def translated(address: str) -> Iterator[None]:
    """Psycopg's errors as ours, once, at the border."""
    try:
        yield
    except psycopg.Error as error:
        raise _ours(address, error) from None


def _ours(address: str, error: psycopg.Error) -> HeadwaterError:
    text = masked(" ".join(str(error).split()))
    state = error.sqlstate or ""
    if state in {"42P01", "42703", "3F000"}:
        return UnknownName(
            f"{address}: {text}", hint="correct the name in table, tables, query, cursor, columns or where"
        )
    if state == "42501":
        return SourceUnreachable(f"{address}: {text}", hint="let the role read it: GRANT SELECT ON … TO …")
    if state.startswith("42"):
        return InputError(f"{address}: the database refused the SQL: {text}", hint="correct where or query")
    if state.startswith("22"):
        return RunError(f"{address}: {text}", hint="a value made the SQL fail; correct where or query")
    return SourceUnreachable(f"{address}: {text}", hint="check that the server runs and that url is right")
