"""Verification of a polled table: the rows that are done at a mark, and the others.

The view is newer than the mark. Rows that changed in between are not done at the mark, so they are among the others: a
later window will have them. Deleted rows are absent: a cursor does not show deletes. Rows that changed while their cursor
stayed are done, and differ from what landed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from headwater.config.sources.sql import SqlSourceSettings
from headwater.model.errors import InputError, UnknownName
from headwater.model.position.marks import ColumnMark, Mark
from headwater.model.protocols.source import Comparison, CurrentRows, KeyRanges, NotCompared, Standing
from headwater.model.rows import OnReject, Rows, Split
from headwater.sources.sql import statements
from headwater.sources.sql.database import Division, Limits, Relation, Stream, View
from headwater.sources.sql.dialects import number_
from headwater.sources.sql.key_filters import KEYS_AT_ONCE, key_conditions
from headwater.sources.sql.statements import count_of
from headwater.sources.sql.windows.digests import DigestSplit
from headwater.sources.sql.windows.late_rows import strategy_of_mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.sources.sql.dialects import Condition

_ALWAYS, _NEVER = exp.EQ(this=number_(1), expression=number_(1)), exp.EQ(this=number_(1), expression=number_(0))


@dataclass(frozen=True)
class PolledComparisonPoint:
    """Compares at any mark. `view_at` returns the streams' relations, their marks and a new view."""

    settings: SqlSourceSettings
    limits: Limits
    by_stream: Callable[[Mark], Mapping[str, ColumnMark]]
    view_at: Callable[[Mark], tuple[Sequence[Relation], Mapping[str, ColumnMark], View]]
    view_done: Callable[[], None]  # called after the last split is planned
    one_view: bool

    def standing(self, mark: Mark | None) -> Standing:  # noqa: ARG002 - a promise
        return "here"

    def streams(self, mark: Mark) -> Sequence[str]:
        return list(self.by_stream(mark))

    def beyond(self, end: str) -> bool:  # noqa: ARG002 - a promise; a mark is never past
        return False

    def compared(self, mark: Mark) -> Sequence[Comparison | NotCompared]:
        relations, marks, view = self.view_at(mark)
        comparisons: list[Comparison | NotCompared] = [
            PolledStream(relation, self.settings, self.limits, marks[relation.stream], view, self.one_view).comparison()
            if relation.stream in marks
            else NotCompared(relation.stream, "no row of it has landed yet")
            for relation in relations
        ]
        self.view_done()
        return comparisons


def check_start(settings: SqlSourceSettings) -> None:
    """Refuse a pipeline whose first value is not in its settings."""
    if settings.start == "latest":
        raise InputError(
            "with start: latest, rows from before the first run never landed and look like lost ones",
            hint="set start: to the value that the first run began at, to exclude rows up to it",
        )


@dataclass(frozen=True)
class PolledStream:
    """One stream, divided by one mark, in one view."""

    relation: Relation
    settings: SqlSourceSettings
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

    def narrowed(self, wanted: KeyRanges | pa.Table) -> Comparison:
        """Filtered by the key, if the database can."""
        chunks = key_conditions(self.relation, wanted)
        if chunks is None:
            return self.comparison()
        rows = None if isinstance(wanted, KeyRanges) else min(KEYS_AT_ONCE, wanted.num_rows)
        splits = [self._split([chunk, *done], rows) for chunk in chunks for done in self._division.done]
        others = [self._split([chunk, *other], rows) for chunk in chunks for other in self._division.rest]
        others += self._digest_splits(done=False)
        return Comparison(
            self.rows_of([*splits, *self._digest_splits(done=True)]),
            self.rows_of(others) if others else None,
            one_view=self.one_view,
            narrowed=self.narrowed,
        )

    def present(self, keys: pa.Table) -> list[pa.RecordBatch]:
        """The keys of rows that exist, done or not: at least all of `keys`, perhaps more."""
        columns = [column for column in self.relation.columns if column.name in keys.column_names]
        key_relation = replace(self.relation, columns=tuple(columns), key=())
        chunks = key_conditions(self.relation, keys)
        filters = [[]] if chunks is None else [[chunk] for chunk in chunks]
        queries = [
            statements.read_rows(key_relation.subject, key_relation.columns, conditions) for conditions in filters
        ]
        return [batch for sql in queries for batch in self.view.split(sql, key_relation, None).read()]

    def rows_of(self, splits: Sequence[Split]) -> Rows:
        return self.view.rows_of(self.relation, tuple(splits))

    def _done_splits(self) -> list[Split]:
        splits: list[Split] = []
        for conditions in self._division.done:
            rows = self.relation.rows
            if rows is None:
                rows = count_of(self.view, self.relation.subject, conditions)
            for range_conditions, share in self.view.ranges(self.relation, conditions, rows, self.limits):
                splits.append(self._split([*range_conditions, *conditions], share))
        return [*splits, *self._digest_splits(done=True)]

    def _other_splits(self) -> list[Split]:
        rest = self._division.rest
        # Usually there are none, and a count is cheaper than a read.
        counts = [count_of(self.view, self.relation.subject, conditions) for conditions in rest]
        plain = [self._split(conditions, count) for conditions, count in zip(rest, counts, strict=True) if count]
        return [*plain, *self._digest_splits(done=False)]

    def _split(self, conditions: Sequence[Condition], rows: int | None = None) -> Split:
        relation = self.relation
        sql = statements.read_rows(relation.subject, relation.columns, conditions)
        return self.view.split(sql, relation, rows)

    @cached_property
    def _division(self) -> Division:
        stream = Stream(self.relation, self.settings, None, self.limits)
        return strategy_of_mark(self.mark).done(stream, self.mark)

    def _digest_splits(self, *, done: bool) -> list[Split]:
        """The rows that digests divide: those that are done, or the others."""
        relation, division = self.relation, self._division
        if not division.compared:
            return []
        # Flags are 0 where a condition holds: see `DigestSplit` for what they mean.
        flags = [_ALWAYS, _NEVER] if done else [_NEVER, _ALWAYS]
        ranges = [statements.either(*division.compared)]
        sql = statements.read_flagged(relation.subject, relation.columns, flags, ranges)
        digests, flagged = division.digests, self.view.split(sql, relation, None, 2)
        return [DigestSplit(flagged, relation.columns, digests, digests, len(digests))]


_ROW = "headwater row"


def read_again(stream: PolledStream, keys: pa.Table) -> CurrentRows:
    """The rows with these keys. A row that a later window will have is neither among them nor absent."""
    schema = stream.relation.schema
    missing = [name for name in keys.column_names if name not in schema.names]
    if missing:
        raise UnknownName(
            f"{stream.relation.stream}: the source has no column {', '.join(missing)} to read rows again by",
            hint="rewind the pipeline to before those rows",
        )
    exact = keys.cast(pa.schema([schema.field(name).with_nullable(nullable=True) for name in keys.column_names]))
    batches = [pa.table(batch).select(exact.column_names).cast(exact.schema) for batch in stream.present(exact)]
    present = pa.concat_tables([exact.slice(0, 0), *batches])
    absent = exact.join(present, keys=exact.column_names, join_type="left anti").cast(keys.schema)
    return CurrentRows(_with_keys(stream.narrowed(exact).rows, exact), absent)


def _with_keys(rows: Rows, keys: pa.Table) -> Rows:
    """The rows that have one of the keys: a filter in the database may let others through."""
    if rows.splits is not None:
        return replace(rows, splits=tuple(KeyedSplit(split, keys) for split in rows.splits))

    def frame(spark: SparkSession) -> DataFrame:
        return rows.dataframe(spark).join(spark.createDataFrame(keys), on=list(keys.column_names), how="left_semi")

    return replace(rows, frame=frame)


@dataclass(frozen=True)
class KeyedSplit:
    """The rows of a split that have one of the keys."""

    split: Split
    keys: pa.Table = field(repr=False)

    @property
    def rows(self) -> int | None:
        return self.split.rows

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        """Rows that `split` rejects are rejects already, or have one of the keys."""
        for batch in self.split.read(on_reject):
            rows = _matching_rows(batch, self.keys)
            if len(rows):
                yield batch.take(rows)


def _matching_rows(batch: pa.RecordBatch, keys: pa.Table) -> pa.Array:
    names = keys.column_names
    numbered = pa.table([*(batch.column(name) for name in names), pa.array(range(batch.num_rows))], [*names, _ROW])
    rows = numbered.join(keys, keys=names, join_type="left semi").column(_ROW).combine_chunks()
    return rows.take(pa.compute.sort_indices(rows))
