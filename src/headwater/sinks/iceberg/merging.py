"""Carries out an upsert: old rows are found by key and marked as deleted, new files added, in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from headwater.model.errors import AmbiguousKey
from headwater.sinks.iceberg.copying import Copying
from headwater.sinks.iceberg.delta import Delta
from headwater.sinks.iceberg.duplicates import replaced_rows
from headwater.sinks.iceberg.keyscan import KeyColumn, read_keys
from headwater.sinks.iceberg.keyset import KeySet
from headwater.sinks.iceberg.landing_files import LandingFiles
from headwater.sinks.iceberg.merge_sql import merge_statement
from headwater.sinks.iceberg.partitioning import single_value
from headwater.sinks.iceberg.removing import Removal, removal_of, stats_of
from headwater.sinks.iceberg.searching import Positions, Search, find_in_table
from headwater.sinks.iceberg.spark_merge import merge_on_branch
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.table import LakeTable, PlannedFile
from headwater.sinks.iceberg.types import arrow_type
from headwater.sinks.iceberg.upsert import MOST_KEYS, BatchStats, Forced, UpsertPlan, after_the_search, choose_upsert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class MergeOrder:
    """What is to be merged, and how a row is named and dated."""

    stream: str
    key: tuple[str, ...]
    order: tuple[str, ...]
    unique: bool  # the source promises that no two rows share the key
    forced: Forced


class Merging:
    """One batch on its way into one table; asked again when the table's head moved."""

    def __init__(self, spark: SparkSession, table: LakeTable, files: LandingFiles, order: MergeOrder) -> None:
        self.removed = 0
        self.way: UpsertPlan | None = None  # that was gone
        self._order = order
        self._delta = Delta(table, files, Copying(spark, table, files, keeps_unseen=False))
        self._spark, self._table, self._files = spark, table, files
        self._planned: Sequence[PlannedFile] = ()

    @property
    def more_files(self) -> tuple[str, ...]:
        return self._delta.more_files

    @cached_property
    def _repeated(self) -> Mapping[str, Positions]:
        """Rows of the batch that a later row of the batch replaces."""
        order = self._order
        if order.unique:
            return {}
        return replaced_rows(self._files.locations, order.key, order.order, order.stream)

    @property
    def rows(self) -> int:
        """How many rows the batch leaves in the table."""
        return self._files.rows - sum(len(positions) for positions in self._repeated.values())

    @property
    def _bounds(self) -> Mapping[str, tuple[object, object]]:
        if self._keys is None:
            return {}
        pairs = zip(self._order.key, self._keys.bounds(), strict=True)
        return {column: pair for column, pair in pairs if pair[0] is not None}

    def plan(self) -> UpsertPlan:
        """Choose the way, for the table as it is now."""
        table_rows = self._table.rows
        bounds = (
            {c: (single_value(low), single_value(high)) for c, (low, high) in self._bounds.items()}
            if table_rows
            else {}
        )
        self._planned = self._table.plan_files(bounds) if table_rows else []
        if self._keys is not None:
            self._planned = self._search.where_they_may_be(self._planned)
        batch = BatchStats(self._files.rows, self._files.rows - self.rows)
        stats = stats_of(self._table.format_version, table_rows, self._planned)
        return choose_upsert(batch, stats, self._order.forced)

    def update(self, plan: UpsertPlan) -> Any | None:
        """The Iceberg update that carries out any plan but a `merge`."""
        removal = self._removal() if plan.kind != "append" or plan.must_be_new else Removal()
        if plan.must_be_new and removal.rows:
            raise AmbiguousKey(
                f"{self._order.stream}: {removal.rows} keys are already in {self._table.name}, "
                f"and upsert: append promises that all are new",
                hint="write upsert: auto",
            )
        self.removed = removal.rows
        self.way = after_the_search(plan, removal.rows, removal.staying, self._order.forced)
        return self._delta.update(self.way.kind, self._planned, removal, self._repeated)

    def on_branch(self, session: SparkSession, stamp: Stamp, branch: str) -> None:
        """Carry out a `merge`."""
        order = self._order
        statement = partial(
            merge_statement, schema=self._table.schema, key=order.key, order=order.order, bounds=self._bounds
        )
        merge_on_branch(session, self._table, statement, stamp=stamp, branch=branch, rows=[self._files.locations])

    @cached_property
    def _keys(self) -> KeySet | None:
        """The batch's keys, where they are few enough to be held."""
        return read_keys(self._files.locations, self._key) if self._files.rows <= MOST_KEYS else None

    @cached_property
    def _key(self) -> tuple[KeyColumn, ...]:
        columns = [self._table.schema.column(name) for name in self._order.key]
        return tuple(KeyColumn(c.id, c.name, arrow_type(c.type)) for c in columns if c is not None)

    @cached_property
    def _search(self) -> Search:
        keys = self._keys
        assert keys is not None  # noqa: S101 - the plan keeps larger batches away
        load = partial(read_keys, tuple(self._files.locations), self._key)
        return Search(self._key, keys, load, f"{self._order.stream}: finding keys in {self._table.name}")

    def _removal(self) -> Removal:
        """The rows of the table that the batch replaces."""
        return removal_of(self._planned, find_in_table(self._spark, self._planned, self._search))
