"""Windows by the cursor's value alone (`late: off`): rows that commit late, or share the mark's value, are lost."""

from __future__ import annotations

from headwater.model.cursor import CursorValue
from headwater.model.marks import ColumnMark
from headwater.model.rows import Split
from headwater.sources.sql import statements
from headwater.sources.sql.cursor_text import parse_value
from headwater.sources.sql.nulls import judge_nulls
from headwater.sources.sql.relation import Relation
from headwater.sources.sql.start import first_value
from headwater.sources.sql.view import Limits, Outcome, Stream, View


def plan_by_value(stream: Stream, view: View) -> Outcome:
    relation, subject, low = stream.relation, stream.relation.subject, _low(stream)
    top = top_value(relation, view, low)
    nulls = 0
    if stream.start is None and relation.nullable_cursor:
        nulls = int(view.fetch(statements.count_rows(subject, [statements.without_value(subject)]))[0][0])
    warnings = (*relation.warnings, *judge_nulls(relation, stream.settings.nulls, nulls))
    if top is None:
        return Outcome(None, why=relation.why, warnings=warnings)
    value, cut = cut_value(relation, view, low, top, stream.limits)
    window = statements.value_window(subject, low, value)
    rows = int(view.fetch(statements.count_rows(subject, window))[0][0])
    return Outcome(ColumnMark(subject.cursor, subject.kind, value), rows, cut, relation.why, warnings)


def place_by_value(relation: Relation, view: View) -> ColumnMark:
    """The mark for "only rows from now on"."""
    return ColumnMark(relation.subject.cursor, relation.subject.kind, top_value(relation, view, None))


def splits_by_value(stream: Stream, end: ColumnMark, view: View, rows: int | None) -> tuple[Split, ...]:
    if end.value is None:
        return ()
    relation = stream.relation
    conditions = statements.value_window(relation.subject, _low(stream), end.value)
    return tuple(
        view.split(statements.read_rows(relation.subject, relation.columns, [*further, *conditions]), relation, share)
        for further, share in view.parts(relation, conditions, rows, stream.limits)
    )


def top_value(relation: Relation, view: View, low: CursorValue | None) -> CursorValue | None:
    found = view.fetch(statements.top_value(relation.subject, statements.value_window(relation.subject, low, None)))
    return parse_value(relation, found[0][0]) if found else None


def cut_value(
    relation: Relation, view: View, low: CursorValue | None, top: CursorValue, limits: Limits
) -> tuple[CursorValue, bool]:
    """Where `max_rows` ends the window: rows that share a value stay together."""
    if limits.max_rows is None:
        return top, False
    window = statements.value_window(relation.subject, low, None)
    found = view.fetch(statements.nth_value(relation.subject, window, limits.max_rows))
    if not found:
        return top, False
    cut = parse_value(relation, found[0][0])
    return cut, relation.subject.kind.order(cut) < relation.subject.kind.order(top)


def _low(stream: Stream) -> CursorValue | None:
    return first_value(stream.relation, stream.settings) if stream.start is None else stream.start.value
