"""What a table holds that follows a polled one: the rows that a mark has done, and what else there is.

A view is taken after the mark was reached. Rows that changed in between are not done by the mark, so they are among the
others: a window will bring them. Rows that were deleted in between are gone, as are those deleted earlier: a cursor does
not show them. Rows that changed without their cursor moving are done, and differ from what landed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.config.sql_source import SqlSource
from headwater.model.comparing import Comparison, NotCompared, Spans, Standing
from headwater.model.errors import InputError
from headwater.model.marks import ColumnMark, EdgeSeen, Mark
from headwater.model.rows import Rows, Split
from headwater.sources.split_rows import ArrowRows
from headwater.sources.sql import statements
from headwater.sources.sql.cursor_sql import number_
from headwater.sources.sql.digests import EdgeSplit
from headwater.sources.sql.late import Bounds
from headwater.sources.sql.relation import Relation
from headwater.sources.sql.some_keys import KEYS_AT_ONCE, key_conditions
from headwater.sources.sql.start import first_value
from headwater.sources.sql.view import Limits, ReadBySpark, View

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.sources.sql.cursor_sql import Condition

_ALWAYS, _NEVER = exp.EQ(this=number_(1), expression=number_(1)), exp.EQ(this=number_(1), expression=number_(0))


@dataclass(frozen=True)
class PolledMeeting:
    """Any mark will do. `look` gives the streams' relations and a new view, for their marks."""

    settings: SqlSource
    limits: Limits
    by_stream: Callable[[Mark], Mapping[str, ColumnMark]]
    look: Callable[[Mark], tuple[Sequence[Relation], Mapping[str, ColumnMark], View]]
    looked: Callable[[], None]  # told when the view has been asked for everything
    one_view: bool

    def standing(self, mark: Mark | None) -> Standing:  # noqa: ARG002 - a promise
        return "here"

    def streams(self, mark: Mark) -> Sequence[str]:
        return list(self.by_stream(mark))

    def beyond(self, end: str) -> bool:  # noqa: ARG002 - a promise; a mark is never past
        return False

    def compared(self, mark: Mark) -> Sequence[Comparison | NotCompared]:
        relations, marks, view = self.look(mark)
        found: list[Comparison | NotCompared] = [
            self._stream(relation, marks[relation.stream], view).comparison()
            if relation.stream in marks
            else NotCompared(relation.stream, "nothing of it has landed yet")
            for relation in relations
        ]
        self.looked()
        return found

    def _stream(self, relation: Relation, mark: ColumnMark, view: View) -> PolledStream:
        return PolledStream(relation, self.settings, self.limits, mark, view, self.one_view)


def check_start(settings: SqlSource) -> None:
    """Refuse a pipeline of which nobody knows where it began."""
    if settings.start == "latest":
        raise InputError(
            "with start: latest the rows from before the first run never landed, and nothing tells them from lost ones",
            hint="write start: with the value that the first run began at, and rows up to it are left out",
        )


@dataclass(frozen=True)
class PolledStream:
    """One stream as one mark divides it, in one view."""

    relation: Relation
    settings: SqlSource
    limits: Limits
    mark: ColumnMark
    view: View
    one_view: bool

    def comparison(self) -> Comparison:
        rows = self.rows_of(self._done_splits())
        others = self._other_splits()
        return Comparison(
            rows, self.rows_of(others) if others else None, one_view=self.one_view, narrowed=self.narrowed
        )

    def narrowed(self, wanted: Spans | pa.Table) -> Comparison:
        """By the key, where the database can be asked for it."""
        chunks = key_conditions(self.relation, wanted)
        if chunks is None:
            return self.comparison()
        each = None if isinstance(wanted, Spans) else min(KEYS_AT_ONCE, wanted.num_rows)
        splits = [self._split([chunk, *done], each) for chunk in chunks for done in self._done]
        others = [self._split([chunk, *other], each) for chunk in chunks for other in self._others]
        others += self._stretch(done=False)
        return Comparison(
            self.rows_of([*splits, *self._stretch(done=True)]),
            self.rows_of(others) if others else None,
            one_view=self.one_view,
            narrowed=self.narrowed,
        )

    def present(self, keys: pa.Table) -> list[pa.RecordBatch]:
        """The keys of rows that are there, whatever the mark says of them; all that were asked for, and perhaps more."""
        columns = [column for column in self.relation.columns if column.name in keys.column_names]
        only = replace(self.relation, columns=tuple(columns), key=())
        chunks = key_conditions(self.relation, keys)
        wanted = [[]] if chunks is None else [[chunk] for chunk in chunks]
        statement = [statements.read_rows(only.subject, only.columns, conditions) for conditions in wanted]
        return [batch for sql in statement for batch in self.view.split(sql, only, None).read()]

    def rows_of(self, splits: Sequence[Split]) -> Rows:
        relation = self.relation
        if isinstance(self.view, ReadBySpark):
            return self.view.rows_of(relation, tuple(splits))
        return ArrowRows(relation.stream, relation.schema, relation.key, (relation.subject.cursor,), tuple(splits))

    def _done_splits(self) -> list[Split]:
        found: list[Split] = []
        for conditions in self._done:
            rows = self.relation.rows
            if rows is None:
                rows = int(self.view.fetch(statements.count_rows(self.relation.subject, conditions))[0][0])
            for further, share in self.view.parts(self.relation, conditions, rows, self.limits):
                found.append(self._split([*further, *conditions], share))
        return [*found, *self._stretch(done=True)]

    def _other_splits(self) -> list[Split]:
        subject = self.relation.subject
        # Most often there are none, and a question is cheaper than a read.
        counts = [int(self.view.fetch(statements.count_rows(subject, some))[0][0]) for some in self._others]
        plain = [self._split(some, count) for some, count in zip(self._others, counts, strict=True) if count]
        return [*plain, *self._stretch(done=False)]

    def _split(self, conditions: Sequence[Condition], rows: int | None = None) -> Split:
        relation = self.relation
        sql = statements.read_rows(relation.subject, relation.columns, conditions)
        return self.view.split(sql, relation, rows)

    @property
    def _nulls(self) -> list[Condition]:
        """Rows without a cursor, if there can be any."""
        return [statements.without_value(self.relation.subject)] if self.relation.nullable_cursor else []

    @property
    def _done(self) -> list[list[Condition]]:
        """What the mark has done, as conditions on rows: one or several sets, of which no row meets two."""
        subject, mark, groups = self.relation.subject, self.mark, []
        low = first_value(self.relation, self.settings)
        if mark.snapshot is not None:
            bounds = Bounds.of(mark)
            if mark.value is not None:
                window = statements.snapshot_window(
                    subject, None, mark, low_start=None, low_end=bounds.low, floor=bounds.floor, seen=mark.snapshot
                )
                groups.append(window)
            if self._nulls and self.settings.nulls == "read":
                groups.append(statements.snapshot_nulls(subject, None, mark.snapshot))
        elif mark.edge is not None:
            if mark.edge.since is not None:
                above = [] if low is None else [statements.after_value(subject, low)]
                groups.append([*above, statements.below(subject, mark.edge.since)])
        elif mark.value is not None:
            groups.append(statements.value_window(subject, low, mark.value))
        return groups

    @property
    def _others(self) -> list[list[Condition]]:
        """What it leaves for later, or altogether, as far as conditions can say; rows from before `start:` are nobody's."""
        subject, mark = self.relation.subject, self.mark
        if mark.snapshot is not None:
            bounds = Bounds.of(mark)
            groups = [statements.not_done(subject, mark, bounds.low, bounds.floor)]
            if self._nulls:
                groups.append(statements.new_nulls(subject, mark) if self.settings.nulls == "read" else self._nulls)
            return groups
        groups = [statements.value_window(subject, mark.value, None)]
        in_stretch = mark.edge is not None and self.settings.nulls == "read"
        return [*groups, self._nulls] if self._nulls and not in_stretch else groups

    def _stretch(self, *, done: bool) -> list[Split]:
        """The rows at the mark that digests tell apart: those that it knows, or the others."""
        relation, subject, mark = self.relation, self.relation.subject, self.mark
        edge = mark.edge or EdgeSeen(None)
        regions: list[Condition] = []
        if edge.since is not None and mark.value is not None:
            regions.append(
                statements.both([statements.from_value(subject, edge.since), statements.at_most(subject, mark.value)])
            )
        if mark.edge is not None and self.settings.nulls == "read":
            regions += self._nulls
        if not regions:
            return []
        # Flags are 0 where a condition holds: see `EdgeSplit` for what they mean.
        flags = [_ALWAYS, _NEVER] if done else [_NEVER, _ALWAYS]
        sql = statements.read_flagged(subject, relation.columns, flags, [statements.either(*regions)])
        inner = self.view.split(sql, relation, None, 2)
        return [EdgeSplit(inner, relation.columns, edge.rows, edge.rows, len(edge.rows))]
