"""What a PostgreSQL server says about itself, its roles, tables, publications and slots, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
    slot_keep_megabytes: int  # NO_LIMIT: a slot keeps the log for as long as it likes
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
class Publication:
    """What a publication publishes."""

    name: str
    all_tables: bool = False
    operations: frozenset[str] = frozenset({"insert", "update", "delete", "truncate"})
    via_root: bool = False
    generated: bool = False  # sends stored generated columns (PostgreSQL 18)
    named: frozenset[int] = frozenset()  # oids that it lists itself
    tables: frozenset[int] = frozenset()  # oids whose changes it sends
    filtered: frozenset[int] = frozenset()  # oids of which it sends only some rows
    cut: frozenset[int] = frozenset()  # oids of which it sends only some columns

    def covers(self, table: Table) -> bool:
        """Whether every change of the table is sent, under whichever name."""
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
    """Everything that was asked, in one view of the catalog."""

    server: Server
    role: Role
    tables: tuple[Table, ...]
    publications: Mapping[str, Publication]
    slots: Mapping[str, Slot]
