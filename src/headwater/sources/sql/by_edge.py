"""Windows by digests of the rows at the mark: for SQLite, queries, views, and `late: {lookback: …}` (G6).

A mark keeps the digests of all rows from `since` up to its value. The next poll reads that stretch again and
takes what it does not know: rows that share the mark's value, rows that commit late but not further below
than the lookback, rows that changed there. Without a lookback the stretch is the mark's own value; that is
complete where writers come one after the other, as in SQLite, for numbers given out by the database.

    done(mark)  =  cursor < since  or  (cursor <= value  and  digest known)
    window      =  done(end)  and not  done(start)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.model.cursor import CursorValue
from headwater.model.errors import RunError
from headwater.model.marks import ColumnMark, EdgeSeen
from headwater.model.rows import Split
from headwater.sources.sql import statements
from headwater.sources.sql.by_value import cut_value, top_value
from headwater.sources.sql.digests import EdgeSplit, flagged_names
from headwater.sources.sql.late import another_way
from headwater.sources.sql.lookback import below_by
from headwater.sources.sql.nulls import judge_nulls
from headwater.sources.sql.relation import Relation
from headwater.sources.sql.start import first_value
from headwater.sources.sql.view import Outcome, Stream, View

if TYPE_CHECKING:
    from headwater.sources.sql.cursor_sql import Condition

DIGEST_CAP = 100_000


def plan_by_edge(stream: Stream, view: View) -> Outcome:
    """What is above the mark, and what is unknown in the stretch below it."""
    relation, subject, start = stream.relation, stream.relation.subject, stream.start
    edge = _Edge.of(stream)
    top = top_value(relation, view, edge.before)
    changed = another_way(relation, start, start and start.snapshot)
    warnings = (*relation.warnings, *changed, *_nulls(stream, view, news=top is not None))
    value, cut = (start.value if start else None), False
    if top is not None:
        value, cut = cut_value(relation, view, edge.before, top, stream.limits)
    since = edge.next_since(stream, value)
    kept, late = _digests(stream, view, edge, _Reach(since, value))
    newer = 0
    if top is not None:
        window = statements.value_window(subject, edge.before, value)
        newer = int(view.fetch(statements.count_rows(subject, window))[0][0])
    if not late and not newer:
        return Outcome(None, why=relation.why, warnings=warnings)
    end = ColumnMark(subject.cursor, subject.kind, value, edge=EdgeSeen(since, kept))
    return Outcome(end, newer + late, cut, relation.why, warnings)


def place_by_edge(stream: Stream, view: View) -> ColumnMark:
    """The mark for "only rows from now on": everything there is counts as read."""
    subject, edge = stream.relation.subject, _Edge()
    value = top_value(stream.relation, view, None)
    since = edge.next_since(stream, value)
    kept, _ = _digests(stream, view, edge, _Reach(since, value))
    return ColumnMark(subject.cursor, subject.kind, value, edge=EdgeSeen(since, kept))


def splits_by_edge(stream: Stream, end: ColumnMark, view: View, rows: int | None) -> tuple[Split, ...]:
    """Plain parts for what lies between the two stretches, and one that compares digests for the stretches."""
    relation, subject, columns = stream.relation, stream.relation.subject, stream.relation.columns
    edge, reached = _Edge.of(stream), end.edge or EdgeSeen(end.value)
    splits: list[Split] = []
    if reached.since is not None and (edge.before is None or _less(relation, edge.before, reached.since)):
        between = [] if edge.before is None else [statements.after_value(subject, edge.before)]
        between.append(statements.below(subject, reached.since))
        if rows is None:
            rows = int(view.fetch(statements.count_rows(subject, between))[0][0])
        for further, share in view.parts(relation, between, rows, stream.limits):
            sql = statements.read_rows(subject, columns, [*further, *between])
            splits.append(view.split(sql, relation, share))
    sql = _stretches(stream, edge, _Reach(reached.since, end.value), reading=True)
    if sql:
        about = len(edge.known) + len(reached.rows)
        splits.append(EdgeSplit(view.split(sql, relation, None, 2), columns, edge.known, reached.rows, about))
    return tuple(splits)


@dataclass(frozen=True)
class _Edge:
    """The start of a window, whichever way it came about."""

    since: CursorValue | None = None  # the stretch that the start's digests cover begins here; None: there is none
    upper: CursorValue | None = None  # and ends here
    known: frozenset[str] = frozenset()
    before: CursorValue | None = None  # at or below it only the stretch can bring something

    @classmethod
    def of(cls, stream: Stream) -> _Edge:
        start = stream.start
        if start is None:
            return cls(before=first_value(stream.relation, stream.settings))
        if start.edge is None:
            return cls(before=start.value)
        return cls(start.edge.since, start.value, start.edge.rows, start.value)

    def next_since(self, stream: Stream, value: CursorValue | None) -> CursorValue | None:
        """Where the next stretch begins: never below this one, whose lower rows nobody has named."""
        if value is None:
            return None
        kind = stream.relation.subject.kind
        wanted = below_by(value, stream.settings.late, kind, stream.relation.stream)
        limit = self.since if self.since is not None else self.before
        return wanted if limit is None else max(wanted, limit, key=kind.order)


@dataclass(frozen=True)
class _Reach:
    """The stretch that the end's digests cover."""

    since: CursorValue | None
    value: CursorValue | None


def _digests(stream: Stream, view: View, edge: _Edge, reach: _Reach) -> tuple[frozenset[str], int]:
    """The names of the rows in the next stretch, and how many in the former one are new."""
    relation = stream.relation
    sql = _stretches(stream, edge, reach, reading=False)
    if not sql:
        return frozenset(), 0
    kept: set[str] = set()
    late = 0
    for names, before, after in flagged_names(view.split(sql, relation, None, 2)):
        kept.update(name for name, high in zip(names, after, strict=True) if high)
        late += sum(1 for name, low in zip(names, before, strict=True) if low and name not in edge.known)
        if len(kept) > DIGEST_CAP:
            raise RunError(
                f"{relation.stream}: more than {DIGEST_CAP:,} rows share the greatest value of "
                f"{relation.subject.cursor}, or lie within the lookback; that many cannot be kept in a mark",
                hint="shorten the lookback, or choose a cursor with finer values",
            )
    return frozenset(kept), late


def _stretches(stream: Stream, edge: _Edge, reach: _Reach, *, reading: bool) -> str:
    """The rows of the former and the next stretch; for planning also those of the next that are not wanted."""
    relation, subject = stream.relation, stream.relation.subject
    regions: list[Condition] = []
    if edge.since is not None and edge.upper is not None:
        regions.append(
            statements.both([statements.from_value(subject, edge.since), statements.at_most(subject, edge.upper)])
        )
    if reach.since is not None and reach.value is not None:
        upper = [statements.from_value(subject, reach.since), statements.at_most(subject, reach.value)]
        if reading and edge.before is not None:
            upper.append(statements.above(subject, edge.before))
        regions.append(statements.both(upper))
    if stream.settings.nulls == "read" and relation.nullable_cursor:
        regions.append(statements.without_value(subject))
    if not regions:
        return ""
    read_before = statements.with_value(subject) if edge.upper is None else statements.above(subject, edge.upper)
    settled = statements.with_value(subject) if reach.since is None else statements.below(subject, reach.since)
    return statements.read_flagged(subject, relation.columns, [read_before, settled], [statements.either(*regions)])


def _nulls(stream: Stream, view: View, *, news: bool) -> tuple[str, ...]:
    """Without transaction numbers all NULLs are counted: for `fail` always, for `ignore` when there is news."""
    relation, setting = stream.relation, stream.settings.nulls
    if not relation.nullable_cursor or setting == "read":
        return ()
    if setting == "ignore" and not news and stream.start is not None:
        return ()
    sql = statements.count_rows(relation.subject, [statements.without_value(relation.subject)])
    return judge_nulls(relation, setting, int(view.fetch(sql)[0][0]))


def _less(relation: Relation, left: CursorValue, right: CursorValue) -> bool:
    order = relation.subject.kind.order
    return bool(order(left) < order(right))
