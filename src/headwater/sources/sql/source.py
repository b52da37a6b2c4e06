"""The `sql` source: what lies after a mark, and how it is read.

Three ways to work out windows (`by_snapshot`, `by_edge`, `by_value`), each for one stream; here they are put
together: one view for all streams of a plan, one mark for one or several streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headwater.config.sql_source import SqlSource
from headwater.model.comparing import Again, Meeting
from headwater.model.errors import HeadwaterError, SourceChanged, UnknownName, is_of_one_stream
from headwater.model.marks import ColumnMark, Mark, StreamsMark
from headwater.model.rejects import Reject
from headwater.model.rows import Rows, Split
from headwater.model.source import Plan, StreamPlan
from headwater.model.window import Window
from headwater.sources.sql.by_edge import place_by_edge, plan_by_edge, splits_by_edge
from headwater.sources.sql.by_value import place_by_value, plan_by_value, splits_by_value
from headwater.sources.sql.position import marks_at
from headwater.sources.sql.relation import Relation
from headwater.sources.sql.start import first_value
from headwater.sources.sql.view import Database, Limits, NumbersTransactions, Outcome, ReadBySpark, Stream, View

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_BY_SNAPSHOT = ("bounded", "scan")  # the ways that need PostgreSQL's transaction numbers


@dataclass(frozen=True)
class _Planned:
    """A window that was just planned, with the view it was planned in."""

    window: Window
    relations: Mapping[str, Relation]
    view: View
    rows: Mapping[str, int | None]


class PolledSql:
    """Tables or a query of one database. The view of a plan stays open until its window has been read."""

    def __init__(self, settings: SqlSource, database: Database, cores: int) -> None:
        self._settings, self._database = settings, database
        self._limits = Limits(settings.max_rows, settings.splits, cores)
        self._planned: _Planned | None = None
        self._warned: frozenset[str] = frozenset()

    @property
    def address(self) -> str:
        return self._database.address

    def plan(self, mark: Mark | None) -> Plan:
        return self.plan_without(mark, frozenset())

    def plan_without(self, mark: Mark | None, streams: frozenset[str]) -> Plan:
        self._end_view()
        marks = self._by_stream(mark)
        if self._database.unchanged(marks):
            return Plan(None)
        try:
            plan = self._looked(mark, marks, streams)
        except BaseException:
            self._end_view()
            raise
        if plan.window is None:
            if not plan.refused and not streams:  # else something may be there all the same
                self._database.found_nothing(marks)
            self._end_view()
        self._database.planned()
        return plan

    def apart(self, window: Window, streams: frozenset[str]) -> tuple[Window, Window] | None:
        if self._settings.tables is None:
            return None
        starts, ends = self._by_stream(window.start), self._by_stream(window.end)
        mine, here = ({name: each[name] for name in each if name in streams} for each in (starts, ends))
        others = {name: end for name, end in ends.items() if name not in streams}
        # Not None, where nothing was read yet: `start` has had its say.
        part = Window(StreamsMark(mine), StreamsMark(here))
        return part, Window(window.start, StreamsMark({**others, **mine}))

    def _looked(self, mark: Mark | None, marks: Mapping[str, ColumnMark], without: frozenset[str]) -> Plan:
        refused: dict[str, HeadwaterError] = {}
        relations = [
            relation
            for relation in self._relations({})
            if relation.stream not in without
            and self._noting(refused, relation, partial(self._checked, relation, marks.get(relation.stream)))
            is not None
        ]
        view = self._database.look(relations, marks)
        found = {
            relation.stream: self._noting(refused, relation, partial(self._outcome, relation, mark, marks, view))
            for relation in relations
        }
        outcomes = {stream: outcome for stream, outcome in found.items() if outcome is not None}
        warnings = self._new_warnings(outcomes.values())
        ends = {stream: outcome.end for stream, outcome in outcomes.items() if outcome.end is not None}
        if not ends:
            return Plan(None, warnings=warnings, refused=refused)
        window = Window(mark, self._together({**marks, **ends}))
        self._planned = _Planned(
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

    def _noting(self, refused: dict[str, HeadwaterError], relation: Relation, work: Callable[[], T]) -> T | None:
        """None where one of several tables has an error of its own."""
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
            planned = self._planned if self._planned and self._planned.window == window else self._recovered(window)
            rows = self._rows(planned)
            self._database.planned()
            yield rows
        finally:
            self._end_view()

    @contextmanager
    def replay(self, rejects: Sequence[Reject], mark: Mark) -> Iterator[Sequence[Rows]]:  # noqa: ARG002 - a promise
        """By their keys, in one view; see `replaying` for which of them are found."""
        from headwater.sources.sql.replaying import replayed_rows  # noqa: PLC0415 - an idle poll needs no Arrow

        self._end_view()
        try:
            relations = {relation.stream: relation for relation in self._database.relations()}
            missing = sorted({reject.stream for reject in rejects} - set(relations))
            if missing:
                raise UnknownName(
                    f"{self.address}: there are rejects of {', '.join(missing)}, which this pipeline does not read",
                    hint="write the table into the source's settings again, or choose other rejects",
                )
            view = self._database.look_again({})
            found = [
                replayed_rows(relation, view, some)
                for stream, relation in relations.items()
                if (some := [reject for reject in rejects if reject.stream == stream])
            ]
            yield [rows for rows in found if rows is not None]
        finally:
            self._end_view()

    @contextmanager
    def meet(self) -> Iterator[Meeting]:
        """Anywhere: a mark says which rows it has done, in any view."""
        from headwater.sources.sql.comparing import PolledMeeting, check_start  # noqa: PLC0415 - a cycle compares nothing

        check_start(self._settings)
        self._end_view()
        try:
            database = self._database
            yield PolledMeeting(
                self._settings, self._limits, self._by_stream, self._look_at, database.planned, database.shares_views
            )
        finally:
            self._end_view()

    @contextmanager
    def again(self, mark: Mark, keys: Mapping[str, pa.Table]) -> Iterator[Sequence[Again]]:
        """By their keys, in one view; see `reading_again`."""
        from headwater.sources.sql.comparing import PolledStream  # noqa: PLC0415 - as above
        from headwater.sources.sql.reading_again import read_again  # noqa: PLC0415

        self._end_view()
        try:
            relations, marks, view = self._look_at(mark)
            found = [
                read_again(
                    PolledStream(relation, self._settings, self._limits, marks[relation.stream], view, one_view=True),
                    keys[relation.stream],
                )
                for relation in relations
                if relation.stream in keys and relation.stream in marks
            ]
            self._database.planned()
            yield found
        finally:
            self._end_view()

    def _look_at(self, mark: Mark) -> tuple[Sequence[Relation], Mapping[str, ColumnMark], View]:
        """What is read of the database with a mark that was reached before."""
        marks = self._by_stream(mark)
        relations = self._relations(marks)
        return relations, marks, self._database.look_again(marks)

    def position(self, text: str, mark: Mark | None) -> Mark | None:
        """`start`, `latest`, a value, or `stream=value[,stream=value]`."""
        if text.strip() == "start":
            return None
        marks = self._by_stream(mark)
        relations = self._relations({})
        if text.strip() == "latest":
            view = self._database.look(relations, {})
            placed = {relation.stream: self._place(relation, view) for relation in relations}
            self._end_view()
            return self._together(placed)
        if isinstance(self._database, NumbersTransactions):
            numbered = self._database
            marks = {
                stream: each if numbered.knows(each) else replace(each, snapshot=None) for stream, each in marks.items()
            }
        return self._together(marks_at(text, relations, marks, one=self._settings.tables is None))

    def close(self) -> None:
        self._planned = None
        self._database.close()

    def _outcome(self, relation: Relation, mark: Mark | None, marks: Mapping[str, ColumnMark], view: View) -> Outcome:
        if mark is None and self._settings.start == "latest":
            return Outcome(self._place(relation, view), 0, why=relation.why, warnings=relation.warnings)
        stream = Stream(relation, self._settings, marks.get(relation.stream), self._limits)
        if relation.late in _BY_SNAPSHOT:
            from headwater.sources.sql.by_snapshot import plan_by_snapshot  # noqa: PLC0415 - PostgreSQL alone pays
            from headwater.sources.sql.postgres import PostgresView  # noqa: PLC0415 - as above

            if isinstance(view, PostgresView) and view.poll:
                return plan_by_snapshot(stream, view, view.poll)
        return plan_by_value(stream, view) if relation.late == "off" else plan_by_edge(stream, view)

    def _place(self, relation: Relation, view: View) -> ColumnMark:
        if relation.late in _BY_SNAPSHOT:
            from headwater.sources.sql.by_snapshot import place_by_snapshot  # noqa: PLC0415 - as above
            from headwater.sources.sql.postgres import PostgresView  # noqa: PLC0415 - as above

            if isinstance(view, PostgresView) and view.poll:
                return place_by_snapshot(relation, view, view.poll)
        if relation.late == "off":
            return place_by_value(relation, view)
        return place_by_edge(Stream(relation, self._settings, None, self._limits), view)

    def _rows(self, planned: _Planned) -> list[Rows]:
        from headwater.sources.split_rows import ArrowRows  # noqa: PLC0415 - an idle poll needs no Arrow

        window = planned.window
        found: list[Rows] = []
        if window.start is None and self._settings.start == "latest":
            return []
        starts, ends = self._by_stream(window.start), self._by_stream(window.end)
        for stream, end in ends.items():
            if starts.get(stream) == end:
                continue
            relation = planned.relations[stream]
            work = Stream(relation, self._settings, starts.get(stream), self._limits)
            splits = self._splits(work, end, planned.view, planned.rows.get(stream))
            if splits and isinstance(planned.view, ReadBySpark):
                found.append(planned.view.rows_of(relation, splits))
            elif splits:
                order = (relation.subject.cursor,)
                found.append(ArrowRows(stream, relation.schema, relation.key, order, splits))
        return found

    def _splits(self, stream: Stream, end: ColumnMark, view: View, rows: int | None) -> tuple[Split, ...]:
        """By the way that the end mark was made, whatever the settings would choose today (G5)."""
        if end.snapshot is not None:
            from headwater.sources.sql.by_snapshot import splits_by_snapshot  # noqa: PLC0415 - as above
            from headwater.sources.sql.postgres import PostgresView  # noqa: PLC0415 - as above

            if isinstance(view, PostgresView):
                return splits_by_snapshot(stream, end, view, rows)
        if end.edge is not None:
            return splits_by_edge(stream, end, view, rows)
        return splits_by_value(stream, end, view, rows)

    def _recovered(self, window: Window) -> _Planned:
        """The view for a window that was planned earlier: the marks alone say what belongs to it."""
        self._end_view()
        starts, ends = self._by_stream(window.start), self._by_stream(window.end)
        relations = {relation.stream: relation for relation in self._relations(ends)}
        missing = [stream for stream, end in ends.items() if stream not in relations and end != starts.get(stream)]
        if missing:
            raise SourceChanged(
                f"{self.address}: {', '.join(missing)} belongs to a window that was begun, and is no longer there (G9)",
                hint="bring the table back, or rewind the pipeline to give up the window",
            )
        view = self._database.look_again(ends)
        return _Planned(window, relations, view, {})

    def _relations(self, marks: Mapping[str, ColumnMark]) -> list[Relation]:
        relations = self._database.relations()
        for relation in relations:
            first_value(relation, self._settings)  # G12: refused before anything runs
            self._checked(relation, marks.get(relation.stream))
        return relations

    def _checked(self, relation: Relation, mark: ColumnMark | None) -> Relation:
        subject = relation.subject
        if mark is not None and (mark.column, mark.type) != (subject.cursor, subject.kind):
            raise SourceChanged(
                f"{relation.stream}: the mark is on {mark.column} ({mark.type.value}), the cursor is now "
                f"{subject.cursor} ({subject.kind.value})",
                hint="write the former cursor, or rewind the pipeline: --to start, --to latest, or --to a value of the new cursor",
            )
        return relation

    def _by_stream(self, mark: Mark | None) -> dict[str, ColumnMark]:
        if mark is None:
            return {}
        several = self._settings.tables is not None
        found = dict(mark.streams) if isinstance(mark, StreamsMark) else {self._only_stream: mark}
        columns = {stream: each for stream, each in found.items() if isinstance(each, ColumnMark)}
        if several is not isinstance(mark, StreamsMark) or len(columns) != len(found):
            raise SourceChanged(
                f"{self.address}: the stored mark ({mark}) is not one of a pipeline with "
                f"{'several tables' if several else 'one table or query'}",
                hint="restore the former source settings, or rewind the pipeline: --to start or --to latest",
            )
        return columns

    @property
    def _only_stream(self) -> str:
        return self._settings.table or "query"

    def _together(self, marks: Mapping[str, ColumnMark]) -> Mark:
        return StreamsMark(dict(marks)) if self._settings.tables is not None else marks[self._only_stream]

    def _new_warnings(self, outcomes: Iterable[Outcome]) -> tuple[str, ...]:
        """Each once as long as it holds: a poll every few seconds would bury the log otherwise."""
        found = list(dict.fromkeys(warning for outcome in outcomes for warning in outcome.warnings))
        new = tuple(warning for warning in found if warning not in self._warned)
        self._warned = frozenset(found)
        return new

    def _end_view(self) -> None:
        self._planned = None
        self._database.end_view()
