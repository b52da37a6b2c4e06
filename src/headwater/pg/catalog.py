"""PostgreSQL's catalog: servers, roles, tables, publications and slots, as values, and the queries that read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headwater.model.errors import InputError
from headwater.pg.connection import BEGIN, Connection
from headwater.pg.names import ListedRelation, choose_tables

Service = Literal["own", "rds", "cloud sql", "azure"]
Identity = Literal["default", "nothing", "full", "index"]
Kind = Literal["table", "partitioned table", "view", "materialized view", "foreign table"]

NO_LIMIT = -1


@dataclass(frozen=True)
class Server:
    """Settings of the server that matter for logical replication, and how much of them is used."""

    version: int  # as PostgreSQL counts: 180001 is 18.1
    database: str
    service: Service
    standby: bool
    wal_level: str
    slots_most: int
    slots_used: int
    senders_most: int
    senders_used: int
    slot_keep_megabytes: int  # NO_LIMIT: a slot keeps WAL without limit
    idle_slot_seconds: int | None  # 0: never dropped; None: the server is too old to know it

    @property
    def version_text(self) -> str:
        return f"{self.version // 10000}.{self.version % 10000}"


@dataclass(frozen=True)
class Role:
    """The role that captures changes."""

    name: str
    exists: bool = True
    login: bool = True
    superuser: bool = False
    replication: bool = False
    rds_replication: bool = False  # is a member of it

    @property
    def may_replicate(self) -> bool:
        return self.superuser or self.replication or self.rds_replication


@dataclass(frozen=True)
class Table:
    """One relation, and what the role may do with it."""

    oid: int
    schema: str
    name: str
    kind: Kind
    persistence: Literal["permanent", "unlogged", "temporary"] = "permanent"
    is_partition: bool = False
    identity: Identity = "default"
    identity_index: str | None = None  # of `index`; None: it is gone
    key: tuple[str, ...] = ()
    key_deferrable: bool = False
    unique_indexes: tuple[str, ...] = ()  # that could be the replica identity
    generated: tuple[str, ...] = ()  # columns that the server computes
    row_security: bool = False
    may_select: bool = True
    may_use_schema: bool = True
    partitions: tuple[Table, ...] = ()  # the leaves

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class PublicationEntry:
    """A table that a publication lists."""

    id: str  # changes when the table is removed and added again
    columns: tuple[str, ...] = ()  # empty: all
    filtered: bool = False  # sends only some rows


@dataclass(frozen=True)
class Publication:
    """What a publication publishes."""

    name: str
    all_tables: bool = False
    operations: frozenset[str] = frozenset({"insert", "update", "delete", "truncate"})
    via_root: bool = False
    generated: bool = False  # sends stored generated columns (PostgreSQL 18)
    entries: Mapping[int, PublicationEntry] = field(default_factory=dict)  # by oid
    tables: frozenset[int] = frozenset()  # oids whose changes it sends

    @property
    def filtered(self) -> frozenset[int]:
        """Oids of which it sends only some rows."""
        return frozenset(oid for oid, entry in self.entries.items() if entry.filtered)

    @property
    def column_lists(self) -> frozenset[int]:
        """Oids of which it sends only some columns."""
        return frozenset(oid for oid, entry in self.entries.items() if entry.columns)

    def covers(self, table: Table) -> bool:
        """True if it sends every change of the table, as the table or as its partitions."""
        if table.oid in self.tables:
            return True
        return bool(table.partitions) and all(leaf.oid in self.tables for leaf in table.partitions)


@dataclass(frozen=True)
class Slot:
    """A logical replication slot."""

    name: str
    plugin: str
    database: str
    active: bool
    wal_status: str  # reserved, extended, unreserved, lost; empty: it keeps nothing yet
    safe_bytes: int | None  # until it is lost; None: no limit is set
    kept_bytes: int | None
    invalidated: str  # why; empty: it is not


@dataclass(frozen=True)
class Facts:
    """One consistent view of the catalog."""

    server: Server
    role: Role
    tables: tuple[Table, ...]
    publications: Mapping[str, Publication]
    slots: Mapping[str, Slot]


_OLDEST_VERSION = 130_000
_KINDS: Mapping[str, Any] = {
    "r": "table", "p": "partitioned table", "v": "view", "m": "materialized view", "f": "foreign table",
}  # fmt: skip
_PERSISTENCE: Mapping[str, Any] = {"p": "permanent", "u": "unlogged", "t": "temporary"}
_IDENTITY: Mapping[str, Any] = {"d": "default", "n": "nothing", "f": "full", "i": "index"}
OPERATIONS = ("insert", "update", "delete", "truncate")

_SERVER = """
SELECT current_database()::text, pg_is_in_recovery(), (SELECT count(*) FROM pg_replication_slots),
    (SELECT count(*) FROM pg_stat_replication),
    CASE WHEN to_regrole('rds_superuser') IS NOT NULL THEN 'rds'
        WHEN to_regrole('cloudsqlsuperuser') IS NOT NULL THEN 'cloud sql'
        WHEN to_regrole('azure_pg_admin') IS NOT NULL THEN 'azure' ELSE 'own' END"""
_SETTINGS = """
SELECT name, setting FROM pg_settings WHERE name IN ('wal_level', 'max_replication_slots', 'max_wal_senders',
    'max_slot_wal_keep_size', 'idle_replication_slot_timeout')"""
_ROLE = """
SELECT r.oid::bigint, r.rolname, r.rolcanlogin, r.rolsuper, r.rolreplication,
    coalesce((SELECT pg_has_role(r.oid, g.oid, 'MEMBER') FROM pg_roles g WHERE g.rolname = 'rds_replication'), false)
FROM pg_roles r WHERE r.rolname = coalesce(%s, current_user)"""
_LISTED = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relispartition, pg_table_is_visible(c.oid),
    c.relreplident::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
AND n.nspname NOT LIKE 'pg\\_toast%%' ORDER BY 2, 3"""
_LEAVES = """
SELECT root.oid, t.relid::oid::bigint FROM unnest(%s::bigint[]) AS root(oid), pg_partition_tree(root.oid::oid) AS t
WHERE t.isleaf AND t.relid <> root.oid::oid ORDER BY t.relid::text"""
_TABLES = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relispartition, c.relreplident::text,
    (SELECT x.relname::text FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
        WHERE i.indrelid = c.oid AND i.indisreplident),
    ARRAY(SELECT a.attname::text FROM pg_index i
        CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, ordinal)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
        WHERE i.indrelid = c.oid AND i.indisprimary AND k.ordinal <= i.indnkeyatts ORDER BY k.ordinal),
    coalesce((SELECT NOT i.indimmediate FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary), false),
    ARRAY(SELECT x.relname::text FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid AND NOT i.indisprimary
        AND i.indpred IS NULL AND i.indexprs IS NULL AND NOT EXISTS (
            SELECT FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, ordinal)
            JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
            WHERE k.ordinal <= i.indnkeyatts AND NOT a.attnotnull) ORDER BY x.relname),
    ARRAY(SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> '' ORDER BY a.attnum),
    c.relrowsecurity, coalesce(has_table_privilege(%(role)s::bigint::oid, c.oid, 'SELECT'), false),
    coalesce(has_schema_privilege(%(role)s::bigint::oid, n.oid, 'USAGE'), false)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY(%(tables)s::bigint[]::oid[])"""
# Columns that older servers do not have are read through JSON.
_PUBLICATIONS = """
SELECT p.pubname, p.puballtables, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot,
    coalesce(to_jsonb(p) ->> 'pubgencols', 'n') <> 'n'
FROM pg_publication p WHERE p.pubname = coalesce(%s, p.pubname) ORDER BY 1"""
_ENTRIES = """
SELECT p.pubname, r.prrelid::bigint, r.oid::bigint,
    ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = r.prrelid
        AND to_jsonb(r) -> 'prattrs' @> to_jsonb(a.attnum) ORDER BY a.attnum),
    to_jsonb(r) ->> 'prqual' IS NOT NULL
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = coalesce(%s, p.pubname)"""
_PUBLISHED = """
SELECT t.pubname, c.oid::bigint FROM pg_publication_tables t
JOIN pg_namespace n ON n.nspname = t.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
WHERE t.pubname = coalesce(%s, t.pubname)"""
_SLOTS = """
SELECT s.slot_name, coalesce(s.plugin, ''), coalesce(s.database, ''), s.active, coalesce(s.wal_status, ''), s.safe_wal_size,
    pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
        s.restart_lsn)::bigint,
    coalesce(to_jsonb(s) ->> 'invalidation_reason', '')
FROM pg_replication_slots s WHERE s.slot_type = 'logical' ORDER BY 1"""


def read_facts(
    connection: Connection,
    tables: Sequence[str],
    *,
    excluded: Sequence[str] = (),
    publication: str | None = None,
    role: str | None = None,
) -> Facts:
    """The facts about the tables (names and patterns); without tables, about those of the publication, if any."""
    with one_view(connection):
        publications = read_publications(connection)
        if tables:
            oids = choose_tables(read_relations(connection), tables, excluded)
        else:
            oids = sorted(publications[publication].tables) if publication and publication in publications else []
        role_facts, role_oid = read_role(connection, role)
        slots = {row[0]: Slot(*row) for row in connection.execute(_SLOTS).fetchall()}
        return Facts(read_server(connection), role_facts, _tables(connection, oids, role_oid), publications, slots)


def read_named_tables(connection: Connection, tables: Sequence[str]) -> Sequence[Table]:
    """Only the tables, as the current role sees them."""
    with one_view(connection):
        _, role_oid = read_role(connection)
        return _tables(connection, choose_tables(read_relations(connection), tables, ()), role_oid)


def read_tables_by_oid(connection: Connection, oids: Sequence[int]) -> Sequence[Table]:
    """The same by oid."""
    with one_view(connection):
        _, role_oid = read_role(connection)
        return _tables(connection, oids, role_oid)


@contextmanager
def one_view(connection: Connection) -> Iterator[None]:
    """One read-only snapshot for the reads of the block."""
    version = connection.info.server_version
    if version < _OLDEST_VERSION:
        raise InputError(f"the server is PostgreSQL {version // 10000}; 13 or newer is required")
    connection.execute(BEGIN)
    try:
        yield
    finally:
        if not connection.broken:
            connection.execute("ROLLBACK")


def read_server(connection: Connection) -> Server:
    ((database, standby, slots, senders, service),) = connection.execute(_SERVER).fetchall()
    settings: dict[str, str] = dict(connection.execute(_SETTINGS).fetchall())
    idle = settings.get("idle_replication_slot_timeout")
    return Server(
        version=connection.info.server_version,
        database=database,
        service=service,
        standby=standby,
        wal_level=settings["wal_level"],
        slots_most=int(settings["max_replication_slots"]),
        slots_used=slots,
        senders_most=int(settings["max_wal_senders"]),
        senders_used=senders,
        slot_keep_megabytes=int(settings.get("max_slot_wal_keep_size", NO_LIMIT)),
        idle_slot_seconds=None if idle is None else int(idle),
    )


def read_role(connection: Connection, name: str | None = None) -> tuple[Role, int | None]:
    rows = connection.execute(_ROLE, [name]).fetchall()
    if not rows:
        return Role(name or "", exists=False, login=False), None
    oid, role_name, login, superuser, replication, rds = rows[0]
    return Role(role_name, login=login, superuser=superuser, replication=replication, rds_replication=rds), oid


def read_relations(connection: Connection) -> Sequence[ListedRelation]:
    """Every table and view of users' schemas, by schema and name."""
    return [ListedRelation(*row) for row in connection.execute(_LISTED, []).fetchall()]


def _tables(connection: Connection, oids: Sequence[int], role: int | None) -> tuple[Table, ...]:
    leaves: dict[int, list[int]] = {}
    for root, leaf in connection.execute(_LEAVES, [list(oids)]).fetchall():
        leaves.setdefault(root, []).append(leaf)
    all_oids = [*oids, *(leaf for children in leaves.values() for leaf in children)]
    rows = connection.execute(_TABLES, {"role": role, "tables": all_oids}).fetchall()
    tables = {row[0]: _table(*row) for row in rows}
    # A table may have been dropped since it was listed.
    return tuple(
        replace(tables[oid], partitions=tuple(tables[leaf] for leaf in leaves.get(oid, []) if leaf in tables))
        for oid in oids
        if oid in tables
    )


def _table(oid: int, schema: str, name: str, kind: str, persistence: str, *more: Any) -> Table:
    is_partition, identity, index, key, deferrable, unique, generated, security, select, usage = more
    return Table(
        oid=oid,
        schema=schema,
        name=name,
        kind=_KINDS[kind],
        persistence=_PERSISTENCE[persistence],
        is_partition=is_partition,
        identity=_IDENTITY[identity],
        identity_index=index,
        key=tuple(key),
        key_deferrable=deferrable,
        unique_indexes=tuple(unique),
        generated=tuple(generated),
        row_security=security,
        may_select=select,
        may_use_schema=usage,
    )


def read_publications(connection: Connection, publication: str | None = None) -> Mapping[str, Publication]:
    """All publications of the database, or the one of that name."""
    entries: dict[str, dict[int, PublicationEntry]] = {}
    for name, oid, entry, columns, filtered in connection.execute(_ENTRIES, [publication]).fetchall():
        entries.setdefault(name, {})[oid] = PublicationEntry(str(entry), tuple(columns), filtered)
    tables: dict[str, set[int]] = {}
    for name, oid in connection.execute(_PUBLISHED, [publication]).fetchall():
        tables.setdefault(name, set()).add(oid)
    return {
        name: Publication(
            name,
            all_tables,
            frozenset(word for word, on in zip(OPERATIONS, operations, strict=True) if on),
            via_root,
            generated,
            entries.get(name, {}),
            frozenset(tables.get(name, ())),
        )
        for name, all_tables, *operations, via_root, generated in connection.execute(
            _PUBLICATIONS, [publication]
        ).fetchall()
    }
