"""SQL as text: names quoted, statements as they are shown and run; replica identities and how to set them."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from headwater.pg.catalog import Table


def name(text: str) -> str:
    """A quoted name. Characters that would move a terminal's cursor are written by their numbers."""
    if text.isprintable():
        return sql.Identifier(text).as_string()
    letters = (
        letter.replace("\\", "\\\\").replace('"', '""') if letter.isprintable() else f"\\+{ord(letter):06X}"
        for letter in text
    )
    return f'U&"{"".join(letters)}"'


def table_name(table: Table) -> str:
    return f"{name(table.schema)}.{name(table.name)}"


def names(tables: Sequence[Table]) -> str:
    return ", ".join(table_name(table) for table in tables)


def literal(text: str) -> str:
    return sql.Literal(text).as_string()


def create_publication(publication: str, entries: str, *, via_root: bool, generated: bool = False) -> str:
    """`entries` are names of tables (`names`), each with its columns and its condition, if any."""
    options = [
        *(["publish_via_partition_root = true"] if via_root else []),
        *(["publish_generated_columns = stored"] if generated else []),
    ]
    return f"CREATE PUBLICATION {name(publication)} FOR TABLE {entries}" + (
        f" WITH ({', '.join(options)})" if options else ""
    )


def add_to_publication(publication: str, entries: str) -> str:
    return f"ALTER PUBLICATION {name(publication)} ADD TABLE {entries}"


def drop_from_publication(publication: str, tables: str) -> str:
    return f"ALTER PUBLICATION {name(publication)} DROP TABLE {tables}"


def publish_via_root(publication: str, *, on: bool) -> str:
    return f"ALTER PUBLICATION {name(publication)} SET (publish_via_partition_root = {str(on).lower()})"


def publish_operations(publication: str) -> str:
    return f"ALTER PUBLICATION {name(publication)} SET (publish = 'insert, update, delete, truncate')"


def replica_identity(table: Table, identity: str) -> str:
    """`full`, `default`, or the name of an index."""
    word = identity.upper() if identity in {"full", "default"} else f"USING INDEX {name(identity)}"
    return f"ALTER TABLE {table_name(table)} REPLICA IDENTITY {word}"


def grant_usage(schema: str, role: str) -> str:
    return f"GRANT USAGE ON SCHEMA {name(schema)} TO {name(role)}"


def grant_select(tables: Sequence[Table], role: str) -> str:
    return f"GRANT SELECT ON TABLE {names(tables)} TO {name(role)}"


def allow_replication(role: str, *, rds: bool) -> str:
    return f"GRANT rds_replication TO {name(role)}" if rds else f"ALTER ROLE {name(role)} REPLICATION"


def create_role(role: str, *, rds: bool) -> str:
    return f"CREATE ROLE {name(role)} LOGIN{'' if rds else ' REPLICATION'}"


def create_slot(slot: str) -> str:
    return f"SELECT pg_create_logical_replication_slot({literal(slot)}, 'pgoutput')"


# Replica identities. UPDATE and DELETE of a published table without one fail in the application.


def identity_problem(table: Table) -> str | None:
    """Why the table has no usable replica identity; None if it has one. For a partitioned table its leaves count."""
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
    leaves = [leaf for table in tables for leaf in (table.partitions or (table,))]
    return [table for table in leaves if identity_problem(table) is not None]


def identity_text(table: Table) -> str:
    if table.kind == "partitioned table":
        count = len(table.partitions)
        return f"{count} partition{'' if count == 1 else 's'}"
    if table.identity == "index":
        return f"replica identity by index {table.identity_index}"
    return f"replica identity {table.identity}"


def remedies(table: Table) -> Sequence[str]:
    """Statements that set a replica identity; the best first."""
    statements = []
    if table.key and not table.key_deferrable:
        statements.append(replica_identity(table, "default"))
    statements += [replica_identity(table, index) for index in table.unique_indexes]
    return [*statements, replica_identity(table, "full")]


def kind_problem(table: Table) -> tuple[str, str, tuple[str, ...]] | None:
    """Why no publication can hold the relation, what to do, and the SQL for it; None if one can."""
    if table.kind in {"view", "materialized view"}:
        return f"is a {table.kind}, which has no changes of its own", "name the tables that it reads", ()
    if table.kind == "foreign table":
        return "is a foreign table: its rows are in another server's WAL", "capture them there", ()
    if table.persistence == "temporary":
        return "is temporary, and not in the WAL", "use a permanent table", ()
    if table.persistence == "unlogged":
        remedy = "make it a logged table (this writes it to the WAL once), or leave it out"
        return (
            "is unlogged: its changes are not in the WAL",
            remedy,
            (f"ALTER TABLE {table_name(table)} SET LOGGED",),
        )
    return None
