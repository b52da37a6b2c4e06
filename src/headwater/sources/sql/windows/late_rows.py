"""Rows that commit late (G6): which strategy a stream uses, and the one by transaction ids.

By transaction ids windows are complete on PostgreSQL tables, however late a row commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headwater.config.sources.sql import LookbackSettings, SqlSourceSettings
from headwater.model.errors import SourceChanged
from headwater.model.position.marks import ColumnMark
from headwater.model.position.seen_rows import SeenTransactions
from headwater.model.rows import Split
from headwater.model.types import CursorValue
from headwater.sources.sql import statements
from headwater.sources.sql.database import (
    Division,
    LateStrategy,
    Limits,
    Outcome,
    Relation,
    Stream,
    Ticker,
    View,
)
from headwater.sources.sql.statements import count_of
from headwater.sources.sql.windows.by_value import ByDigest, ByValue
from headwater.sources.sql.windows.watermark import (
    Bounds,
    TransactionPoll,
    check_nulls,
    check_same_database,
    parse_value,
    rewind_hint,
    start_value,
    strategy_warnings,
)

if TYPE_CHECKING:
    from headwater.sources.sql.dialects import Condition


@runtime_checkable
class TransactionView(View, Protocol):
    """A view of a database whose rows carry transaction ids."""

    @property
    def fingerprint(self) -> str:
        """Of the settings that decide which rows are read."""

    @property
    def poll(self) -> TransactionPoll | None:
        """The poll of a view for planning; None in a view for reading."""


class ByXid:
    """A `Strategy`."""

    def plan(self, stream: Stream, view: View) -> Outcome:
        """The rows that are visible, settled and not done by the start."""
        relation, settings, start = stream.relation, stream.settings, stream.start
        poll, fingerprint = _poll(view)
        _check_same_server(stream, poll)
        if start is not None and start.snapshot is not None and poll.settled.horizon < start.snapshot.horizon:
            lag = f"{relation.stream}: this standby has not yet replayed the transactions that the mark has seen"
            return Outcome(None, why=relation.why, warnings=(lag,))
        bounds = poll.bounds(relation, _bounds_before(relation, settings, start), fingerprint)
        search = _Search(relation, start, bounds, poll.seen(relation, bounds))
        top = search.top(view)
        nulls = search.count_nulls(view) if relation.nullable_cursor else 0
        changed = strategy_warnings(relation, start, start and start.edge)
        warnings = (*relation.warnings, *poll.warnings, *changed, *check_nulls(relation, settings.nulls, nulls))
        new_nulls = nulls if settings.nulls == "read" else 0
        if top is None and not new_nulls:
            end = search.renewed_start() if _is_old(stream, poll) else None
            return Outcome(end, 0, why=relation.why, warnings=warnings)
        value, cut = search.end_value(view, top, stream.limits)
        end = search.mark(value, cut=cut)
        is_full_read = start is None and bounds.floor is None and not cut and not settings.where
        rows = relation.rows if is_full_read else search.count(view, end) + new_nulls
        return Outcome(end, rows, cut, relation.why, warnings)

    def latest_mark(self, stream: Stream, view: View) -> ColumnMark:
        """Rows of transactions that are open now count as new."""
        relation, (poll, fingerprint) = stream.relation, _poll(view)
        bounds = replace(poll.bounds(relation, Bounds(), fingerprint), placed=True)
        search = _Search(relation, None, bounds, poll.seen(relation, bounds))
        return search.mark(search.top(view), cut=False)

    def splits(self, stream: Stream, end: ColumnMark, view: View, rows: int | None) -> tuple[Split, ...]:
        relation, subject, start = stream.relation, stream.relation.subject, stream.start
        bounds = Bounds.of(end)
        if bounds.placed or end.snapshot is None:
            return ()
        search = _Search(relation, start, bounds, end.snapshot)
        splits: list[Split] = []
        if end.value is not None:
            conditions = [] if _is_whole_view(stream, bounds, view) else search.conditions(end)
            if rows is None:
                rows = relation.rows if start is None else search.count(view, end)
            for range_conditions, share in view.ranges(relation, conditions, rows, stream.limits):
                sql = statements.read_rows(subject, relation.columns, [*range_conditions, *conditions])
                splits.append(view.split(sql, relation, share))
        if stream.settings.nulls == "read" and relation.nullable_cursor:
            nulls = statements.snapshot_nulls(subject, start, end.snapshot)
            splits.append(view.split(statements.read_rows(subject, relation.columns, nulls), relation, None))
        return tuple(splits)

    def done(self, stream: Stream, mark: ColumnMark) -> Division:
        relation, subject, bounds = stream.relation, stream.relation.subject, Bounds.of(mark)
        done: list[list[Condition]] = []
        rest = [statements.not_done(subject, mark, bounds.low, bounds.floor)]
        if mark.snapshot is not None and mark.value is not None:
            search = _Search(relation, None, bounds, mark.snapshot)
            done.append(search.conditions(mark))
        if mark.snapshot is not None and relation.nullable_cursor and stream.settings.nulls == "read":
            done.append(statements.snapshot_nulls(subject, None, mark.snapshot))
            rest.append(statements.new_nulls(subject, mark))
        elif relation.nullable_cursor:
            rest.append([statements.without_value(subject)])
        return Division(done, rest)


def _poll(view: View) -> tuple[TransactionPoll, str]:
    if not isinstance(view, TransactionView) or view.poll is None:
        raise TypeError("a plan by transaction ids needs a view that was taken with a poll of transactions")
    return view.poll, view.fingerprint


def _is_whole_view(stream: Stream, bounds: Bounds, view: View) -> bool:
    """True if the window has every row of its plan's view, so that the server need not compare them.

    All rows of such a view are settled if no transaction ended during the poll, and its end is the greatest value.
    """
    if not isinstance(view, TransactionView) or view.poll is None or not view.poll.view:
        return False
    if stream.relation.nullable_cursor:
        return False
    return stream.start is None and bounds.floor is None and not bounds.cut


class _Search:
    """The rows between a start and a poll: their conditions, counts and greatest value."""

    def __init__(self, relation: Relation, start: ColumnMark | None, bounds: Bounds, seen: SeenTransactions) -> None:
        self._relation, self._subject = relation, relation.subject
        self._start, self._bounds, self._seen = start, bounds, seen

    def conditions(self, end: ColumnMark | None) -> list[Condition]:
        return statements.snapshot_window(
            self._subject,
            self._start,
            end,
            low_start=None if self._bounds.swept else Bounds.of(self._start).low,
            low_end=self._bounds.low,
            floor=self._bounds.floor,
            seen=self._seen,
        )

    def top(self, view: View) -> CursorValue | None:
        rows = view.fetch(statements.top_value(self._subject, self.conditions(None)))
        return parse_value(self._relation, rows[0][0]) if rows else None

    def count(self, view: View, end: ColumnMark) -> int:
        return 0 if end.value is None else count_of(view, self._subject, self.conditions(end))

    def count_nulls(self, view: View) -> int:
        return count_of(view, self._subject, statements.snapshot_nulls(self._subject, self._start, self._seen))

    def end_value(self, view: View, top: CursorValue | None, limits: Limits) -> tuple[CursorValue | None, bool]:
        """The window's greatest value, and whether `max_rows` cut it. Late rows count and are never cut off."""
        order = self._subject.cursor_type.order
        before = self._start.value if self._start else None
        highest = max((value for value in (before, top) if value is not None), key=order, default=None)
        if limits.max_rows is None or top is None:
            return highest, False
        rows = view.fetch(statements.nth_value(self._subject, self.conditions(None), limits.max_rows))
        if not rows:
            return highest, False
        cut = parse_value(self._relation, rows[0][0])
        if before is not None and order(cut) < order(before):
            cut = before
        return cut, order(cut) < order(top)

    def renewed_start(self) -> ColumnMark:
        """The start with newer transaction ids; no row lies between the two."""
        self._bounds = replace(self._bounds, placed=True)
        return self.mark(self._start.value if self._start else None, cut=False)

    def mark(self, value: CursorValue | None, *, cut: bool) -> ColumnMark:
        subject = self._subject
        bounds = replace(self._bounds, cut=cut).to_json(subject.cursor_type)
        return ColumnMark(subject.cursor, subject.cursor_type, value, replace(self._seen, bounds=bounds))


def _bounds_before(relation: Relation, settings: SqlSourceSettings, start: ColumnMark | None) -> Bounds:
    if start is None:
        return Bounds(floor=start_value(relation, settings))
    # A mark without transaction ids (a rewind before the first run, another strategy) is a start value.
    return Bounds.of(start) if start.snapshot else Bounds(floor=start.value)


def _is_old(stream: Stream, poll: TransactionPoll) -> bool:
    """Transaction ids wrap around: the mark of an idle table must not fall behind the server's."""
    if stream.start is None or stream.start.snapshot is None:
        return False
    return poll.settled.horizon - stream.start.snapshot.horizon >= stream.tuning.renew_after_transactions


def _check_same_server(stream: Stream, poll: TransactionPoll) -> None:
    start, name, horizon = stream.start, stream.relation.stream, poll.settled.horizon
    if start is None or start.snapshot is None:
        return
    check_same_database(name, start, poll.cluster)
    seen = start.snapshot
    if horizon < seen.horizon and not poll.standby:
        raise SourceChanged(
            f"{name}: the server is at transaction {horizon}, the mark at {seen.horizon}: "
            "the server was restored from a backup, or failed over with loss",
            hint=rewind_hint(start),
        )
    if horizon - seen.horizon >= stream.tuning.oldest_transactions:
        raise SourceChanged(
            f"{name}: more than two billion transactions lie between the mark and now; late rows among "
            "them can no longer be distinguished from old ones",
            hint=rewind_hint(start),
        )


class Strategy(Protocol):
    """Plans and reads windows. Stateless: marks carry all that one poll passes to the next."""

    def plan(self, stream: Stream, view: View) -> Outcome:
        """The window after the stream's start, in a view for planning."""

    def latest_mark(self, stream: Stream, view: View) -> ColumnMark:
        """The mark for "only rows from now on", in a view for planning."""

    def splits(self, stream: Stream, end: ColumnMark, view: View, rows: int | None) -> tuple[Split, ...]:
        """The window up to `end`. The two marks alone decide, so every try covers the same rows (G5)."""

    def done(self, stream: Stream, mark: ColumnMark) -> Division:
        """The rows that have landed when a stream is at this mark, and the rows that have not."""


_STRATEGIES: Mapping[LateStrategy, Strategy] = {"xid": ByXid(), "digest": ByDigest(), "value": ByValue()}


def strategy_of(relation: Relation) -> Strategy:
    """The strategy that plans a stream: the catalog and the settings chose it."""
    return _STRATEGIES[relation.late]


def strategy_of_mark(mark: ColumnMark) -> Strategy:
    """The strategy that made a mark, whatever the settings choose today (G5)."""
    if mark.snapshot is not None:
        return _STRATEGIES["xid"]
    return _STRATEGIES["value" if mark.edge is None else "digest"]


@dataclass(frozen=True)
class Choice:
    """The strategy of a stream, and why."""

    strategy: LateStrategy
    why: str  # for `headwater plan`
    ticker: Ticker | None = None
    warnings: tuple[str, ...] = ()


def choice_of_setting(late: str | LookbackSettings) -> Choice | None:
    """The strategy that `late:` names for any database; None: the database decides."""
    if isinstance(late, LookbackSettings):
        return Choice("digest", f"late rows: rows up to {late.lookback} below the mark are read again and compared")
    return Choice("value", "late rows: not searched for (late: off)") if late == "off" else None
