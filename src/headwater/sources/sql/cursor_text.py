"""Cursor values as databases print them, read back exactly."""

from __future__ import annotations

from headwater.model.cursor import CursorType, CursorValue
from headwater.model.errors import ValueNotKept
from headwater.sources.sql.relation import Relation

_TIMES = (CursorType.TIMESTAMP, CursorType.TIMESTAMPTZ)


def parse_value(relation: Relation, printed: object) -> CursorValue:
    """The value of a text that the database made of a cursor. What has no place in a mark is refused (G8)."""
    kind = relation.subject.kind
    text = printed if isinstance(printed, str) else str(printed)
    if kind is CursorType.TIMESTAMPTZ and relation.subject.dialect != "postgres":
        text += "+00:00"
    try:
        return kind.from_json(text.replace(" ", "T", 1) if kind in _TIMES else text)
    except ValueError:
        name = relation.subject.cursor
        raise ValueNotKept(
            f"{relation.stream}: the cursor {name} has the value {text}, which cannot be a mark of type {kind.value}",
            hint=f"correct the row, or leave such rows out, for example where: {name} < …",
        ) from None
