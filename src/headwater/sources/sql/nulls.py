"""What happens to rows whose cursor is NULL: they are read or reported, never skipped in silence (G6)."""

from __future__ import annotations

from headwater.model.errors import NullCursor
from headwater.sources.sql.relation import Relation


def judge_nulls(relation: Relation, setting: str, count: int) -> tuple[str, ...]:
    """The warning for `ignore`, the error for `fail`, nothing for `read`; `count` are those not counted before."""
    if not count or setting == "read":
        return ()
    rows = f"{count} row{'s' if count != 1 else ''}"
    cursor = relation.subject.cursor
    if setting == "fail":
        raise NullCursor(
            f"{relation.stream}: {rows} without a value in the cursor {cursor}",
            hint="give them one, or write nulls: read (each once) or nulls: ignore",
        )
    return (f"{relation.stream}: {rows} without a value in the cursor {cursor} left out (nulls: ignore)",)
