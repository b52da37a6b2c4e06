"""The tables of a pipeline as PostgreSQL's catalog has them now. What they looked like earlier it does not know."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.config.postgres_source import PostgresSource
from headwater.model.errors import UnknownName
from headwater.model.lsn_mark import TableSeen
from headwater.sources.postgres.log.layout import Layout, LoggedColumn
from headwater.sources.sql.names import did_you_mean, is_pattern, matching, split_name
from headwater.sources.sql.postgres_session import PostgresSession

_OWN_SCHEMAS = "n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_toast%%'"
_TABLES = f"""
SELECT c.oid::bigint, n.nspname, c.relname, c.relreplident::text, c.relispartition
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND {_OWN_SCHEMAS} AND n.nspname NOT LIKE 'pg\\_temp\\_%%' ORDER BY 2, 3"""  # noqa: S608
_COLUMNS = """
SELECT a.attrelid::bigint, a.attname, a.attnum::int, a.atttypid::bigint, a.atttypmod, a.attgenerated::text,
    a.atthasdef OR a.atthasmissing OR a.attidentity <> '',
    array_position((k.indkey::int2[])[0:k.indnkeyatts - 1], a.attnum),
    array_position((r.indkey::int2[])[0:r.indnkeyatts - 1], a.attnum)
FROM pg_attribute a
LEFT JOIN pg_index k ON k.indrelid = a.attrelid AND k.indisprimary
LEFT JOIN pg_index r ON r.indrelid = a.attrelid AND r.indisreplident
WHERE a.attrelid = ANY(%s::bigint[]::oid[]) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum"""
# A partition that was made as one has a row of inheritance as old as itself, and holds nothing that its making put in.
_CAME_WITH_ROWS = """
SELECT i.inhrelid::bigint FROM pg_inherits i
JOIN pg_attribute a ON a.attrelid = i.inhrelid AND a.attname = 'ctid'
WHERE i.inhrelid = ANY(%s::bigint[]::oid[]) AND i.xmin <> a.xmin"""
_LEAVES = """
WITH RECURSIVE family(root, oid) AS (
    SELECT oid, oid FROM unnest(%s::bigint[]::oid[]) AS oid
    UNION ALL SELECT f.root, i.inhrelid FROM family f JOIN pg_inherits i ON i.inhparent = f.oid
        JOIN pg_class p ON p.oid = i.inhparent AND p.relkind = 'p')
SELECT f.root::bigint, c.oid::bigint, n.nspname, c.relname,
    (pg_relation_size(c.oid) / current_setting('block_size')::int)::bigint, greatest(c.reltuples, 0)::bigint,
    pg_table_size(c.oid)::bigint
FROM family f JOIN pg_class c ON c.oid = f.oid AND c.relkind = 'r' JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY 1, 2"""


@dataclass(frozen=True)
class Leaf:
    """A heap: a table, or a partition of one."""

    oid: int
    schema: str
    name: str
    pages: int
    rows: int  # the server's own estimate
    size: int = 0  # bytes, with what is kept out of line


@dataclass(frozen=True)
class CatalogTable:
    """One stream's table, now."""

    stream: str
    layout: Layout  # as a Relation message would say it
    key: tuple[str, ...]
    numbers: Mapping[str, int] = field(default_factory=dict)  # column → its number, which a new name does not change
    filled: frozenset[str] = frozenset()  # columns that rows from before them may hold a value in
    generated: Mapping[str, str] = field(default_factory=dict)  # computed columns: s stored, v when read
    leaves: tuple[Leaf, ...] = ()
    partitioned: bool = False

    def only(self, columns: Sequence[str]) -> CatalogTable:
        """With these columns of it alone: those that are published."""
        kept = tuple(column for column in self.layout.columns if column.name in columns)
        return replace(self, layout=replace(self.layout, columns=kept))


@dataclass(frozen=True)
class Found:
    """The tables that settings name."""

    tables: Mapping[str, CatalogTable]
    warnings: tuple[str, ...] = ()


def tables_of(session: PostgresSession, settings: PostgresSource, seen: Mapping[str, TableSeen]) -> Found:
    """A table that was seen keeps its stream, whatever it is called now. Raises UnknownName."""
    every = {row[0]: row for row in session.fetch(_TABLES, [])}
    streams, warnings = _streams(session.address, settings, every, seen)
    oids = list(streams)
    columns: dict[int, list[tuple[Any, ...]]] = {oid: [] for oid in oids}
    for oid, *row in session.fetch(_COLUMNS, [oids]):
        columns[oid].append(tuple(row))
    leaves: dict[int, list[Leaf]] = {oid: [] for oid in oids}
    for oid, *row in session.fetch(_LEAVES, [oids]):
        leaves[oid].append(Leaf(*row))
    made = {streams[oid]: _table(streams[oid], every[oid], columns[oid], tuple(leaves[oid])) for oid in oids}
    return Found(dict(sorted(made.items())), tuple(warnings))


def came_with_rows(session: PostgresSession, leaves: Sequence[int]) -> list[int]:
    """Those of the partitions that were tables of their own before: the log does not tell of the rows they brought."""
    return [oid for (oid,) in session.fetch(_CAME_WITH_ROWS, [list(leaves)])] if leaves else []


def _streams(
    address: str, settings: PostgresSource, every: Mapping[int, tuple[Any, ...]], seen: Mapping[str, TableSeen]
) -> tuple[dict[int, str], list[str]]:
    """Table's oid → stream."""
    by_name = {(schema, name): oid for oid, schema, name, *_ in every.values()}
    whole = [(schema, name) for _, schema, name, _, partition in every.values() if not partition]
    seen_as = {table.oid: stream for stream, table in seen.items() if table.oid in every}
    found: dict[int, str] = {}
    warnings = []
    for written in settings.tables:
        if is_pattern(written):
            names = [name for name in matching(written, whole, "public") if not _excluded(settings, name)]
            found |= {by_name[name]: seen_as.get(by_name[name], ".".join(name)) for name in names}
            continue
        parts = split_name(written)
        oid = by_name.get(("public", *parts)[-2:])  # type: ignore[arg-type]
        if oid is None and written in seen and seen[written].oid in every:
            oid = seen[written].oid
            warnings.append(f"{written} is called {every[oid][1]}.{every[oid][2]} now; its stream goes on as {written}")
        if oid is None and written in seen:
            warnings.append(f"{written} is no more; what has landed of it stays")
            continue
        if oid is None:
            known = [".".join(name) for name in whole]
            raise UnknownName(f"{address}: there is no table {written}", hint=did_you_mean(written, known))
        found[oid] = written
    return found, warnings


def _excluded(settings: PostgresSource, name: tuple[str, str]) -> bool:
    shown = ".".join(name)
    return any(fnmatch.fnmatchcase(shown, pattern) for pattern in settings.exclude)


def _table(stream: str, row: tuple[Any, ...], columns: list[tuple[Any, ...]], leaves: tuple[Leaf, ...]) -> CatalogTable:
    oid, schema, name, identity, _ = row
    by_index = {"i": 7}.get(identity, 6)  # which of the two indexes names the rows
    keyed = sorted((column[by_index], column[0]) for column in columns if column[by_index] is not None)
    key = tuple(name for _, name in keyed)
    logged = [
        LoggedColumn(name, kind, modifier, identity == "f" or name in key) for name, _, kind, modifier, *_ in columns
    ]
    return CatalogTable(
        stream,
        Layout(oid, schema, name, identity, tuple(logged)),
        () if identity == "n" else key,
        {column[0]: column[1] for column in columns},
        frozenset(column[0] for column in columns if column[5]),
        {column[0]: column[4] for column in columns if column[4]},
        leaves,
        leaves != () and (len(leaves) > 1 or leaves[0].oid != oid),
    )
