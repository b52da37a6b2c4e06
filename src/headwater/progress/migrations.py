"""The tables of the SQL stores, as numbered steps from each version to the next.

A step that was released is never edited: what has to change is a new step at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.model.errors import StoreDamaged

Row = tuple[object, ...]


class Execute(Protocol):
    """One statement of a transaction; parameters are written :name."""

    def __call__(self, statement: str, values: Mapping[str, object]) -> Sequence[Row]: ...

    def each(self, statement: str, values: Sequence[Mapping[str, object]]) -> list[Row]:
        """The statement's rows for each of the values, in their order."""

    def many(self, table: str, columns: Mapping[str, Sequence[object]], key: Sequence[str]) -> None:
        """Write rows, given column by column, over those that have the same key."""


@dataclass(frozen=True)
class Dialect:
    """Where SQLite and PostgreSQL differ."""

    json: str  # a type that keeps the text of JSON exactly
    moment: str
    kind: str  # of a history entry, taken from its JSON
    who: str
    bytes: str
    bytewise: str  # texts in the order of their UTF-8 bytes
    by_key: str  # a table whose rows lie in the order of its key
    find_schema_table: str  # yields one row, whose value is NULL or missing without such a table


@dataclass(frozen=True)
class Migration:
    """One step: `version` is what the tables have after it."""

    version: int
    purpose: str
    statements: tuple[str, ...]


SQLITE = Dialect(
    json="text",
    moment="text",
    kind="json_extract(entry, '$.kind')",
    who="json_extract(entry, '$.who')",
    bytes="blob",
    bytewise="text",
    by_key="WITHOUT ROWID",
    find_schema_table="SELECT max(name) FROM sqlite_master WHERE type = 'table' AND name = 'headwater_schema'",
)
# json and not jsonb: jsonb refuses \u0000, which a text cursor or an error message may hold.
POSTGRES = Dialect(
    json="json",
    moment="timestamptz",
    kind="entry->>'kind'",
    who="entry->>'who'",
    bytes="bytea",
    bytewise='text COLLATE "C"',
    by_key="",
    # Not to_regclass: it may answer from a cache that does not know yet what another session has just committed.
    find_schema_table="SELECT max(relname) FROM pg_class WHERE relname = 'headwater_schema' AND pg_table_is_visible(oid)",
)

MIGRATIONS = (
    Migration(
        1,
        "progress, one row per pipeline, and its history",
        (
            """CREATE TABLE headwater_progress (
                pipeline text PRIMARY KEY,
                version bigint NOT NULL,
                epoch bigint NOT NULL,
                mark {json},
                mark_text text,
                intent {json},
                updated_at {moment},
                lease_owner text,
                lease_expires_at {moment})""",
            """CREATE TABLE headwater_history (
                pipeline text NOT NULL,
                version bigint NOT NULL,
                at {moment} NOT NULL,
                entry {json} NOT NULL,
                PRIMARY KEY (pipeline, version))""",
        ),
    ),
    Migration(
        2,
        "what and who of a history entry as columns, so that rewinds are found by plain SQL",
        (
            "ALTER TABLE headwater_history ADD COLUMN kind text",
            "ALTER TABLE headwater_history ADD COLUMN who text",
            "UPDATE headwater_history SET kind = {kind}, who = {who}",
        ),
    ),
    Migration(
        3,
        "bookmarks, one per object, and digests of their listings",
        (
            """CREATE TABLE headwater_bookmarks (
                pipeline text NOT NULL,
                key {bytewise} NOT NULL,
                etag text NOT NULL,
                size bigint NOT NULL,
                modified bigint NOT NULL,
                generation bigint NOT NULL,
                state text NOT NULL,
                earlier boolean NOT NULL,
                tries integer NOT NULL,
                reason text NOT NULL,
                retry_at bigint,
                run text NOT NULL,
                PRIMARY KEY (pipeline, key)) {by_key}""",
            "CREATE INDEX headwater_bookmarks_generation ON headwater_bookmarks (pipeline, generation)",
            """CREATE INDEX headwater_bookmarks_failed ON headwater_bookmarks (pipeline, retry_at)
               WHERE state IN ('failed', 'aside')""",
            """CREATE TABLE headwater_bookmark_blocks (
                pipeline text NOT NULL,
                first_key {bytewise} NOT NULL,
                digest {bytes} NOT NULL,
                objects bigint NOT NULL,
                PRIMARY KEY (pipeline, first_key)) {by_key}""",
        ),
    ),
    Migration(
        4,
        "streams that their pipeline goes on without",
        ("ALTER TABLE headwater_progress ADD COLUMN waiting {json}",),
    ),
)
NEWEST = MIGRATIONS[-1].version


def schema_version(execute: Execute, dialect: Dialect) -> int:
    """0 where the tables were never created."""
    if execute(dialect.find_schema_table, {})[0][0] is None:
        return 0
    version = execute("SELECT max(version) FROM headwater_schema", {})[0][0]
    if not isinstance(version, int) or version < 1:
        raise StoreDamaged(f"headwater_schema says version {version!r}", hint="restore the tables from a backup")
    if version > NEWEST:
        raise StoreDamaged(
            f"the tables have version {version}, created by a newer Headwater; this one supports up to {NEWEST}",
            hint="run that version of Headwater, or newer",
        )
    return version


def upgrade(execute: Execute, dialect: Dialect, to: int = NEWEST) -> None:
    """Apply the missing steps. The caller holds a lock and commits all of them or none."""
    present = schema_version(execute, dialect)
    if present == 0:
        columns = f"version integer PRIMARY KEY, purpose text NOT NULL, applied_at {dialect.moment} NOT NULL"
        execute(f"CREATE TABLE headwater_schema ({columns})", {})
    for migration in MIGRATIONS:
        if present < migration.version <= to:
            for statement in migration.statements:
                execute(statement.format(**vars(dialect)), {})
            values = {"version": migration.version, "purpose": migration.purpose}
            execute("INSERT INTO headwater_schema VALUES (:version, :purpose, CURRENT_TIMESTAMP)", values)
