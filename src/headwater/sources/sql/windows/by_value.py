"""Windows by the cursor's value: with digests of the rows at the mark (G6), or by the value alone (`late: off`)."""

from __future__ import annotations

import datetime as dt
import decimal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.config.sources.sql import LookbackSettings
from headwater.model.errors import InputError, RunError
from headwater.model.position.marks import ColumnMark
from headwater.model.position.seen_rows import SeenDigests
from headwater.model.rows import Split
from headwater.model.types import CursorType, CursorValue
from headwater.sources.sql import statements
from headwater.sources.sql.database import Division, Limits, Outcome, Relation, Stream, Subject, View
from headwater.sources.sql.statements import count_of
from headwater.sources.sql.windows.digests import DigestSplit, flagged_digests
from headwater.sources.sql.windows.watermark import check_nulls, parse_value, start_value, strategy_warnings

if TYPE_CHECKING:
    from headwater.sources.sql.dialects import Condition

# A mark holds the digests of all rows from `since` up to its value. The next poll reads that range again and
# takes the rows whose digests the mark lacks: rows that share the mark's value, rows that commit late but not
# further below than the lookback, rows that changed there. Without a lookback the range is the mark's value alone;
# that is complete where writers commit one after the other, as in SQLite, for numbers that the database assigns.
#
#     done(mark) :=  cursor < since  or  (cursor <= value  and  digest in mark)
#     window     :=  done(end)  and not  done(start)


class ByDigest:
    """A `Strategy`."""

    def plan(self, stream: Stream, view: View) -> Outcome:
        """The rows above the mark, and the rows without a digest in the range below it."""
        relation, subject, start = stream.relation, stream.relation.subject, stream.start
        before = _StartRange.of(stream)
        top = top_value(relation, view, before.low)
        changed = strategy_warnings(relation, start, start and start.snapshot)
        warnings = (*relation.warnings, *changed, *_check_all_nulls(stream, view, news=top is not None))
        value, cut = (start.value if start else None), False
        if top is not None:
            value, cut = cut_value(relation, view, before.low, top, stream.limits)
        after = _EndRange(before.next_since(stream, value), value)
        digests, late = _digests(stream, view, before, after)
        newer = 0
        if top is not None:
            newer = count_of(view, subject, statements.value_window(subject, before.low, value))
        if not late and not newer:
            return Outcome(None, why=relation.why, warnings=warnings)
        return Outcome(_mark(subject, after, digests), newer + late, cut, relation.why, warnings)

    def latest_mark(self, stream: Stream, view: View) -> ColumnMark:
        """Every existing row counts as read."""
        before, value = _StartRange(), top_value(stream.relation, view, None)
        after = _EndRange(before.next_since(stream, value), value)
        digests, _ = _digests(stream, view, before, after)
        return _mark(stream.relation.subject, after, digests)

    def splits(self, stream: Stream, end: ColumnMark, view: View, rows: int | None) -> tuple[Split, ...]:
        """Plain splits for the rows between the two ranges, and one that compares digests for the ranges."""
        relation, subject, columns = stream.relation, stream.relation.subject, stream.relation.columns
        before, seen = _StartRange.of(stream), end.edge or SeenDigests(end.value)
        order = subject.cursor_type.order
        splits: list[Split] = []
        if seen.since is not None and (before.low is None or order(before.low) < order(seen.since)):
            between = [] if before.low is None else [statements.after_value(subject, before.low)]
            between.append(statements.below(subject, seen.since))
            if rows is None:
                rows = count_of(view, subject, between)
            for bounds, share in view.ranges(relation, between, rows, stream.limits):
                sql = statements.read_rows(subject, columns, [*bounds, *between])
                splits.append(view.split(sql, relation, share))
        sql = _flagged_ranges(stream, before, _EndRange(seen.since, end.value), new_only=True)
        if sql:
            estimate = len(before.digests) + len(seen.rows)
            flagged = view.split(sql, relation, None, 2)
            splits.append(DigestSplit(flagged, columns, before.digests, seen.rows, estimate))
        return tuple(splits)

    def done(self, stream: Stream, mark: ColumnMark) -> Division:
        relation, subject = stream.relation, stream.relation.subject
        low, seen = start_value(relation, stream.settings), mark.edge or SeenDigests(mark.value)
        done: list[list[Condition]] = []
        compared: list[Condition] = []
        if seen.since is not None:
            above = [] if low is None else [statements.after_value(subject, low)]
            done.append([*above, statements.below(subject, seen.since)])
            if mark.value is not None:
                compared.append(_between(subject, seen.since, mark.value))
        rest = [statements.value_window(subject, mark.value, None)]
        if relation.nullable_cursor and stream.settings.nulls == "read":
            compared.append(statements.without_value(subject))
        elif relation.nullable_cursor:
            rest.append([statements.without_value(subject)])
        return Division(done, rest, compared, seen.rows)


@dataclass(frozen=True)
class _StartRange:
    """The range of the digests that a window starts with."""

    since: CursorValue | None = None  # where it begins; None: the start has no digests
    upper: CursorValue | None = None  # where it ends
    digests: frozenset[str] = frozenset()
    low: CursorValue | None = None  # at or below it, only rows of the range can be new

    @classmethod
    def of(cls, stream: Stream) -> _StartRange:
        start = stream.start
        if start is None:
            return cls(low=start_value(stream.relation, stream.settings))
        if start.edge is None:
            return cls(low=start.value)
        return cls(start.edge.since, start.value, start.edge.rows, start.value)

    def next_since(self, stream: Stream, value: CursorValue | None) -> CursorValue | None:
        """Where the next range begins: never below this one, as no mark has digests of the rows there."""
        if value is None:
            return None
        cursor_type = stream.relation.subject.cursor_type
        since = below_by(value, stream.settings.late, cursor_type, stream.relation.stream)
        limit = self.since if self.since is not None else self.low
        return since if limit is None else max(since, limit, key=cursor_type.order)


@dataclass(frozen=True)
class _EndRange:
    """The range of the digests that a window ends with."""

    since: CursorValue | None
    value: CursorValue | None


def _mark(subject: Subject, after: _EndRange, digests: frozenset[str]) -> ColumnMark:
    return ColumnMark(subject.cursor, subject.cursor_type, after.value, edge=SeenDigests(after.since, digests))


def _digests(stream: Stream, view: View, before: _StartRange, after: _EndRange) -> tuple[frozenset[str], int]:
    """The digests of the rows in the end's range, and how many rows in the start's range are new."""
    relation, limit = stream.relation, stream.tuning.max_digests
    sql = _flagged_ranges(stream, before, after, new_only=False)
    if not sql:
        return frozenset(), 0
    digests: set[str] = set()
    late = 0
    for batch, in_start, in_end in flagged_digests(view.split(sql, relation, None, 2)):
        digests.update(digest for digest, inside in zip(batch, in_end, strict=True) if inside)
        late += sum(1 for digest, low in zip(batch, in_start, strict=True) if low and digest not in before.digests)
        if len(digests) > limit:
            raise RunError(
                f"{relation.stream}: more than {limit:,} rows share the greatest value of "
                f"{relation.subject.cursor}, or lie within the lookback; a mark cannot hold that many digests",
                hint="shorten the lookback, or choose a cursor with finer values",
            )
    return frozenset(digests), late


def _flagged_ranges(stream: Stream, before: _StartRange, after: _EndRange, *, new_only: bool) -> str:
    """The rows of the start's and the end's range; a plan also needs those of the end's range that were read before."""
    relation, subject = stream.relation, stream.relation.subject
    ranges: list[Condition] = []
    if before.since is not None and before.upper is not None:
        ranges.append(_between(subject, before.since, before.upper))
    if after.since is not None and after.value is not None:
        upper = [statements.from_value(subject, after.since), statements.at_most(subject, after.value)]
        if new_only and before.low is not None:
            upper.append(statements.above(subject, before.low))
        ranges.append(statements.both(upper))
    if stream.settings.nulls == "read" and relation.nullable_cursor:
        ranges.append(statements.without_value(subject))
    if not ranges:
        return ""
    above_start = statements.with_value(subject) if before.upper is None else statements.above(subject, before.upper)
    below_end = statements.with_value(subject) if after.since is None else statements.below(subject, after.since)
    return statements.read_flagged(subject, relation.columns, [above_start, below_end], [statements.either(*ranges)])


def _between(subject: Subject, since: CursorValue, upper: CursorValue) -> Condition:
    return statements.both([statements.from_value(subject, since), statements.at_most(subject, upper)])


def _check_all_nulls(stream: Stream, view: View, *, news: bool) -> tuple[str, ...]:
    """Without transaction ids all NULLs are counted: for `fail` always, for `ignore` when there are new rows."""
    relation, setting = stream.relation, stream.settings.nulls
    if not relation.nullable_cursor or setting == "read":
        return ()
    if setting == "ignore" and not news and stream.start is not None:
        return ()
    subject = relation.subject
    return check_nulls(relation, setting, count_of(view, subject, [statements.without_value(subject)]))


def below_by(value: CursorValue, late: str | LookbackSettings, cursor_type: CursorType, stream: str) -> CursorValue:
    """The value itself, or the lookback below it."""
    if not isinstance(late, LookbackSettings):
        return value
    distance = late.lookback
    if isinstance(value, dt.date) and isinstance(distance, dt.timedelta):
        if isinstance(value, dt.datetime):
            earliest = dt.datetime.min.replace(tzinfo=value.tzinfo)
            return value - distance if value - earliest > distance else earliest
        days = dt.timedelta(days=-(-distance // dt.timedelta(days=1)))  # part of a day reaches the day before
        return value - days if value - dt.date.min > days else dt.date.min
    number = _number(distance)
    if number is not None and cursor_type is CursorType.DECIMAL:
        return decimal.Decimal(value) - number  # type: ignore[arg-type]
    if number is not None and cursor_type is CursorType.INTEGER and number == int(number):
        return int(value) - int(number)  # type: ignore[arg-type]
    expected = {
        CursorType.INTEGER: "a whole number, such as 1000",
        CursorType.DECIMAL: "a number, such as 12.5",
        CursorType.STRING: "none: a string has no distance; use an id or a time as cursor",
        CursorType.UUID: "none: a UUID has no distance; use an id or a time as cursor",
    }.get(cursor_type, "a duration, such as 10m")
    raise InputError(
        f"{stream}: lookback {distance} does not fit a cursor of type {cursor_type.value}", hint=f"write {expected}"
    )


def _number(distance: dt.timedelta | int | str) -> decimal.Decimal | None:
    if isinstance(distance, dt.timedelta):
        return None
    try:
        number = decimal.Decimal(distance)
    except decimal.InvalidOperation:
        return None
    return number if number.is_finite() and number >= 0 else None


class ByValue:
    """A `Strategy`."""

    def plan(self, stream: Stream, view: View) -> Outcome:
        relation, subject, low = stream.relation, stream.relation.subject, _low(stream)
        top = top_value(relation, view, low)
        nulls = 0
        if stream.start is None and relation.nullable_cursor:
            nulls = count_of(view, subject, [statements.without_value(subject)])
        warnings = (*relation.warnings, *check_nulls(relation, stream.settings.nulls, nulls))
        if top is None:
            return Outcome(None, why=relation.why, warnings=warnings)
        value, cut = cut_value(relation, view, low, top, stream.limits)
        rows = count_of(view, subject, statements.value_window(subject, low, value))
        return Outcome(ColumnMark(subject.cursor, subject.cursor_type, value), rows, cut, relation.why, warnings)

    def latest_mark(self, stream: Stream, view: View) -> ColumnMark:
        subject = stream.relation.subject
        return ColumnMark(subject.cursor, subject.cursor_type, top_value(stream.relation, view, None))

    def splits(self, stream: Stream, end: ColumnMark, view: View, rows: int | None) -> tuple[Split, ...]:
        if end.value is None:
            return ()
        relation, subject = stream.relation, stream.relation.subject
        window = statements.value_window(subject, _low(stream), end.value)
        return tuple(
            view.split(statements.read_rows(subject, relation.columns, [*bounds, *window]), relation, share)
            for bounds, share in view.ranges(relation, window, rows, stream.limits)
        )

    def done(self, stream: Stream, mark: ColumnMark) -> Division:
        relation, subject = stream.relation, stream.relation.subject
        low = start_value(relation, stream.settings)
        done = [] if mark.value is None else [statements.value_window(subject, low, mark.value)]
        nulls = [[statements.without_value(subject)]] if relation.nullable_cursor else []
        return Division(done, [statements.value_window(subject, mark.value, None), *nulls])


def top_value(relation: Relation, view: View, low: CursorValue | None) -> CursorValue | None:
    """The greatest cursor value above `low`."""
    rows = view.fetch(statements.top_value(relation.subject, statements.value_window(relation.subject, low, None)))
    return parse_value(relation, rows[0][0]) if rows else None


def cut_value(
    relation: Relation, view: View, low: CursorValue | None, top: CursorValue, limits: Limits
) -> tuple[CursorValue, bool]:
    """Where `max_rows` ends the window: rows that share a value stay together."""
    if limits.max_rows is None:
        return top, False
    window = statements.value_window(relation.subject, low, None)
    rows = view.fetch(statements.nth_value(relation.subject, window, limits.max_rows))
    if not rows:
        return top, False
    cut, order = parse_value(relation, rows[0][0]), relation.subject.cursor_type.order
    return cut, order(cut) < order(top)


def _low(stream: Stream) -> CursorValue | None:
    return start_value(stream.relation, stream.settings) if stream.start is None else stream.start.value
