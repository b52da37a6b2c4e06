"""Signals as Debezium reads them, an id, a type and JSON, and the table that holds them: created once per database."""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from headwater.model.errors import InputError
from headwater.pg import sql_text
from headwater.pg.catalog import Table
from headwater.pg.connection import Connection
from headwater.pg.names import split_name
from headwater.pg.sql_text import table_name

SnapshotKind = Literal["incremental", "blocking"]

EXECUTE, STOP, PAUSE, RESUME = "execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot"

_REGEX_CHARACTERS = re.compile(r"[\\^$.|?*+(){}\[\]]")
_DELIMITERS = re.compile(r"[\s.\"'`\[\]]")  # where Debezium's parser of names stops
_MANGLED = re.compile(r"''|``")  # what it reads as one character, even in quotes
_TIME = "%Y%m%dT%H%M%S"
_ID = re.compile(r"headwater-(\d{8}T\d{6})Z-[0-9a-f]{6}")


@dataclass(frozen=True)
class Signal:
    """One row for the signal table."""

    id: str
    type: str
    data: str


def new_id(now: dt.datetime) -> str:
    """Unique, with the time in it: the signal table has no column for that."""
    return f"headwater-{now.astimezone(dt.UTC).strftime(_TIME)}Z-{uuid.uuid4().hex[:6]}"


def written_at(signal_id: str) -> dt.datetime | None:
    """When Headwater wrote the signal; None for signals of other tools."""
    match = _ID.fullmatch(signal_id)
    return dt.datetime.strptime(match[1], _TIME).replace(tzinfo=dt.UTC) if match else None


def snapshot(
    signal_id: str, tables: Sequence[Table], snapshot_type: SnapshotKind, conditions: Mapping[int, str]
) -> Signal:
    """Requests the current rows of the tables; `conditions` (by oid) filter them."""
    _refuse_same_but_for_case(tables, conditions)
    if snapshot_type == "incremental":
        _refuse_names_that_break_offsets(tables)
    data: dict[str, object] = {"type": snapshot_type, "data-collections": [collection(table) for table in tables]}
    filters = [_filter(table, conditions[table.oid], snapshot_type) for table in tables if table.oid in conditions]
    if filters:
        data["additional-conditions"] = filters
    return Signal(signal_id, EXECUTE, json.dumps(data, ensure_ascii=False))


def _filter(table: Table, condition: str, snapshot_type: SnapshotKind) -> Mapping[str, str]:
    if snapshot_type == "incremental":
        return {"data-collection": collection(table), "filter": condition}
    query = f"SELECT * FROM {table_name(table)} WHERE {condition}"  # noqa: S608 - checked by the server before
    return {"data-collection": _quoted_name(table), "filter": query}


def stop(signal_id: str, collections: Sequence[str]) -> Signal:
    """Ends the incremental snapshot of the tables; without tables, of all."""
    data: dict[str, object] = {"type": "incremental"}
    if collections:
        data["data-collections"] = list(collections)
    return Signal(signal_id, STOP, json.dumps(data, ensure_ascii=False))


def collection(table: Table) -> str:
    """The table in `data-collections`, which Debezium reads as a regular expression over its captured tables."""
    parts = (table.schema, table.name)
    if any(_REGEX_CHARACTERS.search(part) for part in parts):
        return r"\.".join(_REGEX_CHARACTERS.sub(r"\\\g<0>", part) for part in parts)
    return table.full_name


def _quoted_name(table: Table) -> str:
    """The table where Debezium parses a name."""
    parts = (table.schema, table.name)
    if any(_MANGLED.search(part) for part in parts):
        raise InputError(f"{table.full_name!r}: Debezium cannot parse that name in a filter", hint="leave --filter out")
    if not is_unparsable(*parts) and not any(_REGEX_CHARACTERS.search(part) for part in parts):
        return table.full_name
    return ".".join(f'"{part.replace(chr(34), 2 * chr(34))}"' for part in parts)


def is_unparsable(*parts: str) -> bool:
    """Whether Debezium cannot parse a name that it wrote without quotes."""
    return any(_DELIMITERS.search(part) for part in parts)


def _refuse_names_that_break_offsets(tables: Sequence[Table]) -> None:
    # Debezium stores the names in its offsets without quotes, cannot parse them, and its task never starts again.
    unparsable = [table for table in tables if is_unparsable(table.schema, table.name)]
    if unparsable:
        raise InputError(
            f"{', '.join(repr(table.full_name) for table in unparsable)}: an incremental snapshot would break the connector "
            "for good: it cannot parse names with spaces, dots, quotes or brackets in its offsets",
            hint="use --blocking, or rename the table",
        )


def _refuse_same_but_for_case(tables: Sequence[Table], conditions: Mapping[int, str]) -> None:
    # Debezium looks up filters without regard to case, and would use one filter for both tables.
    folded: dict[str, Table] = {}
    for table in tables if conditions else ():
        other = folded.setdefault(table.full_name.casefold(), table)
        if other is not table:
            raise InputError(
                f"{other.full_name} and {table.full_name}: Debezium would mix up their filters",
                hint="send two signals",
            )


# Debezium writes watermarks: a UUID with `-close` as id, `snapshot-window-close` as type, two timestamps as data.
_MIN_LENGTHS = {"id": 42, "type": 32, "data": 256}
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
    """The name of a signal table."""

    schema: str
    name: str

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def sql(self) -> str:
        return f"{sql_text.name(self.schema)}.{sql_text.name(self.name)}"


def signal_table(name: str) -> SignalTable:
    name_parts = split_name(name)
    return SignalTable(name_parts[0] if len(name_parts) > 1 else "public", name_parts[-1])


def signal_table_exists(connection: Connection, table: SignalTable) -> bool:
    """Whether it exists. Raises InputError where another relation has its name."""
    columns = connection.execute(_COLUMNS, [table.schema, table.name]).fetchall()
    if columns:
        _refuse_other_shape(table, columns)
    return bool(columns)


def refuse_missing(connection: Connection, table: SignalTable) -> None:
    if not signal_table_exists(connection, table):
        raise InputError(
            f"{connection.info.dbname}: no signal table {table.full_name}",
            hint=f"headwater signal init --database {connection.info.dbname} creates it; --table names another",
        )


def check_init(connection: Connection, table: SignalTable, publication: str | None, role: str | None) -> None:
    """Raise what would stop `create` in this database, before any database is changed."""
    database = connection.info.dbname
    signal_table_exists(connection, table)
    if not _exists(connection, "SELECT FROM pg_namespace WHERE nspname = %s", table.schema):
        raise InputError(f"{database}: no schema {table.schema}", hint="choose another with --table")
    if publication and not _exists(connection, "SELECT FROM pg_publication WHERE pubname = %s", publication):
        raise InputError(
            f"{database}: no publication {publication}",
            hint=f"headwater postgres prepare --publication {publication} --table … creates it",
        )
    if role and not _exists(connection, "SELECT FROM pg_roles WHERE rolname = %s", role):
        raise InputError(f"no role {role}", hint=f"headwater postgres prepare --role {role} --table … creates it")


def create(connection: Connection, table: SignalTable, publication: str | None, role: str | None) -> Sequence[str]:
    """Create what is absent. Returns the statements that ran; none if everything existed."""
    statements = []
    with connection.transaction():
        # Of two processes that both find nothing, one would fail.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('headwater signal init'))")
        if not signal_table_exists(connection, table):
            statements.append(_run(connection, _create_table(table)))
        if publication is not None and publication not in publications_of(connection, table):
            add = f"ALTER PUBLICATION {sql_text.name(publication)} ADD TABLE {table.sql}"
            statements.append(_run(connection, add))
        if role is not None:
            ((usage, writes),) = connection.execute(_GRANTED, [role, table.schema, table.name]).fetchall()
            if not usage:
                statements.append(_run(connection, sql_text.grant_usage(table.schema, role)))
            if not writes:
                statements.append(
                    _run(connection, f"GRANT SELECT, INSERT ON TABLE {table.sql} TO {sql_text.name(role)}")
                )
    return statements


def publications_of(connection: Connection, table: SignalTable) -> Sequence[str]:
    """The publications of the table; signals reach only connectors on one of them."""
    return [name for (name,) in connection.execute(_PUBLICATIONS, [table.schema, table.name]).fetchall()]


def published_names(connection: Connection) -> Sequence[tuple[str, str]]:
    """Schema and name of every published table: what connectors may capture."""
    rows = connection.execute("SELECT DISTINCT schemaname, tablename FROM pg_publication_tables ORDER BY 1, 2")
    return [(schema, name) for schema, name in rows.fetchall()]


def write(connection: Connection, table: SignalTable, signal: Signal) -> None:
    """Returns when the signal is committed; a connector sees it shortly after."""
    # A % in a name would be read as a placeholder.
    insert = f"INSERT INTO {table.sql.replace('%', '%%')} VALUES (%s, %s, %s)"  # noqa: S608 - a quoted name
    try:
        connection.execute(insert.encode(), [signal.id, signal.type, signal.data])
    except psycopg.errors.StringDataRightTruncation:
        raise InputError(
            f"{table.full_name}: the signal has {len(signal.data):,} characters, more than its column data holds",
            hint=f"name fewer tables at once, or ALTER TABLE {table.sql} ALTER COLUMN data TYPE varchar",
        ) from None


def _create_table(table: SignalTable) -> str:
    # No limit on data: a signal for many tables is long.
    return f"CREATE TABLE {table.sql} (id varchar(64) PRIMARY KEY, type varchar(64) NOT NULL, data varchar)"


def _refuse_other_shape(table: SignalTable, columns: Sequence[tuple[Any, ...]]) -> None:
    names = [name for name, *_ in columns]
    fits = (
        names == list(_MIN_LENGTHS)
        and all(data_type in {"varchar", "text"} for _, data_type, _, _ in columns)
        and all(length is None or length >= _MIN_LENGTHS[name] for name, _, length, _ in columns)
        and all(plain for *_, plain in columns)
    )
    if not fits:
        column_texts = ", ".join(
            f"{name} {data_type}{f'({length})' if length else ''}" for name, data_type, length, _ in columns
        )
        raise InputError(
            f"{table.full_name} exists and is not a signal table: its columns are {column_texts}",
            hint=f"a signal table has (id varchar({_MIN_LENGTHS['id']}), type varchar({_MIN_LENGTHS['type']}), data varchar) or "
            "wider columns; choose another name with --table",
        )


def _exists(connection: Connection, query: str, name: str) -> bool:
    return connection.execute(query.encode(), [name]).fetchone() is not None


def _run(connection: Connection, statement: str) -> str:
    connection.execute(statement.encode())
    return statement
