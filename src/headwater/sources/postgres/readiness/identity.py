"""Replica identities: by what PostgreSQL tells which row an UPDATE or DELETE was about.

Once a table is published that has none, UPDATE and DELETE fail in the application that runs them.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.sources.postgres.readiness import sql_text
from headwater.sources.postgres.readiness.facts import Table


def identity_problem(table: Table) -> str | None:
    """Why the table has no usable replica identity; None if it has one. Of a partitioned table the leaves matter."""
    if table.kind == "partitioned table":
        return None
    if table.identity == "nothing":
        return "its replica identity is NOTHING"
    if table.identity == "index" and table.identity_index is None:
        return "the index of its replica identity is gone"
    if table.identity == "default" and not table.key:
        return "it has no primary key"
    if table.identity == "default" and table.key_deferrable:
        return "its primary key is deferrable, which cannot be a replica identity"
    return None


def without_identity(tables: Sequence[Table]) -> list[Table]:
    """The tables, or partitions of them, whose UPDATEs and DELETEs would fail once they are published."""
    rows = [leaf for table in tables for leaf in (table.partitions or (table,))]
    return [table for table in rows if identity_problem(table) is not None]


def identity_text(table: Table) -> str:
    if table.kind == "partitioned table":
        count = len(table.partitions)
        return f"{count} partition{'' if count == 1 else 's'}"
    if table.identity == "index":
        return f"replica identity by index {table.identity_index}"
    return f"replica identity {table.identity}"


def remedies(table: Table) -> Sequence[str]:
    """Statements each of which gives it one; the best first."""
    ways = []
    if table.key and not table.key_deferrable:
        ways.append(sql_text.replica_identity(table, "default"))
    ways += [sql_text.replica_identity(table, index) for index in table.unique_indexes]
    return [*ways, sql_text.replica_identity(table, "full")]
