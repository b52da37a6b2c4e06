"""The signal table: made once in each database, and known by its shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from headwater.model.errors import InputError
from headwater.services.signals.message import Signal
from headwater.sources.postgres.readiness import sql_text
from headwater.sources.postgres.readiness.address import Connection
from headwater.sources.sql.names import split_name

DEFAULT_TABLE = "public.debezium_signal"

# Debezium writes watermarks of its own: a UUID with `-close` as id, `snapshot-window-close` as type, two times as data.
_LEAST = {"id": 42, "type": 32, "data": 256}
_COLUMNS = """
SELECT a.attname, t.typname, CASE WHEN a.atttypmod >= 4 THEN a.atttypmod - 4 END,
    c.relkind = 'r' AND c.relpersistence = 'p'
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped JOIN pg_type t ON t.oid = a.atttypid
WHERE n.nspname = %s AND c.relname = %s ORDER BY a.attnum"""
_PUBLICATIONS = "SELECT pubname FROM pg_publication_tables WHERE schemaname = %s AND tablename = %s ORDER BY 1"
_GRANTED = """
SELECT has_schema_privilege(r.oid, n.oid, 'USAGE'), has_table_privilege(r.oid, c.oid, 'SELECT')
    AND has_table_privilege(r.oid, c.oid, 'INSERT')
FROM pg_roles r, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE r.rolname = %s AND n.nspname = %s AND c.relname = %s"""


@dataclass(frozen=True)
class SignalTable:
    """Its name, in one database."""

    schema: str
    name: str

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def sql(self) -> str:
        return f"{sql_text.name(self.schema)}.{sql_text.name(self.name)}"


def signal_table(written: str) -> SignalTable:
    parts = split_name(written)
    return SignalTable(parts[0] if len(parts) > 1 else "public", parts[-1])


def is_there(connection: Connection, table: SignalTable) -> bool:
    """Whether it is there. Raises InputError where something else has its name."""
    columns = connection.execute(_COLUMNS, [table.schema, table.name]).fetchall()
    if columns:
        _refuse_other_shape(table, columns)
    return bool(columns)


def refuse_missing(connection: Connection, table: SignalTable) -> None:
    if not is_there(connection, table):
        raise InputError(
            f"{connection.info.dbname}: there is no signal table {table.full_name}",
            hint=f"headwater signal init --database {connection.info.dbname} makes it; --table names another",
        )


def refuse_what_init_needs(
    connection: Connection, table: SignalTable, publication: str | None, role: str | None
) -> None:
    """What `create` could not do in this database, found before any database is changed."""
    database = connection.info.dbname
    is_there(connection, table)
    if not _exists(connection, "SELECT FROM pg_namespace WHERE nspname = %s", table.schema):
        raise InputError(f"{database}: there is no schema {table.schema}", hint="choose another by --table")
    if publication and not _exists(connection, "SELECT FROM pg_publication WHERE pubname = %s", publication):
        raise InputError(
            f"{database}: there is no publication {publication}",
            hint=f"headwater postgres prepare --publication {publication} --table … makes it",
        )
    if role and not _exists(connection, "SELECT FROM pg_roles WHERE rolname = %s", role):
        raise InputError(
            f"there is no role {role}", hint=f"headwater postgres prepare --role {role} --table … makes it"
        )


def create(connection: Connection, table: SignalTable, publication: str | None, role: str | None) -> Sequence[str]:
    """Make what is not there yet; the statements that were run, none when all of it was there."""
    done = []
    with connection.transaction():
        # Two at once would both find nothing, and one of them would fail.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('headwater signal init'))")
        if not is_there(connection, table):
            done.append(_run(connection, _create_table(table)))
        if publication is not None and publication not in publications_of(connection, table):
            add = f"ALTER PUBLICATION {sql_text.name(publication)} ADD TABLE {table.sql}"
            done.append(_run(connection, add))
        if role is not None:
            ((usage, writes),) = connection.execute(_GRANTED, [role, table.schema, table.name]).fetchall()
            if not usage:
                done.append(_run(connection, sql_text.grant_usage(table.schema, role)))
            if not writes:
                done.append(_run(connection, f"GRANT SELECT, INSERT ON TABLE {table.sql} TO {sql_text.name(role)}"))
    return done


def publications_of(connection: Connection, table: SignalTable) -> Sequence[str]:
    """The publications that send the table; signals reach only connectors on one of them."""
    return [name for (name,) in connection.execute(_PUBLICATIONS, [table.schema, table.name]).fetchall()]


def published_names(connection: Connection) -> Sequence[tuple[str, str]]:
    """Schema and name of every table that some publication sends: what connectors may capture."""
    rows = connection.execute("SELECT DISTINCT schemaname, tablename FROM pg_publication_tables ORDER BY 1, 2")
    return [(schema, name) for schema, name in rows.fetchall()]


def write(connection: Connection, table: SignalTable, signal: Signal) -> None:
    """Returns when the signal is committed; a connector sees it some moments later."""
    # A % in a name would pass for a place of a value.
    insert = f"INSERT INTO {table.sql.replace('%', '%%')} VALUES (%s, %s, %s)"  # noqa: S608 - a quoted name
    try:
        connection.execute(insert.encode(), [signal.id, signal.type, signal.data])
    except psycopg.errors.StringDataRightTruncation:
        raise InputError(
            f"{table.full_name}: the signal has {len(signal.data):,} characters, more than its column data takes",
            hint=f"name fewer tables at once, or ALTER TABLE {table.sql} ALTER COLUMN data TYPE varchar",
        ) from None


def _create_table(table: SignalTable) -> str:
    # No limit on data: a signal for many tables is long.
    return f"CREATE TABLE {table.sql} (id varchar(64) PRIMARY KEY, type varchar(64) NOT NULL, data varchar)"


def _refuse_other_shape(table: SignalTable, columns: Sequence[tuple[Any, ...]]) -> None:
    names = [name for name, *_ in columns]
    fits = (
        names == list(_LEAST)
        and all(kind in {"varchar", "text"} for _, kind, _, _ in columns)
        and all(longest is None or longest >= _LEAST[name] for name, _, longest, _ in columns)
        and all(plain for *_, plain in columns)
    )
    if not fits:
        shown = ", ".join(f"{name} {kind}{f'({longest})' if longest else ''}" for name, kind, longest, _ in columns)
        raise InputError(
            f"{table.full_name} is there and is no signal table: it has the columns {shown}",
            hint=f"a plain table (id varchar({_LEAST['id']}), type varchar({_LEAST['type']}), data varchar) is needed, or "
            "wider; choose another name by --table",
        )


def _exists(connection: Connection, query: str, name: str) -> bool:
    return connection.execute(query.encode(), [name]).fetchone() is not None


def _run(connection: Connection, statement: str) -> str:
    connection.execute(statement.encode())
    return statement
