"""The tables of a pipeline as they are now: the publication that the server decodes, and what DDL means for a stream.

The WAL shows a table's shape with its next row, and nothing of what DDL did to existing rows. Where DDL may have changed
them, the table is `stale`: it is copied again, and the copy replaces what landed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import parse_one
from sqlglot.errors import ParseError
from sqlglot.expressions import Column

from headwater.config.sources.postgres import PostgresSourceSettings
from headwater.model.errors import InputError, SchemaRefused, SourceUnreachable, UnknownName
from headwater.model.position.marks import LsnMark
from headwater.model.position.stream_state import TableState, numbered, positions
from headwater.model.types import retyped_name, wider_type
from headwater.pg import sql_text
from headwater.pg.catalog import OPERATIONS, Publication, PublicationEntry, read_publications, read_tables_by_oid
from headwater.pg.connection import PostgresSession, translated
from headwater.pg.sql_text import identity_problem, kind_problem, remedies, without_identity
from headwater.sources.postgres.catalog import (
    CatalogTable,
    Layout,
    SelectedTables,
    WalColumn,
    attached_with_rows,
    tables_of,
)


@dataclass(frozen=True)
class TablesNow:
    """Stream → its table with the columns that the WAL brings, and the identity of its publication entry."""

    tables: Mapping[str, CatalogTable]
    identities: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def read_tables(session: PostgresSession, settings: PostgresSourceSettings, mark: LsnMark | None) -> TablesNow:
    """Read only; tables that are not published yet count as if they were."""
    selected = tables_of(session, settings, mark.streams if mark else {})
    return _now(settings, selected, read_publication(session, settings.publication_name))


def publish_tables(session: PostgresSession, settings: PostgresSourceSettings, mark: LsnMark | None) -> TablesNow:
    """The same, after changing the publication as settings say. Refuses, by name, what cannot work (G12)."""
    selected = tables_of(session, settings, mark.streams if mark else {})
    publication = read_publication(session, settings.publication_name)
    known = {stream: seen.published for stream, seen in mark.streams.items()} if mark else {}
    statements = publication_statements(
        settings, list(selected.tables.values()), publication, known, session.server_version
    )
    if statements:
        _refuse_unfit(session, selected.tables)
        for sql in statements:
            _publish(session, sql)
        publication = read_publication(session, settings.publication_name)
    return _now(settings, selected, publication)


def _now(settings: PostgresSourceSettings, selected: SelectedTables, publication: Publication | None) -> TablesNow:
    tables = {stream: published_columns(publication, table) for stream, table in selected.tables.items()}
    identities = {
        stream: identity_of(settings, stream, entry_of(publication, table.layout.oid))
        for stream, table in tables.items()
    }
    return TablesNow(tables, identities, selected.warnings)


def _publish(session: PostgresSession, sql: str) -> None:
    try:
        session.run(sql)
    except (SourceUnreachable, InputError, UnknownName) as error:
        raise SourceUnreachable(
            f"cannot change the publication as settings say: {error.message}",
            hint=f"run as the owner of the tables: {sql}; or headwater postgres prepare --apply",
        ) from None


def _refuse_unfit(session: PostgresSession, tables: Mapping[str, CatalogTable]) -> None:
    """Refuse before publishing: afterwards UPDATE and DELETE of such a table fail in the user's application."""
    with translated(session.address):
        catalog_tables = read_tables_by_oid(session.connection, [table.layout.oid for table in tables.values()])
    problems = [f"{table.full_name} {problem[0]}" for table in catalog_tables if (problem := kind_problem(table))]
    if problems:
        raise InputError("; ".join(problems), hint="leave them out (exclude), or make them ordinary tables")
    unidentified = without_identity(catalog_tables)
    if unidentified:
        raise InputError(
            "; ".join(f"{table.full_name}: {identity_problem(table)}" for table in unidentified)
            + ". Once published, UPDATE and DELETE would fail in your application; nothing was changed",
            hint=f"add a primary key, or run for example {remedies(unidentified[0])[0]};",
        )


def reconciled_tables(
    session: PostgresSession, now: TablesNow, mark: LsnMark, *, relied_on: bool = False
) -> dict[str, TableState]:
    """The mark's tables, updated by the catalog, without tables that settings no longer name.

    `relied_on`: a label or a comparison needs the rows as they were at a position behind the mark.
    """
    tables = {}
    for stream, seen in mark.streams.items():
        table = now.tables.get(stream)
        if table is None:
            continue
        if table.layout.oid != seen.oid:
            tables[stream] = replace(seen, stale="another table has its name now")
            continue
        moved_rows = _rows_moved(session, seen, table)
        state = reconciled(seen, table, now.identities[stream], moved_rows=moved_rows)
        gone = _column_came_and_went(seen, table) if relied_on else ""
        tables[stream] = replace(state, stale=state.stale or gone)
    return tables


def _column_came_and_went(seen: TableState, table: CatalogTable) -> str:
    """A column that was added and dropped again, since: nothing tells any more whether it was added with a value."""
    since = set(range(seen.attributes + 1, table.attributes + 1)) if seen.attributes else set()
    return "a column was added and dropped again" if since - set(table.numbers.values()) else ""


def _rows_moved(session: PostgresSession, seen: TableState, table: CatalogTable) -> bool:
    """True if partitions with rows were attached or detached."""
    known, now = set(seen.leaves), set(leaves_of(table))
    return bool(known - now) or bool(attached_with_rows(session, sorted(now - known)))


_WITH_GENERATED = 180_000
_UNLISTED = PublicationEntry("*")  # published with all tables, or with its schema


def read_publication(session: PostgresSession, name: str) -> Publication | None:
    """The publication as it is now; None: it does not exist."""
    with translated(session.address):
        return read_publications(session.connection, name).get(name)


def entry_of(publication: Publication | None, oid: int) -> PublicationEntry | None:
    if publication is None:
        return None
    return publication.entries.get(oid) or (_UNLISTED if oid in publication.tables else None)


def published_columns(publication: Publication | None, table: CatalogTable) -> CatalogTable:
    """The table with the columns that the WAL brings."""
    entry = entry_of(publication, table.layout.oid)
    if entry and entry.columns:
        return table.only(entry.columns)
    sends_stored = publication is not None and publication.generated
    hidden = {column for column, how in table.generated.items() if how != "s" or not sends_stored}
    return table.only([column.name for column in table.layout.columns if column.name not in hidden])


def settings_digest(settings: PostgresSourceSettings, stream: str) -> str:
    """A digest of a table's columns and condition in settings; empty: it has none."""
    values = [settings.columns.get(stream), settings.where.get(stream)]
    if values == [None, None]:
        return ""
    return hashlib.blake2b(json.dumps(values).encode(), digest_size=6).hexdigest()


def identity_of(settings: PostgresSourceSettings, stream: str, entry: PublicationEntry | None) -> str:
    """The identity of a table's publication entry in a mark: if it differs, changes may be missing."""
    return f"{entry.id if entry else ''}/{settings_digest(settings, stream)}"


def publication_statements(
    settings: PostgresSourceSettings,
    tables: Sequence[CatalogTable],
    publication: Publication | None,
    known: Mapping[str, str],
    version: int,
) -> list[str]:
    """The SQL after which the publication is as settings say; `known`: stream → identity by the mark. Pure."""
    _refuse_unsupported(settings, tables, publication)
    if publication is None:
        entries = ", ".join(_entry(settings, table) for table in tables)
        generated = version >= _WITH_GENERATED
        return [sql_text.create_publication(settings.publication_name, entries, via_root=True, generated=generated)]
    return list(_changes(settings, tables, publication, known))


def _changes(
    settings: PostgresSourceSettings, tables: Sequence[CatalogTable], publication: Publication, known: Mapping[str, str]
) -> Iterator[str]:
    name = publication.name
    if not publication.via_root and any(table.partitioned for table in tables):
        yield sql_text.publish_via_root(name, on=True)
    if not publication.operations >= set(OPERATIONS):
        yield sql_text.publish_operations(name)
    if publication.all_tables:
        return
    for table in tables:
        oid = table.layout.oid
        before = known.get(table.stream, "").partition("/")[2]
        published = entry_of(publication, oid) is not None
        if published and table.stream in known and before != settings_digest(settings, table.stream):
            yield sql_text.drop_from_publication(name, _name(table))
            yield sql_text.add_to_publication(name, _entry(settings, table))
        elif not published:
            yield sql_text.add_to_publication(name, _entry(settings, table))


def _entry(settings: PostgresSourceSettings, table: CatalogTable) -> str:
    columns, where = settings.columns.get(table.stream), settings.where.get(table.stream)
    listed = f" ({', '.join(sql_text.name(column) for column in columns)})" if columns else ""
    return f"{_name(table)}{listed}" + (f" WHERE ({where})" if where else "")


def _name(table: CatalogTable) -> str:
    return f"{sql_text.name(table.layout.schema)}.{sql_text.name(table.layout.name)}"


def _refuse_unsupported(
    settings: PostgresSourceSettings, tables: Sequence[CatalogTable], publication: Publication | None
) -> None:
    streams = {table.stream for table in tables}
    for setting, by_stream in (("columns", settings.columns), ("where", settings.where)):
        unknown = sorted(set(by_stream) - streams)
        if unknown:
            raise InputError(
                f"{setting}: {unknown[0]} is not a captured table", hint="use the name of a table that `tables` selects"
            )
    for table in tables:
        _refuse_table(table, settings.columns.get(table.stream), settings.where.get(table.stream))
    if publication and publication.all_tables and (settings.columns or settings.where):
        raise InputError(
            f"publication {settings.publication_name} publishes all tables whole: columns and where cannot be used",
            hint="name another publication; the first run creates it",
        )


def _refuse_table(table: CatalogTable, columns: Sequence[str] | None, where: str | None) -> None:
    """Refuse what PostgreSQL refuses only later, when an application updates or deletes a row."""
    identity = {column.name for column in table.layout.columns if column.in_identity}
    missing = sorted(set(table.key if table.layout.identity != "f" else identity) - set(columns or identity))
    if missing:
        raise InputError(
            f"{table.stream}: columns leaves out {missing[0]!r}, which identifies the row of an update or delete",
            hint="add it to columns"
            if table.layout.identity != "f"
            else "with REPLICA IDENTITY FULL every column is needed",
        )
    foreign = sorted(_columns_in(table.stream, where) - identity) if where else []
    if foreign:
        raise InputError(
            f"{table.stream}: where uses {foreign[0]!r}, which is not in the replica identity: UPDATE and DELETE would fail "
            "in your application; nothing was changed",
            hint=f"ALTER TABLE {_name(table)} REPLICA IDENTITY FULL, or filter in a transform",
        )


def _columns_in(stream: str, where: str) -> set[str]:
    try:
        return {column.name for column in parse_one(where, dialect="postgres").find_all(Column)}
    except ParseError as error:
        raise InputError(
            f"{stream}: where is not valid SQL: {error}", hint="write a condition, as after WHERE"
        ) from None


Homes = tuple[tuple[str, str], ...]
"""Columns of a layout, and the stream's columns that their values go to."""


def learned(seen: TableState, stream: str, layout: Layout, type_names: Sequence[str], *, refuses: bool) -> TableState:
    """After rows of that layout."""
    columns: Columns = seen.types
    shape, stale = dict(seen.shape), seen.stale
    for column, type_name in zip(layout.columns, type_names, strict=True):
        number, before = shape.get(column.name, (0, ""))
        if before and before != type_text(column):
            stale = stale or f"column {column.name} got another type"
            _refuse_type(stream, column, columns[column.name], type_name, refuses=refuses)
        shape[column.name] = (number, type_text(column))
        columns = with_column(columns, column.name, type_name)
    return replace(seen, columns=numbered(columns), shape=shape, stale=stale)


def _refuse_type(stream: str, column: WalColumn, before: str, type_name: str, *, refuses: bool) -> None:
    if refuses and wider_type(before, type_name) is None:
        raise SchemaRefused(
            f"{stream}: column {column.name} was {before} and is now {type_name}",
            hint="allow it (type_changes: copy), which keeps its values in a column of their own and copies the table again",
        )


def homes(columns: Mapping[str, str], layout: Layout, type_names: Sequence[str]) -> Homes:
    """Where the values of a layout's columns live."""
    return tuple(
        (column.name, home_of(columns, column.name, type_name))
        for column, type_name in zip(layout.columns, type_names, strict=True)
    )


def reconciled(seen: TableState, table: CatalogTable, identity: str, *, moved_rows: bool) -> TableState:
    """The state after a look at the catalog; `moved_rows`: partitions with rows were attached or detached."""
    stale = seen.stale or _why_stale(seen, table, identity, moved_rows=moved_rows)
    shape = {
        column: (number or table.numbers.get(column, 0), type_name)
        for column, (number, type_name) in seen.shape.items()
    }
    return replace(seen, shape=shape, attributes=table.attributes, stale=stale, leaves=leaves_of(table))


def _why_stale(seen: TableState, table: CatalogTable, identity: str, *, moved_rows: bool) -> str:
    if seen.published != identity:
        return "its publication entry changed"
    if moved_rows:
        return "partitions with rows were attached or detached"
    if set(seen.key) != set(table.key):
        return f"its key is now ({', '.join(table.key)})"
    names = {number: column for column, (number, _) in seen.shape.items() if number}
    return next(filter(None, (_column_stale(seen, table, column, names) for column in table.layout.columns)), "")


def _column_stale(seen: TableState, table: CatalogTable, column: WalColumn, names: Mapping[int, str]) -> str:
    """`names`: the former columns by their numbers."""
    number = table.numbers[column.name]
    known, type_name = seen.shape.get(column.name, (0, ""))
    if not known and names.get(number, column.name) != column.name:
        return f"column {names[number]} is now called {column.name}"
    if known and known != number:
        return f"column {column.name} was dropped and added again"
    if not known and column.name in table.filled:
        return f"column {column.name} was added with a value"
    return f"column {column.name} got another type" if type_name and type_name != type_text(column) else ""


def described(
    before: TableState | None, table: CatalogTable, type_names: Sequence[str], identity: str, copied: int
) -> TableState:
    """The table as it is copied, in columns that fit what landed of it before."""
    columns: Columns = before.types if before else {}
    for column, type_name in zip(table.layout.columns, type_names, strict=True):
        columns = with_column(columns, column.name, type_name)
    return TableState(
        oid=table.layout.oid,
        copied=copied,
        columns=numbered(columns),
        shape={column.name: (table.numbers[column.name], type_text(column)) for column in table.layout.columns},
        attributes=table.attributes,
        key_positions=positions(table.key),
        leaves=leaves_of(table),
        published=identity,
    )


def leaves_of(table: CatalogTable) -> tuple[int, ...]:
    """The partitions, for a mark."""
    return tuple(leaf.oid for leaf in table.leaves) if table.partitioned else ()


def type_text(column: WalColumn) -> str:
    return f"{column.type}/{column.modifier}"


Columns = Mapping[str, str]
"""Name → type (`model/types.py`)."""


def home_of(columns: Columns, name: str, type_name: str) -> str:
    """Where values of that column and type live: under its name, or `name__type` if the column had another type before."""
    if name not in columns or wider_type(columns[name], type_name) is not None:
        return name
    return retyped_name(name, type_name)


def with_column(columns: Columns, name: str, type_name: str) -> Columns:
    """The columns, after one of the table has been seen with that type."""
    home = home_of(columns, name, type_name)
    before = columns.get(home)
    return {**columns, home: type_name if before is None else wider_type(before, type_name) or before}
