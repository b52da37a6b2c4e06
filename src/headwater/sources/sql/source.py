"""The `sql` source: plans and reads windows of one or several streams.

A strategy (`windows/`) plans the window of one stream. The source combines them: one view for all streams of a plan, one
mark for one or several streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headwater.config.sources.sql import SqlSourceSettings
from headwater.model.errors import HeadwaterError, SourceChanged, UnknownName, is_of_one_stream
from headwater.model.position.marks import ColumnMark, Mark, StreamsMark
from headwater.model.position.window import Window
from headwater.model.protocols.source import Claim, ComparisonPoint, CurrentRows, Plan, StreamPlan
from headwater.model.rows import Reject, Rows
from headwater.sources.sql.database import (
    DEFAULT_TUNING,
    AssignsTransactionIds,
    Database,
    Limits,
    Outcome,
    Relation,
    Stream,
    Tuning,
    View,
)
from headwater.sources.sql.windows.late_rows import strategy_of, strategy_of_mark
from headwater.sources.sql.windows.watermark import rewound_marks, start_value

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


@dataclass(frozen=True)
class _OpenWindow:
    """A window with the view that it is read in."""

    window: Window
    relations: Mapping[str, Relation]
    view: View
    rows: Mapping[str, int | None]


class SqlSource:
    """Tables or a query of one database. The view of a plan stays open until its window has been read."""

    def __init__(
        self, settings: SqlSourceSettings, database: Database, cores: int, tuning: Tuning = DEFAULT_TUNING
    ) -> None:
        self._settings, self._database, self._tuning = settings, database, tuning
        self._limits = Limits(settings.max_rows, settings.splits, cores)
        self._open: _OpenWindow | None = None
        self._last_warnings: frozenset[str] = frozenset()

    @property
    def address(self) -> str:
        return self._database.address

    def plan(
        self,
        mark: Mark | None,
        *,
        claim: Claim | None = None,  # noqa: ARG002 - a plan claims nothing here
        skip: frozenset[str] = frozenset(),
    ) -> Plan:
        self._end_view()
        marks = self._marks_by_stream(mark)
        if self._database.is_unchanged(marks):
            return Plan(None)
        try:
            plan = self._plan_streams(mark, marks, skip)
        except BaseException:
            self._end_view()
            raise
        if plan.window is None:
            if not plan.refused and not skip:  # else new rows may exist
                self._database.remember_unchanged(marks)
            self._end_view()
        self._database.finish_plan()
        return plan

    def apart(self, window: Window, streams: frozenset[str]) -> tuple[Window, Window] | None:
        if self._settings.tables is None:
            return None
        starts, ends = self._marks_by_stream(window.start), self._marks_by_stream(window.end)
        apart_starts, apart_ends = (
            {name: marks[name] for name in marks if name in streams} for marks in (starts, ends)
        )
        others = {name: end for name, end in ends.items() if name not in streams}
        # Its start is not None where no row was read yet: `start:` has been applied.
        apart = Window(StreamsMark(apart_starts), StreamsMark(apart_ends))
        return apart, Window(window.start, StreamsMark({**others, **apart_starts}))

    def _plan_streams(self, mark: Mark | None, marks: Mapping[str, ColumnMark], skip: frozenset[str]) -> Plan:
        refused: dict[str, HeadwaterError] = {}
        relations = [
            relation
            for relation in self._relations({})
            if relation.stream not in skip
            and self._isolate(refused, relation, partial(self._check_cursor, relation, marks.get(relation.stream)))
            is not None
        ]
        view = self._database.view(relations, marks)
        outcomes = {
            relation.stream: outcome
            for relation in relations
            if (outcome := self._isolate(refused, relation, partial(self._outcome, relation, mark, marks, view)))
        }
        warnings = self._new_warnings(outcomes.values())
        ends = {stream: outcome.end for stream, outcome in outcomes.items() if outcome.end is not None}
        if not ends:
            return Plan(None, warnings=warnings, refused=refused)
        window = Window(mark, self._join_marks({**marks, **ends}))
        self._open = _OpenWindow(
            window,
            {relation.stream: relation for relation in relations},
            view,
            {stream: outcomes[stream].rows for stream in ends},
        )
        streams = tuple(
            StreamPlan(stream, Window(marks.get(stream), end), outcomes[stream].rows, outcomes[stream].why)
            for stream, end in ends.items()
        )
        return Plan(window, streams, any(outcome.more for outcome in outcomes.values()), warnings, refused)

    def _isolate(self, refused: dict[str, HeadwaterError], relation: Relation, work: Callable[[], T]) -> T | None:
        """The result of `work`; None if its error concerns only one of several tables."""
        try:
            return work()
        except HeadwaterError as error:
            if self._settings.tables is None or not is_of_one_stream(error):
                raise
            refused[relation.stream] = error
            return None

    @contextmanager
    def read(self, window: Window) -> Iterator[Sequence[Rows]]:
        try:
            is_open = self._open is not None and self._open.window == window
            rows = self._rows(self._open if self._open and is_open else self._reopen(window))
            self._database.finish_plan()
            yield rows
        finally:
            self._end_view()

    @contextmanager
    def replay(self, rejects: Sequence[Reject], mark: Mark) -> Iterator[Sequence[Rows]]:  # noqa: ARG002 - a promise
        """Read rejects by their keys, in one view (`replay.py`)."""
        from headwater.sources.sql.replay import replayed_rows

        self._end_view()
        try:
            relations = {relation.stream: relation for relation in self._database.relations()}
            missing = sorted({reject.stream for reject in rejects} - set(relations))
            if missing:
                raise UnknownName(
                    f"{self.address}: this pipeline does not read {', '.join(missing)}, of which rejects are to be replayed",
                    hint="add the table to the source's settings, or choose other rejects",
                )
            view = self._database.reopen_view({})
            replayed = [
                replayed_rows(relation, view, stream_rejects)
                for stream, relation in relations.items()
                if (stream_rejects := [reject for reject in rejects if reject.stream == stream])
            ]
            yield [rows for rows in replayed if rows is not None]
        finally:
            self._end_view()

    @contextmanager
    def comparison_point(self) -> Iterator[ComparisonPoint]:
        """Works at any mark: a mark divides the rows of any view."""
        from headwater.sources.sql.verify import PolledComparisonPoint, check_start

        check_start(self._settings)
        self._end_view()
        try:
            database = self._database
            yield PolledComparisonPoint(
                self._settings,
                self._limits,
                self._marks_by_stream,
                self._view_at,
                database.finish_plan,
                database.shares_views,
            )
        finally:
            self._end_view()

    @contextmanager
    def current_rows(self, mark: Mark, keys: Mapping[str, pa.Table]) -> Iterator[Sequence[CurrentRows]]:
        """Read rows by their keys, in one view."""
        from headwater.sources.sql.verify import PolledStream, read_again

        self._end_view()
        try:
            relations, marks, view = self._view_at(mark)
            rows = [
                read_again(
                    PolledStream(relation, self._settings, self._limits, marks[relation.stream], view, one_view=True),
                    keys[relation.stream],
                )
                for relation in relations
                if relation.stream in keys and relation.stream in marks
            ]
            self._database.finish_plan()
            yield rows
        finally:
            self._end_view()

    def _view_at(self, mark: Mark) -> tuple[Sequence[Relation], Mapping[str, ColumnMark], View]:
        """The streams, their marks and a view, for an earlier mark."""
        marks = self._marks_by_stream(mark)
        relations = self._relations(marks)
        return relations, marks, self._database.reopen_view(marks)

    def position(self, text: str, mark: Mark | None) -> Mark | None:
        """`start`, `latest`, a value, or `stream=value[,stream=value]`."""
        if text.strip() == "start":
            return None
        marks = self._marks_by_stream(mark)
        relations = self._relations({})
        if text.strip() == "latest":
            view = self._database.view(relations, {})
            latest = {relation.stream: self._latest(relation, view) for relation in relations}
            self._end_view()
            return self._join_marks(latest)
        if isinstance(self._database, AssignsTransactionIds):
            has_valid_ids = self._database.has_valid_ids
            marks = {
                stream: stream_mark if has_valid_ids(stream_mark) else replace(stream_mark, snapshot=None)
                for stream, stream_mark in marks.items()
            }
        return self._join_marks(rewound_marks(text, relations, marks, single=self._settings.tables is None))

    def close(self) -> None:
        self._open = None
        self._database.close()

    def _outcome(self, relation: Relation, mark: Mark | None, marks: Mapping[str, ColumnMark], view: View) -> Outcome:
        if mark is None and self._settings.start == "latest":
            return Outcome(self._latest(relation, view), 0, why=relation.why, warnings=relation.warnings)
        return strategy_of(relation).plan(self._stream(relation, marks.get(relation.stream)), view)

    def _latest(self, relation: Relation, view: View) -> ColumnMark:
        return strategy_of(relation).latest_mark(self._stream(relation, None), view)

    def _stream(self, relation: Relation, start: ColumnMark | None) -> Stream:
        return Stream(relation, self._settings, start, self._limits, self._tuning)

    def _rows(self, open_window: _OpenWindow) -> list[Rows]:
        window, view = open_window.window, open_window.view
        if window.start is None and self._settings.start == "latest":
            return []
        rows: list[Rows] = []
        starts, ends = self._marks_by_stream(window.start), self._marks_by_stream(window.end)
        for name, end in ends.items():
            if starts.get(name) == end:
                continue
            relation = open_window.relations[name]
            stream = self._stream(relation, starts.get(name))
            splits = strategy_of_mark(end).splits(stream, end, view, open_window.rows.get(name))
            if splits:
                rows.append(view.rows_of(relation, splits))
        return rows

    def _reopen(self, window: Window) -> _OpenWindow:
        """A window of an earlier plan, perhaps of another process: its marks alone decide which rows it has."""
        self._end_view()
        starts, ends = self._marks_by_stream(window.start), self._marks_by_stream(window.end)
        relations = {relation.stream: relation for relation in self._relations(ends)}
        missing = [stream for stream, end in ends.items() if stream not in relations and end != starts.get(stream)]
        if missing:
            raise SourceChanged(
                f"{self.address}: {', '.join(missing)} belongs to an unfinished window and is no longer there (G9)",
                hint="restore the table, or rewind the pipeline to drop the window",
            )
        return _OpenWindow(window, relations, self._database.reopen_view(ends), {})

    def _relations(self, marks: Mapping[str, ColumnMark]) -> list[Relation]:
        relations = self._database.relations()
        for relation in relations:
            start_value(relation, self._settings)  # G12: refused before anything runs
            self._check_cursor(relation, marks.get(relation.stream))
        return relations

    def _check_cursor(self, relation: Relation, mark: ColumnMark | None) -> Relation:
        subject = relation.subject
        if mark is not None and (mark.column, mark.type) != (subject.cursor, subject.cursor_type):
            raise SourceChanged(
                f"{relation.stream}: the mark is on {mark.column} ({mark.type.value}), the cursor is now "
                f"{subject.cursor} ({subject.cursor_type.value})",
                hint="restore the former cursor, or rewind the pipeline: --to start, --to latest, or --to a value of the new cursor",
            )
        return relation

    def _marks_by_stream(self, mark: Mark | None) -> dict[str, ColumnMark]:
        if mark is None:
            return {}
        several = self._settings.tables is not None
        streams = dict(mark.marks) if isinstance(mark, StreamsMark) else {self._only_stream: mark}
        marks = {stream: stream_mark for stream, stream_mark in streams.items() if isinstance(stream_mark, ColumnMark)}
        if several is not isinstance(mark, StreamsMark) or len(marks) != len(streams):
            raise SourceChanged(
                f"{self.address}: the stored mark ({mark}) does not fit a pipeline with "
                f"{'several tables' if several else 'one table or query'}",
                hint="restore the former source settings, or rewind the pipeline: --to start or --to latest",
            )
        return marks

    @property
    def _only_stream(self) -> str:
        return self._settings.table or "query"

    def _join_marks(self, marks: Mapping[str, ColumnMark]) -> Mark:
        return StreamsMark(dict(marks)) if self._settings.tables is not None else marks[self._only_stream]

    def _new_warnings(self, outcomes: Iterable[Outcome]) -> tuple[str, ...]:
        """The warnings that the last plan did not have: a poll every few seconds must not flood the log."""
        warnings = list(dict.fromkeys(warning for outcome in outcomes for warning in outcome.warnings))
        new = tuple(warning for warning in warnings if warning not in self._last_warnings)
        self._last_warnings = frozenset(warnings)
        return new

    def _end_view(self) -> None:
        self._open = None
        self._database.end_view()
