"""Where a first run begins (W3)."""

from __future__ import annotations

from headwater.config.sql_source import SqlSource
from headwater.model.cursor import CursorValue
from headwater.model.errors import InputError
from headwater.sources.sql.relation import Relation


def first_value(relation: Relation, settings: SqlSource) -> CursorValue | None:
    """`start:` as a value of the cursor's type; None: everything."""
    if settings.start is None or settings.start == "latest":
        return None
    try:
        return relation.subject.kind.from_json(settings.start)
    except ValueError as error:
        raise InputError(
            f"{relation.stream}: start: {error}", hint="write a value of the cursor's type, or latest"
        ) from None
