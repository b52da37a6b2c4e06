"""Tables and columns as PostgreSQL's catalog and WAL describe them, and the types that they are read as.

The catalog knows no earlier shape; the WAL shows a table's layout right before its changes.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from headwater.config.sources.postgres import PostgresSourceSettings
from headwater.model.errors import UnknownName
from headwater.model.position.stream_state import TableState
from headwater.model.rows import POSITION, SOURCE_TIME, change_fields
from headwater.model.types import arrow_type
from headwater.pg.catalog import read_relations
from headwater.pg.connection import PostgresSession, translated
from headwater.pg.names import ListedRelation, did_you_mean, is_pattern, match_names, split_name
from headwater.pg.types import column_type

if TYPE_CHECKING:
    import pyarrow as pa

Identity = Literal["d", "n", "f", "i"]
"""Replica identity: d the primary key, n nothing, f the full row, i an index."""


@dataclass(frozen=True)
class WalColumn:
    """One column of a Relation message."""

    name: str
    type: int  # oid; a domain's own
    modifier: int
    in_identity: bool


@dataclass(frozen=True)
class Layout:
    """The content of a Relation message. It holds for the messages after it, also within a transaction."""

    oid: int
    schema: str
    name: str
    identity: Identity
    columns: tuple[WalColumn, ...]


@dataclass(frozen=True)
class Commit:
    """A committed transaction of a peek."""

    lsn: int  # of the commit record: Begin's final_lsn
    end: int  # after it: where the slot may advance to
    transaction: int
    time: int  # µs since 1970


_COLUMNS = """
SELECT a.attrelid::bigint, a.attname, a.attnum::int, a.atttypid::bigint, a.atttypmod, a.attgenerated::text,
    a.atthasdef OR a.atthasmissing OR a.attidentity <> '',
    array_position((k.indkey::int2[])[0:k.indnkeyatts - 1], a.attnum),
    array_position((r.indkey::int2[])[0:r.indnkeyatts - 1], a.attnum), c.relnatts::int
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
LEFT JOIN pg_index k ON k.indrelid = a.attrelid AND k.indisprimary
LEFT JOIN pg_index r ON r.indrelid = a.attrelid AND r.indisreplident
WHERE a.attrelid = ANY(%s::bigint[]::oid[]) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum"""
# A partition that was created as one has an inheritance row as old as itself, and began empty.
_ATTACHED_WITH_ROWS = """
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

Relations = Mapping[int, ListedRelation]


@dataclass(frozen=True)
class Leaf:
    """A heap: a table, or a partition of one."""

    oid: int
    schema: str
    name: str
    pages: int
    rows: int  # the server's own estimate
    size: int = 0  # bytes, with TOAST


@dataclass(frozen=True)
class CatalogTable:
    """One stream's table, now."""

    stream: str
    layout: Layout  # as a Relation message would say it
    key: tuple[str, ...]
    numbers: Mapping[str, int] = field(default_factory=dict)  # column → its number, which a new name does not change
    attributes: int = 0  # the number of its newest column, dropped or not
    filled: frozenset[str] = frozenset()  # columns in which older rows may have a value
    generated: Mapping[str, str] = field(default_factory=dict)  # computed columns: s stored, v when read
    leaves: tuple[Leaf, ...] = ()
    partitioned: bool = False

    def only(self, columns: Sequence[str]) -> CatalogTable:
        """The table with only these columns: the published ones."""
        published = tuple(column for column in self.layout.columns if column.name in columns)
        return replace(self, layout=replace(self.layout, columns=published))


@dataclass(frozen=True)
class SelectedTables:
    """The tables that settings name."""

    tables: Mapping[str, CatalogTable]
    warnings: tuple[str, ...] = ()


def tables_of(
    session: PostgresSession, settings: PostgresSourceSettings, seen: Mapping[str, TableState]
) -> SelectedTables:
    """A table of the mark keeps its stream after a rename. Raises UnknownName."""
    with translated(session.address):
        all_relations = read_relations(session.connection)
    relations = {relation.oid: relation for relation in all_relations if not relation.schema.startswith("pg_temp_")}
    streams, warnings = _streams(session.address, settings, relations, seen)
    oids = list(streams)
    columns: dict[int, list[tuple[Any, ...]]] = {oid: [] for oid in oids}
    for oid, *row in session.fetch(_COLUMNS, [oids]):
        columns[oid].append(tuple(row))
    leaves: dict[int, list[Leaf]] = {oid: [] for oid in oids}
    for oid, *row in session.fetch(_LEAVES, [oids]):
        leaves[oid].append(Leaf(*row))
    tables = {
        stream: _table(stream, relations[oid], columns[oid], tuple(leaves[oid])) for oid, stream in streams.items()
    }
    return SelectedTables(dict(sorted(tables.items())), tuple(warnings))


def attached_with_rows(session: PostgresSession, leaves: Sequence[int]) -> list[int]:
    """The partitions that were tables before: the WAL does not show their rows."""
    return [oid for (oid,) in session.fetch(_ATTACHED_WITH_ROWS, [list(leaves)])] if leaves else []


def _streams(
    address: str, settings: PostgresSourceSettings, relations: Relations, seen: Mapping[str, TableState]
) -> tuple[dict[int, str], list[str]]:
    """Table's oid → stream."""
    by_name = {(relation.schema, relation.name): oid for oid, relation in relations.items()}
    names = [name for name, oid in by_name.items() if not relations[oid].is_partition]
    streams_seen = {table.oid: stream for stream, table in seen.items() if table.oid in relations}
    streams: dict[int, str] = {}
    warnings = []
    for pattern in settings.tables:
        if is_pattern(pattern):
            matches = [name for name in match_names(pattern, names, "public") if not _excluded(settings, name)]
            streams |= {by_name[name]: streams_seen.get(by_name[name], ".".join(name)) for name in matches}
            continue
        identifiers = split_name(pattern)
        oid = by_name.get(("public", *identifiers)[-2:])  # type: ignore[arg-type]
        if oid is None and pattern in seen and seen[pattern].oid in relations:
            oid = seen[pattern].oid
            warnings.append(f"{pattern} is now called {relations[oid].full_name}; its stream stays {pattern}")
        if oid is None and pattern in seen:
            warnings.append(f"{pattern} no longer exists; its landed rows stay")
            continue
        if oid is None:
            full_names = [".".join(name) for name in names]
            raise UnknownName(f"{address}: table {pattern} does not exist", hint=did_you_mean(pattern, full_names))
        streams[oid] = pattern
    return streams, warnings


def _excluded(settings: PostgresSourceSettings, name: tuple[str, str]) -> bool:
    full_name = ".".join(name)
    return any(fnmatch.fnmatchcase(full_name, pattern) for pattern in settings.exclude)


def _table(
    stream: str, relation: ListedRelation, columns: list[tuple[Any, ...]], leaves: tuple[Leaf, ...]
) -> CatalogTable:
    oid, identity = relation.oid, relation.identity
    by_index = {"i": 7}.get(identity, 6)  # which of the two indexes identifies the rows
    key_columns = sorted((column[by_index], column[0]) for column in columns if column[by_index] is not None)
    key = tuple(name for _, name in key_columns)
    layout_columns = [
        WalColumn(name, type_oid, modifier, identity == "f" or name in key)
        for name, _, type_oid, modifier, *_ in columns
    ]
    return CatalogTable(
        stream,
        Layout(oid, relation.schema, relation.name, cast("Identity", identity), tuple(layout_columns)),
        () if identity == "n" else key,
        {column[0]: column[1] for column in columns},
        max((column[8] for column in columns), default=0),
        frozenset(column[0] for column in columns if column[5]),
        {column[0]: column[4] for column in columns if column[4]},
        leaves,
        leaves != () and (len(leaves) > 1 or leaves[0].oid != oid),
    )


_TEXT = "string"
_FIRST_OF_OTHERS = 10_000  # types below it are built in, and none of them is a domain
# The innermost domain of a domain has its modifier. A dropped type has no row.
_TYPES = """
WITH RECURSIVE base(oid, modifier, at, held) AS (
    SELECT oid, modifier, oid, modifier FROM unnest(%s::bigint[]::oid[], %s::int[]) AS asked(oid, modifier)
    UNION ALL SELECT b.oid, b.modifier, t.typbasetype, t.typtypmod
        FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.at AND t.typtype = 'd')
SELECT b.oid::bigint, b.modifier, b.at::bigint, b.held, pg_catalog.format_type(b.oid, b.modifier)
FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.at AND t.typtype <> 'd'"""

_Type = tuple[int, int]  # oid and modifier


class ColumnTypes:
    """Types of the catalog, each read once; an unknown type is read again, as it may be new."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session
        self._bases: dict[_Type, _Type] = {}
        self._names: dict[_Type, str] = {}

    def of(self, layout: Layout, as_text: Collection[str]) -> tuple[str, ...]:
        """A type of `model/types.py` per column: a domain counts as its base type, all others are text."""
        others = [column for column in layout.columns if column.type >= _FIRST_OF_OTHERS and column.name not in as_text]
        self._learn(others)
        return tuple(_TEXT if column.name in as_text else self._column_type(column) for column in layout.columns)

    def declared(self, layout: Layout) -> tuple[str, ...]:
        """The server's own names of the types, for messages."""
        self._learn(layout.columns)
        return tuple(self._names.get(_type(column), f"type {column.type}") for column in layout.columns)

    def _column_type(self, column: WalColumn) -> str:
        return column_type(*self._bases.get(_type(column), _type(column))) or _TEXT

    def _learn(self, columns: Collection[WalColumn]) -> None:
        unknown = sorted({_type(column) for column in columns} - self._bases.keys())
        if not unknown:
            return
        arguments = [[oid for oid, _ in unknown], [modifier for _, modifier in unknown]]
        for oid, modifier, base, base_modifier, name in self._session.fetch(_TYPES, arguments):
            self._bases[oid, modifier] = (base, base_modifier)
            self._names[oid, modifier] = name


def _type(column: WalColumn) -> _Type:
    return column.type, column.modifier


ROW = "_row"
"""Distinguishes rows of one position: in a copy, by ctid; of a changed key, 1 is the former key's delete. Else 0."""
EVENT_KEY = (POSITION, ROW)
ARRIVAL = SOURCE_TIME


def change_schema(columns: Iterable[pa.Field]) -> pa.Schema:
    """The table's columns, all nullable as a delete has only its key and a truncate nothing; then the change columns."""
    import pyarrow as pa

    table = [column.with_nullable(True) for column in columns]  # noqa: FBT003 - Arrow's own signature
    return pa.schema([*table, *change_fields(), pa.field(ROW, pa.int64(), nullable=False)])


def stream_schema(seen: TableState) -> pa.Schema:
    """Of the changes of one table."""
    import pyarrow as pa

    return change_schema(pa.field(name, arrow_type(column_type)) for name, column_type in seen.types.items())
