"""Windows by transaction numbers: complete on PostgreSQL tables, whatever commits late (G6)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.config.sql_source import SqlSource
from headwater.model.cursor import CursorValue
from headwater.model.errors import SourceChanged
from headwater.model.marks import ColumnMark, SnapshotSeen
from headwater.model.rows import Split
from headwater.sources.sql import late, statements
from headwater.sources.sql.cursor_text import parse_value
from headwater.sources.sql.late import Bounds, another_way, check_same_database, way_out
from headwater.sources.sql.nulls import judge_nulls
from headwater.sources.sql.postgres import PostgresView
from headwater.sources.sql.postgres_poll import Poll
from headwater.sources.sql.relation import Relation
from headwater.sources.sql.start import first_value
from headwater.sources.sql.view import Limits, Outcome, Stream

if TYPE_CHECKING:
    from headwater.sources.sql.cursor_sql import Condition


def plan_by_snapshot(stream: Stream, view: PostgresView, poll: Poll) -> Outcome:
    """What is visible, settled and not done by `start`."""
    relation, settings, start = stream.relation, stream.settings, stream.start
    _check_same_server(relation, start, poll)
    if start is not None and start.snapshot is not None and poll.seen.horizon < start.snapshot.horizon:
        lag = f"{relation.stream}: this standby has not yet reached the transactions that the mark has seen"
        return Outcome(None, why=relation.why, warnings=(lag,))
    bounds = poll.bounds(relation, _bounds_before(relation, settings, start), view.fingerprint)
    found = _Search(relation, start, bounds, poll.snapshot(relation, bounds))
    top = found.top(view)
    nulls = found.count_nulls(view) if relation.nullable_cursor else 0
    judged = judge_nulls(relation, settings.nulls, nulls)
    warnings = (*relation.warnings, *poll.warnings, *another_way(relation, start, start and start.edge), *judged)
    read_nulls = nulls if settings.nulls == "read" else 0
    if top is None and not read_nulls:
        end = found.renewed() if _is_old(start, poll) else None
        return Outcome(end, 0, why=relation.why, warnings=warnings)
    value, cut = found.end_value(view, top, stream.limits)
    end = found.mark(value, cut=cut)
    whole = start is None and bounds.floor is None and not cut and not settings.where
    rows = relation.rows if whole else found.count(view, end) + read_nulls
    return Outcome(end, rows, cut, relation.why, warnings)


def place_by_snapshot(relation: Relation, view: PostgresView, poll: Poll) -> ColumnMark:
    """The mark for "only rows from now on": what is in flight at this moment is from now on."""
    bounds = replace(poll.bounds(relation, Bounds(), view.fingerprint), placed=True)
    found = _Search(relation, None, bounds, poll.snapshot(relation, bounds))
    return found.mark(found.top(view), cut=False)


def splits_by_snapshot(stream: Stream, end: ColumnMark, view: PostgresView, rows: int | None) -> tuple[Split, ...]:
    """The window's parts. Made from the two marks alone, so every try covers the same rows (G5)."""
    relation, start = stream.relation, stream.start
    bounds = Bounds.of(end)
    if bounds.placed or end.snapshot is None:
        return ()
    found = _Search(relation, start, bounds, end.snapshot)
    splits: list[Split] = []
    if end.value is not None:
        conditions = [] if _is_all_that_is_seen(stream, bounds, view) else found.conditions(end)
        if rows is None:
            rows = relation.rows if start is None else found.count(view, end)
        for further, share in view.parts(relation, conditions, rows, stream.limits):
            sql = statements.read_rows(relation.subject, relation.columns, [*further, *conditions])
            splits.append(view.split(sql, relation, share))
    if stream.settings.nulls == "read" and relation.nullable_cursor:
        nulls = statements.snapshot_nulls(relation.subject, start, end.snapshot)
        splits.append(view.split(statements.read_rows(relation.subject, relation.columns, nulls), relation, None))
    return tuple(splits)


def _is_all_that_is_seen(stream: Stream, bounds: Bounds, view: PostgresView) -> bool:
    """Whether the window has every row of the view that it was planned in, so that the server need not compare them.

    All that such a view shows is settled if nothing ended while it was taken, and its end is the greatest value there.
    """
    if view.poll is None or not view.poll.view or stream.relation.nullable_cursor:
        return False
    return stream.start is None and bounds.floor is None and not bounds.cut


def rewound_snapshot(mark: ColumnMark, value: CursorValue) -> ColumnMark:
    """The mark moved to a value: rows above are read again, late ones below are still found.

    Moved forward, what lies up to the value is not wanted any more, late or not.
    """
    if mark.snapshot is None:
        return replace(mark, value=value, edge=None)
    order, bounds = mark.type.order, Bounds.of(mark)
    forward = mark.value is not None and order(value) > order(mark.value)
    floor = value if forward or (bounds.floor is not None and order(value) < order(bounds.floor)) else bounds.floor
    kept = replace(bounds, floor=floor, view="", cut=False, placed=False, swept=False)
    return replace(mark, value=value, snapshot=replace(mark.snapshot, bounds=kept.to_json(mark.type)), edge=None)


class _Search:
    """The rows between a start and a moment, as conditions and the questions asked of them."""

    def __init__(self, relation: Relation, start: ColumnMark | None, bounds: Bounds, seen: SnapshotSeen) -> None:
        self._relation, self._start, self._bounds, self._seen = relation, start, bounds, seen

    def conditions(self, end: ColumnMark | None) -> list[Condition]:
        return statements.snapshot_window(
            self._relation.subject,
            self._start,
            end,
            low_start=None if self._bounds.swept else Bounds.of(self._start).low,
            low_end=self._bounds.low,
            floor=self._bounds.floor,
            seen=self._seen,
        )

    def top(self, view: PostgresView) -> CursorValue | None:
        found = view.fetch(statements.top_value(self._relation.subject, self.conditions(None)))
        return parse_value(self._relation, found[0][0]) if found else None

    def count(self, view: PostgresView, end: ColumnMark) -> int:
        if end.value is None:
            return 0
        return int(view.fetch(statements.count_rows(self._relation.subject, self.conditions(end)))[0][0])

    def count_nulls(self, view: PostgresView) -> int:
        conditions = statements.snapshot_nulls(self._relation.subject, self._start, self._seen)
        return int(view.fetch(statements.count_rows(self._relation.subject, conditions))[0][0])

    def end_value(self, view: PostgresView, top: CursorValue | None, limits: Limits) -> tuple[CursorValue | None, bool]:
        """The window's greatest value, and whether a limit cut it. Late rows count and are never cut off."""
        order = self._relation.subject.kind.order
        before = self._start.value if self._start else None
        reached = [value for value in (before, top) if value is not None]
        highest = max(reached, key=order, default=None)
        if limits.max_rows is None or top is None:
            return highest, False
        sql = statements.nth_value(self._relation.subject, self.conditions(None), limits.max_rows)
        found = view.fetch(sql)
        if not found:
            return highest, False
        cut = parse_value(self._relation, found[0][0])
        if before is not None and order(cut) < order(before):
            cut = before
        return cut, order(cut) < order(top)

    def renewed(self) -> ColumnMark:
        """The start with newer transaction numbers; nothing lies between the two."""
        self._bounds = replace(self._bounds, placed=True)
        return self.mark(self._start.value if self._start else None, cut=False)

    def mark(self, value: CursorValue | None, *, cut: bool) -> ColumnMark:
        subject = self._relation.subject
        bounds = replace(self._bounds, cut=cut).to_json(subject.kind)
        return ColumnMark(subject.cursor, subject.kind, value, replace(self._seen, bounds=bounds))


def _bounds_before(relation: Relation, settings: SqlSource, start: ColumnMark | None) -> Bounds:
    if start is None:
        return Bounds(floor=first_value(relation, settings))
    # A mark without transaction numbers (a rewind before the first run, another way before) is a start value.
    return Bounds.of(start) if start.snapshot else Bounds(floor=start.value)


def _is_old(start: ColumnMark | None, poll: Poll) -> bool:
    """Numbers wrap around: the mark of a table where nothing happens must not fall behind the server's."""
    if start is None or start.snapshot is None:
        return False
    return poll.seen.horizon - start.snapshot.horizon >= late.RENEWED_AFTER


def _check_same_server(relation: Relation, start: ColumnMark | None, poll: Poll) -> None:
    if start is None or start.snapshot is None:
        return
    check_same_database(relation.stream, start, poll.server.cluster)
    seen = start.snapshot
    if poll.seen.horizon < seen.horizon and not poll.server.standby:
        raise SourceChanged(
            f"{relation.stream}: the server stands at transaction {poll.seen.horizon}, the mark at {seen.horizon}: "
            "it was restored from a backup, or failed over with loss",
            hint=way_out(start),
        )
    if poll.seen.horizon - seen.horizon >= late.OLDEST:
        raise SourceChanged(
            f"{relation.stream}: more than two billion transactions lie between the mark and now; late rows among "
            "them can no longer be told from old ones",
            hint=way_out(start),
        )
