"""The publication: which tables, columns, rows and operations the log is decoded for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import parse_one
from sqlglot.errors import ParseError
from sqlglot.expressions import Column

from headwater.config.postgres_source import PostgresSource
from headwater.model.errors import InputError
from headwater.sources.postgres.catalog import CatalogTable
from headwater.sources.postgres.readiness.sql_text import name
from headwater.sources.sql.postgres_session import PostgresSession

_OPERATIONS = "insert, update, delete, truncate"
_WITH_GENERATED = 180_000
# Columns that older servers do not have are asked for through JSON.
_PUBLICATION = """
SELECT p.oid::bigint, p.puballtables, p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate, p.pubviaroot,
    coalesce(to_jsonb(p) ->> 'pubgencols', 'n') <> 'n' FROM pg_publication p WHERE p.pubname = %s"""
_TABLES = """
SELECT r.prrelid::bigint, r.oid::bigint,
    ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = r.prrelid
        AND to_jsonb(r) -> 'prattrs' @> to_jsonb(a.attnum) ORDER BY a.attnum)
FROM pg_publication_rel r WHERE r.prpubid = %s::bigint::oid"""
_SCHEMAS = """
SELECT c.oid::bigint FROM pg_publication_tables t JOIN pg_namespace n ON n.nspname = t.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename WHERE t.pubname = %s"""


@dataclass(frozen=True)
class PublishedTable:
    """A table's place in the publication."""

    id: str  # another one after the table was removed and added again; of tables that no list names: `*`
    columns: tuple[str, ...] = ()  # empty: all


@dataclass(frozen=True)
class Published:
    """A publication as it is now."""

    exists: bool
    all_tables: bool = False
    all_operations: bool = True
    via_root: bool = True
    generated: bool = False  # sends stored generated columns
    tables: Mapping[int, PublishedTable] = field(default_factory=dict)

    def sent(self, table: CatalogTable) -> CatalogTable:
        """The table with the columns that the log brings."""
        listed = self.tables[table.layout.oid].columns if table.layout.oid in self.tables else ()
        if listed:
            return table.only(listed)
        hidden = {column for column, how in table.generated.items() if how != "s" or not self.generated}
        return table.only([column.name for column in table.layout.columns if column.name not in hidden])


def published(session: PostgresSession, publication: str) -> Published:
    """What the server says of it."""
    found = session.fetch(_PUBLICATION, [publication])
    if not found:
        return Published(exists=False)
    oid, all_tables, operations, via_root, generated = found[0]
    tables = {relation: PublishedTable("*") for (relation,) in session.fetch(_SCHEMAS, [publication])}
    for relation, row, columns in session.fetch(_TABLES, [oid]):
        tables[relation] = PublishedTable(str(row), tuple(columns))
    return Published(True, all_tables, operations, via_root, generated, tables)  # noqa: FBT003 - it exists


def wish_of(settings: PostgresSource, stream: str) -> str:
    """What settings ask of a table's place in the publication, as a short text that changes with it; empty: nothing."""
    wished = [settings.columns.get(stream), settings.where.get(stream)]
    if wished == [None, None]:
        return ""
    return hashlib.blake2b(json.dumps(wished).encode(), digest_size=6).hexdigest()


def identity_of(settings: PostgresSource, stream: str, table: PublishedTable | None) -> str:
    """What a mark keeps of a table's place: when it is another one, changes may have passed unseen."""
    return f"{table.id if table else ''}/{wish_of(settings, stream)}"


def statements(
    settings: PostgresSource, tables: Sequence[CatalogTable], there: Published, known: Mapping[str, str], version: int
) -> list[str]:
    """The SQL after which the publication is as settings say; `known`: stream → identity by the mark. Pure."""
    publication = name(settings.publication_name)
    _refuse_what_it_cannot(settings, tables, there)
    if not there.exists:
        generated = ", publish_generated_columns = stored" if version >= _WITH_GENERATED else ""
        every = ", ".join(_entry(settings, table) for table in tables)
        return [
            f"CREATE PUBLICATION {publication} FOR TABLE {every} WITH (publish_via_partition_root = true{generated})"
        ]
    return [f"ALTER PUBLICATION {publication} {change}" for change in _changes(settings, tables, there, known)]


def _changes(
    settings: PostgresSource, tables: Sequence[CatalogTable], there: Published, known: Mapping[str, str]
) -> Iterator[str]:
    if not there.via_root and any(table.partitioned for table in tables):
        yield "SET (publish_via_partition_root = true)"
    if not there.all_operations:
        yield f"SET (publish = '{_OPERATIONS}')"
    if there.all_tables:
        return
    for table in tables:
        oid = table.layout.oid
        before = known.get(table.stream, "").partition("/")[2]
        if oid in there.tables and table.stream in known and before != wish_of(settings, table.stream):
            yield f"DROP TABLE {_name(table)}"
            yield f"ADD TABLE {_entry(settings, table)}"
        elif oid not in there.tables:
            yield f"ADD TABLE {_entry(settings, table)}"


def _entry(settings: PostgresSource, table: CatalogTable) -> str:
    columns, where = settings.columns.get(table.stream), settings.where.get(table.stream)
    listed = f" ({', '.join(name(column) for column in columns)})" if columns else ""
    return f"{_name(table)}{listed}" + (f" WHERE ({where})" if where else "")


def _name(table: CatalogTable) -> str:
    return f"{name(table.layout.schema)}.{name(table.layout.name)}"


def _refuse_what_it_cannot(settings: PostgresSource, tables: Sequence[CatalogTable], there: Published) -> None:
    streams = {table.stream for table in tables}
    for setting, wishes in (("columns", settings.columns), ("where", settings.where)):
        unknown = sorted(set(wishes) - streams)
        if unknown:
            raise InputError(
                f"{setting}: {unknown[0]} is none of the tables that are captured", hint="write it as `tables` finds it"
            )
    for table in tables:
        _refuse_table(table, settings.columns.get(table.stream), settings.where.get(table.stream))
    if there.all_tables and (settings.columns or settings.where):
        raise InputError(
            f"publication {settings.publication_name} publishes all tables whole: columns and where have no place there",
            hint="name another publication, which will be created",
        )


def _refuse_table(table: CatalogTable, columns: Sequence[str] | None, where: str | None) -> None:
    """What PostgreSQL would only refuse later, when an application updates or deletes a row."""
    named = {column.name for column in table.layout.columns if column.in_identity}
    left = sorted(set(table.key if table.layout.identity != "f" else named) - set(columns or named))
    if left:
        raise InputError(
            f"{table.stream}: columns leaves out {left[0]!r}, by which PostgreSQL names the row of an update or delete",
            hint="add it to columns"
            if table.layout.identity != "f"
            else "with REPLICA IDENTITY FULL every column is needed",
        )
    unnamed = sorted(_columns_in(table.stream, where) - named) if where else []
    if unnamed:
        raise InputError(
            f"{table.stream}: where uses {unnamed[0]!r}, which is not in the replica identity: UPDATE and DELETE would fail "
            "in your application; nothing was changed",
            hint=f"ALTER TABLE {_name(table)} REPLICA IDENTITY FULL, or filter in a transform",
        )


def _columns_in(stream: str, where: str) -> set[str]:
    try:
        return {column.name for column in parse_one(where, dialect="postgres").find_all(Column)}
    except ParseError as error:
        raise InputError(
            f"{stream}: where cannot be read as SQL: {error}", hint="write a condition, as after WHERE"
        ) from None
