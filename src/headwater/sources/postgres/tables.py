"""The tables of a pipeline as they are now: what the catalog, the publication and the settings say together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headwater.config.postgres_source import PostgresSource
from headwater.model.errors import InputError, SourceUnreachable, UnknownName
from headwater.model.lsn_mark import LsnMark, TableSeen
from headwater.sources.postgres.catalog import CatalogTable, Found, came_with_rows, tables_of
from headwater.sources.postgres.evolving import leaves_of, reconciled
from headwater.sources.postgres.publication import Published, identity_of, published, statements
from headwater.sources.postgres.readiness.asking import ask_numbered
from headwater.sources.postgres.readiness.facts import Table
from headwater.sources.postgres.readiness.identity import identity_problem, remedies, without_identity
from headwater.sources.postgres.readiness.table_findings import kind_problem
from headwater.sources.sql.postgres_session import PostgresSession, translated


@dataclass(frozen=True)
class TablesNow:
    """Stream → its table with the columns that the log brings, and the identity of its place in the publication."""

    tables: Mapping[str, CatalogTable]
    identities: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def look_at_tables(session: PostgresSession, settings: PostgresSource, mark: LsnMark | None) -> TablesNow:
    """Without changing anything; tables that are not published yet count as they will be."""
    found = tables_of(session, settings, mark.tables if mark else {})
    return _now(settings, found, published(session, settings.publication_name))


def publish_tables(session: PostgresSession, settings: PostgresSource, mark: LsnMark | None) -> TablesNow:
    """The same when the publication has been made as settings say. Refuses, by name, what cannot work (G12)."""
    found = tables_of(session, settings, mark.tables if mark else {})
    there = published(session, settings.publication_name)
    known = {stream: seen.published for stream, seen in mark.tables.items()} if mark else {}
    wanted = statements(settings, list(found.tables.values()), there, known, session.server_version)
    if wanted:
        _refuse_unfit(session, found.tables)
        for sql in wanted:
            _publish(session, sql)
        there = published(session, settings.publication_name)
    return _now(settings, found, there)


def _now(settings: PostgresSource, found: Found, there: Published) -> TablesNow:
    tables = {stream: there.sent(table) for stream, table in found.tables.items()}
    identities = {
        stream: identity_of(settings, stream, there.tables.get(table.layout.oid)) for stream, table in tables.items()
    }
    return TablesNow(tables, identities, found.warnings)


def _publish(session: PostgresSession, sql: str) -> None:
    try:
        session.run(sql)
    except (SourceUnreachable, InputError, UnknownName) as error:
        raise SourceUnreachable(
            f"the publication cannot be made as the settings say: {error.message}",
            hint=f"who owns the tables can: {sql}; or headwater postgres prepare --apply",
        ) from None


def _refuse_unfit(session: PostgresSession, tables: Mapping[str, CatalogTable]) -> None:
    """Before anything is published: afterwards UPDATE and DELETE of such a table fail in the user's application."""
    with translated(session.address):
        asked = ask_numbered(session.connection, [table.layout.oid for table in tables.values()])
    problems = [f"{table.full_name} {problem[0]}" for table in asked if (problem := kind_problem(table))]
    if problems:
        raise InputError("; ".join(problems), hint="leave them out (exclude), or make them ordinary tables")
    without = without_identity(asked)
    if without:
        raise InputError(
            "; ".join(f"{table.full_name}: {identity_problem(table)}" for table in without)
            + ". Once published, UPDATE and DELETE would fail in your application; nothing was changed",
            hint=f"add a primary key, or run for example {_remedy(without[0])}",
        )


def _remedy(table: Table) -> str:
    return f"{remedies(table)[0]};"


def reconciled_tables(session: PostgresSession, now: TablesNow, mark: LsnMark) -> dict[str, TableSeen]:
    """The mark's tables, with what the catalog tells of them that the log does not. Those that settings dropped are gone."""
    made = {}
    for stream, seen in mark.tables.items():
        table = now.tables.get(stream)
        if table is None:
            continue
        if table.layout.oid != seen.oid:
            made[stream] = replace(seen, stale="it is another table of the same name")
            continue
        moved = _rows_moved(session, seen, table)
        made[stream] = reconciled(seen, table, now.identities[stream], moved_rows=moved)
    return made


def _rows_moved(session: PostgresSession, seen: TableSeen, table: CatalogTable) -> bool:
    """Partitions that went took rows along; those that came may have brought some."""
    known, now = set(seen.leaves), set(leaves_of(table))
    return bool(known - now) or bool(came_with_rows(session, sorted(now - known)))
