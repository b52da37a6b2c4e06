"""Whether a heap is still what the snapshot saw.

Rows are found by their places and columns by their names, and both are those of now, not of the snapshot: a table that
was rewritten (VACUUM FULL, CLUSTER, many an ALTER TABLE) or truncated has its rows elsewhere, or looks empty; a column
may go by another's name. The catalog's own rows are read in the snapshot, its caches know what is now: they must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from headwater.sources.postgres.copying.pages import HeapRange
from headwater.sources.postgres.copying.statement import CopiedColumn, describe_query
from headwater.sources.sql.postgres_types import kind_of

_HEAP = """
SELECT c.relfilenode::bigint, coalesce(pg_relation_filenode(c.oid), 0)::bigint FROM pg_class c
WHERE c.oid = %s::bigint::oid"""
_COLUMNS = """
SELECT attname, attnum::int FROM pg_attribute WHERE attrelid = %s::bigint::oid AND attnum > 0 AND NOT attisdropped"""
_NO_SUCH = ("42P01", "3F000", "42703")  # table, schema, column

Connection = psycopg.Connection[tuple[Any, ...]]


def what_changed(connection: Connection, heap: HeapRange, columns: Sequence[CopiedColumn]) -> str:
    """In words; empty: nothing. Holds the table's lock until the transaction ends, so that nothing will."""
    try:
        described = connection.execute(describe_query(columns, heap)).pgresult
    except psycopg.Error as error:
        if error.sqlstate not in _NO_SUCH:
            raise
        return f"{heap.schema}.{heap.name} or a column of it was dropped or renamed"
    storage = connection.execute(_HEAP, [heap.oid]).fetchone()
    if described is None or storage is None or described.ftable(0) != heap.oid:
        return f"{heap.schema}.{heap.name} is another table"
    if storage[0] != storage[1]:
        return f"{heap.schema}.{heap.name} was rewritten or truncated"
    numbers: Mapping[str, int] = dict(connection.execute(_COLUMNS, [heap.oid]).fetchall())
    for place, column in enumerate(columns, 1):
        if numbers.get(column.name) != described.ftablecol(place):
            return f"{heap.schema}.{heap.name}: column {column.name} is another one"
        kind = kind_of(described.ftype(place), described.fmod(place)) or "string"
        if column.kind not in (kind, "string"):
            return f"{heap.schema}.{heap.name}: column {column.name} got another type"
    return ""
