"""From a column's type in PostgreSQL to the kind that it is read as, the same in copies and in the log."""

from __future__ import annotations

from collections.abc import Collection

from headwater.sources.postgres.log.layout import Layout, LoggedColumn
from headwater.sources.sql.postgres_session import PostgresSession
from headwater.sources.sql.postgres_types import kind_of

_TEXT = "string"
_FIRST_OF_OTHERS = 10_000  # types below it are PostgreSQL's own, and none of them is a domain
# A domain's modifier stands with the last of the domains that it is made of. A type that is gone has no row.
_TYPES = """
WITH RECURSIVE base(oid, modifier, at, held) AS (
    SELECT oid, modifier, oid, modifier FROM unnest(%s::bigint[]::oid[], %s::int[]) AS asked(oid, modifier)
    UNION ALL SELECT b.oid, b.modifier, t.typbasetype, t.typtypmod
        FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.at AND t.typtype = 'd')
SELECT b.oid::bigint, b.modifier, b.at::bigint, b.held, pg_catalog.format_type(b.oid, b.modifier)
FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.at AND t.typtype <> 'd'"""

_Type = tuple[int, int]  # oid and modifier


class Kinds:
    """What the catalog says of types is asked once; a type that is gone is asked for again, it may only be too new."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session
        self._bases: dict[_Type, _Type] = {}
        self._names: dict[_Type, str] = {}

    def of(self, layout: Layout, as_text: Collection[str]) -> tuple[str, ...]:
        """A kind of `sources/sql/types.py` per column: a domain counts as what it is made of, all else is text."""
        others = [column for column in layout.columns if column.type >= _FIRST_OF_OTHERS and column.name not in as_text]
        self._learn(others)
        return tuple(_TEXT if column.name in as_text else self._kind(column) for column in layout.columns)

    def declared(self, layout: Layout) -> tuple[str, ...]:
        """The server's own names of the types, for messages."""
        self._learn(layout.columns)
        return tuple(self._names.get(_type(column), f"type {column.type}") for column in layout.columns)

    def _kind(self, column: LoggedColumn) -> str:
        return kind_of(*self._bases.get(_type(column), _type(column))) or _TEXT

    def _learn(self, columns: Collection[LoggedColumn]) -> None:
        unknown = sorted({_type(column) for column in columns} - self._bases.keys())
        if not unknown:
            return
        asked = [[oid for oid, _ in unknown], [modifier for _, modifier in unknown]]
        for oid, modifier, base, held, name in self._session.fetch(_TYPES, asked):
            self._bases[oid, modifier] = (base, held)
            self._names[oid, modifier] = name


def _type(column: LoggedColumn) -> _Type:
    return column.type, column.modifier
