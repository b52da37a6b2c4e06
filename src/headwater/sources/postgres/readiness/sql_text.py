"""SQL as text: names quoted, statements as they are shown and run."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from headwater.sources.postgres.readiness.facts import Table


def name(text: str) -> str:
    """A quoted name. Signs that would move a terminal's cursor are written by their numbers."""
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


def create_publication(publication: str, tables: Sequence[Table], *, via_root: bool) -> str:
    options = " WITH (publish_via_partition_root = true)" if via_root else ""
    return f"CREATE PUBLICATION {name(publication)} FOR TABLE {names(tables)}{options}"


def add_to_publication(publication: str, tables: Sequence[Table]) -> str:
    return f"ALTER PUBLICATION {name(publication)} ADD TABLE {names(tables)}"


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
