"""What the ways to make a table of changes have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.model.errors import ValueNotKept
from headwater.sinks.iceberg.changes.batch import Batch
from headwater.sinks.iceberg.changes.completing import Completed, Target, complete
from headwater.sinks.iceberg.changes.seeking import Seeker
from headwater.sinks.iceberg.changes.shapes import Shape
from headwater.sinks.iceberg.changes.writing import ChangeFiles
from headwater.sinks.iceberg.copying import Copying
from headwater.sinks.iceberg.delta import Delta
from headwater.sinks.iceberg.keyscan import KeyColumn
from headwater.sinks.iceberg.removing import Removal, stats_of
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.table import LakeTable, PlannedFile
from headwater.sinks.iceberg.types import arrow_type
from headwater.sinks.iceberg.upsert import BatchStats, Forced, UpsertPlan, choose_upsert
from headwater.sinks.setting_aside import RowsAside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ChangesOrder:
    """What is to be applied, and how."""

    stream: str
    key: tuple[str, ...]
    columns: tuple[str, ...]  # that changes fill
    shape: Shape
    forced: Forced
    aside: RowsAside
    is_copy: bool = False  # reads of one snapshot, no two of one key


class TableOfChanges(ABC):
    """One window of changes on its way into one table; asked again when the table's head moved."""

    def __init__(self, spark: SparkSession, table: LakeTable, files: ChangeFiles, order: ChangesOrder) -> None:
        self.removed = 0
        self.rows = 0
        self.way: UpsertPlan | None = None  # that was gone
        self.properties: Mapping[str, str] = {}
        self._order = order
        self._delta = Delta(table, files, Copying(spark, table, files, keeps_unseen=True))
        self._table, self._files = table, files
        self._columns = {c.name: KeyColumn(c.id, c.name, arrow_type(c.type)) for c in table.schema.columns}
        self._key = tuple(self._columns[name] for name in order.key)
        self._position = self._columns[order.shape.position]
        self._seeker = Seeker(spark, table, self._key, self._position, order.stream)
        self._planned: Sequence[PlannedFile] = ()
        self._set_aside: set[int] = set()

    @abstractmethod
    def plan(self) -> UpsertPlan:
        """Choose the way, for the table as it is now."""

    @abstractmethod
    def update(self, plan: UpsertPlan) -> Any | None:
        """The Iceberg update; None: the table has it all already."""

    @abstractmethod
    def on_branch(self, session: SparkSession, stamp: Stamp, branch: str) -> None:
        """Carry out a `merge`."""

    @property
    def more_files(self) -> tuple[str, ...]:
        return self._delta.more_files

    @cached_property
    def _batch(self) -> Batch:
        return Batch(self._files, self._key, self._position)

    def _chosen(self, changes: int) -> UpsertPlan:
        """How so many keys come into the planned files."""
        batch = BatchStats(changes, len(self._batch) - changes)
        return choose_upsert(
            batch, stats_of(self._table.format_version, self._table.rows, self._planned), self._order.forced
        )

    def _published(self, plan: UpsertPlan, removal: Removal, seen: Bools) -> Any:
        """The update that adds the landing's files, of which only these changes are seen, and takes rows away."""
        self.way = plan  # rows that nobody sees stay here: to copy files in which few are seen saves nothing
        made = self._delta.update(plan.kind, self._planned, removal, self._hidden(seen))
        return made or self._table.append([])  # a property of the table needs a landing, too

    def _hidden(self, seen: Bools) -> dict[str, Numbers]:
        """Rows of the landing's own files that nobody shall see."""
        batch, made = self._batch, {}
        for number, location in enumerate(batch.locations):
            rows = np.flatnonzero(~seen[batch.places.file == number])
            if len(rows):
                made[location] = rows
        return made

    def _completed(self, staged: Numbers) -> Completed:
        """The rows of changes that leave values out; those that nobody has a value for are set aside."""
        schema = self._table.schema.to_arrow()
        if not len(staged):
            return Completed(schema.empty_table(), staged)
        filled = [self._columns[name] for name in self._order.columns if name not in self._order.key]
        made = complete(self._batch, staged, self._seeker, Target(schema, filled, self._order.shape))
        for change, column in made.unknown:
            if change not in self._set_aside:
                self._put_aside(change, column)
                self._set_aside.add(change)
        return made

    def _put_aside(self, change: int, column: str) -> None:
        batch = self._batch
        assert batch.staged is not None  # noqa: S101 - it holds the change
        row = batch.staged.slice(change - batch.first_staged, 1).combine_chunks().to_batches()[0]

        def refuse(_: pa.RecordBatch) -> None:
            raise ValueNotKept(
                f"{self._order.stream}: the event leaves out the value of {column!r}, which did not change, and no "
                f"earlier row has it",
                hint="take a snapshot of the row (headwater signal snapshot), or replay the reject when the row is there",
            )

        self._order.aside.part(_OF_THE_DRIVER).keep(row, refuse)


_OF_THE_DRIVER = 1 << 20  # a part of the rows that no task has
