"""The SQL text of a copy, as pure functions. Every value is either exact in COPY's binary format, or the very text that
the log has: what the type's output function makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from headwater.sources.postgres.copying.pages import HeapRange

# Types whose binary form is their text: name, text, json, char(n) with its padding, varchar.
_SENT_AS_TEXT = frozenset({19, 25, 114, 1042, 1043})
_TEXT = "string"

Item = tuple[int, int]
"""A row's page, and its number there: its ctid."""


@dataclass(frozen=True)
class CopiedColumn:
    """A column as it is read: by its kind, or as text."""

    name: str
    kind: str  # of `sources/sql/types.py`
    type: int  # oid
    declared: str = ""  # the server's name of the type, for messages

    @property
    def expression(self) -> str:
        """As text: not by a cast, which is another function for bool, char(n), inet, "char" or xml.

        `concat` calls the output function, but makes an empty text of NULL; and a composite of NULLs IS NULL.
        """
        name = identifier(self.name)
        if self.kind != _TEXT or self.type in _SENT_AS_TEXT:
            return name
        return f"CASE WHEN {name} IS DISTINCT FROM NULL THEN pg_catalog.concat({name}) END"


def copy_query(columns: Sequence[CopiedColumn], heap: HeapRange, where: str, behind: Item | None) -> str:
    """The values of each row, then its place; in the order of places, and only those behind one that is done.

    A place in front, with the next field's width, would often look like the head of a row (`copy_stream`).
    """
    chosen = ", ".join([*(column.expression for column in columns), "ctid"])
    low = f"ctid > '({behind[0]},{behind[1]})'::tid" if behind else f"ctid >= '({heap.first},0)'::tid"
    high = f" AND ctid < '({heap.end},0)'::tid" if heap.end is not None else ""
    # The condition is the user's own SQL: on lines of its own, so that a comment in it ends there.
    more = f" AND (\n{where}\n)" if where else ""
    return f"SELECT {chosen} FROM ONLY {heap_name(heap)} WHERE {low}{high}{more}"  # noqa: S608 - names are quoted


def describe_query(columns: Sequence[CopiedColumn], heap: HeapRange) -> str:
    """No rows: the names and types as they are now. Whoever runs it holds the table's lock from then on."""
    chosen = ", ".join(["ctid", *(identifier(column.name) for column in columns)])
    return f"SELECT {chosen} FROM ONLY {heap_name(heap)} LIMIT 0"  # noqa: S608 - names are quoted


def heap_name(heap: HeapRange) -> str:
    return f"{identifier(heap.schema)}.{identifier(heap.name)}"


def identifier(name: str) -> str:
    return sql.Identifier(name).as_string()
