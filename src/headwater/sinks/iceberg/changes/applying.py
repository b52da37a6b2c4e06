"""Changes applied to the table of the current state: the last change of each key, if it is later than what is there.

| change | comes to |
| --- | --- |
| last of its key, later than the table's row | replaces it; a delete takes it away |
| not the last, or not later (a replay, a snapshot's read) | nothing |
| a truncate | takes away every row before it; its position is kept as a property of the table |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.changes.positions import Positions
from headwater.model.errors import InputError, ValueNotKept
from headwater.sinks.iceberg.changes.batch import Batch
from headwater.sinks.iceberg.changes.completing import complete
from headwater.sinks.iceberg.changes.gathering import take_rows
from headwater.sinks.iceberg.changes.seeking import Seeker
from headwater.sinks.iceberg.changes.shapes import Shape
from headwater.sinks.iceberg.changes.writing import ChangeFiles
from headwater.sinks.iceberg.keyscan import KeyColumn
from headwater.sinks.iceberg.removing import Delta, removal_of, stats_of
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.table import LakeTable, PlannedFile
from headwater.sinks.iceberg.types import arrow_type
from headwater.sinks.iceberg.upsert import BatchStats, Forced, UpsertPlan, choose_upsert
from headwater.sinks.setting_aside import RowsAside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

TRUNCATED_PROPERTY = "headwater.truncated"
"""The position of the last truncate: a change before it comes to nothing, whenever it comes."""


@dataclass(frozen=True)
class ChangesOrder:
    """What is to be applied, and how."""

    stream: str
    key: tuple[str, ...]
    columns: tuple[str, ...]  # that changes fill
    shape: Shape
    forced: Forced
    aside: RowsAside


class ApplyingChanges:
    """One window of changes on its way into one table; asked again when the table's head moved."""

    def __init__(self, spark: SparkSession, table: LakeTable, files: ChangeFiles, order: ChangesOrder) -> None:
        self.removed = 0
        self.rows = 0
        self.properties: dict[str, str] = {}
        self._order, self._delta = order, Delta(table, files)
        self._table, self._files = table, files
        schema = table.schema
        self._columns = {c.name: KeyColumn(c.id, c.name, arrow_type(c.type)) for c in schema.columns}
        self._key = tuple(self._columns[name] for name in order.key)
        self._position = self._columns[order.shape.position]
        self._seeker = Seeker(spark, table, self._key, self._position, order.stream)
        self._planned: Sequence[PlannedFile] = ()
        self._set_aside: set[int] = set()

    @property
    def vector_files(self) -> tuple[str, ...]:
        return self._delta.vector_files

    @cached_property
    def _batch(self) -> Batch:
        return Batch(self._files, self._key, self._position)

    @property
    def _barrier(self) -> int:
        """Changes up to here are void: a truncate came after them."""
        known = int(self._table.java.properties().get(TRUNCATED_PROPERTY) or -1)
        return max(known, -1 if self._files.truncated is None else self._files.truncated)

    @cached_property
    def _last(self) -> Numbers:
        return self._batch.order.last if len(self._batch) else np.empty(0, np.int64)

    @property
    def _standing(self) -> Numbers:
        """The last changes of their keys that no truncate made void."""
        barrier, positions = self._barrier, self._batch.positions[self._last]
        return self._last if barrier < 0 else self._last[positions > Positions.same(barrier, len(self._last))]

    def plan(self) -> UpsertPlan:
        """Choose the way, for the table as it is now."""
        standing = self._standing
        keys = self._batch.key_values(standing) if len(standing) else []
        if self._files.truncated is not None:
            self._planned = self._seeker.every_file()
        else:
            self._planned = self._seeker.planned(keys) if keys else []
        batch = BatchStats(len(standing), len(self._batch) - len(standing))
        stats = stats_of(self._table.format_version, self._table.rows, self._planned)
        plan = choose_upsert(batch, stats, self._order.forced)
        if plan.kind == "merge":
            raise InputError(
                f"{self._table.name}: changes cannot be merged: {plan.why}",
                hint="let Headwater make the table (format version 3), or land in another one",
            )
        return plan

    def update(self, plan: UpsertPlan) -> Any | None:
        """The Iceberg update; None: the table has it all already."""
        batch, standing = self._batch, self._standing
        hits, late = self._hits(plan, standing)
        applied = standing[~late[batch.numbers[standing]]] if len(standing) else standing
        staged = applied[applied >= batch.first_staged]
        completed = self._completed(staged)
        self._files.write_more(completed)
        self.rows = len(applied)
        whole = self._void_files() if self._files.truncated is not None else frozenset()
        removal = removal_of(self._planned, hits, drop=whole)
        self.removed = removal.rows
        truncated = self._files.truncated
        self.properties = {} if truncated is None else {TRUNCATED_PROPERTY: str(self._barrier)}
        if not len(applied) and not removal.rows and truncated is None:
            return None
        return self._delta.update(self._planned, removal, self._hidden(applied))

    def _hits(self, plan: UpsertPlan, standing: Numbers) -> tuple[dict[str, Numbers], Bools]:
        """Rows of the table that go, and which keys have a row there that is later than their change."""
        batch = self._batch
        late: Bools = np.zeros(len(batch.keys) if len(batch) else 0, np.bool_)
        hits: dict[str, Numbers] = {}
        if len(standing) and plan.kind != "append":
            hits = self._seeker.rows(self._planned, batch.key_values(standing))
            least = batch.positions[standing].least()
            suspects = {f.location for f in self._planned if (self._seeker.last_position(f) or least) >= least}
            found = self._seeker.positions({f: rows for f, rows in hits.items() if f in suspects}, batch.keys)
            changes = np.zeros(len(batch.keys), np.int64)
            changes[batch.numbers[standing]] = standing
            known = found.key >= 0
            not_later = ~(batch.positions[changes[found.key]] > found.positions) & known
            late[found.key[not_later]] = True
            for number, location in enumerate(found.locations):
                mine = found.file == number
                hits[location] = found.row[mine & ~late[found.key]]
        if self._files.truncated is not None:
            self._add_void(hits)
        return {location: rows for location, rows in hits.items() if len(rows)}, late

    def _void_files(self) -> frozenset[str]:
        """Files of which a truncate leaves nothing."""
        barrier = self._barrier
        last = {file.location: self._seeker.last_position(file) for file in self._planned}
        return frozenset(location for location, position in last.items() if position is not None and position < barrier)

    def _add_void(self, hits: dict[str, Numbers]) -> None:
        """All rows before the truncate."""
        barrier, whole = self._barrier, self._void_files()
        for file in self._planned:
            rows = np.arange(file.rows)
            if file.location not in whole:
                positions = Positions.of(take_rows(file.location, [self._position], rows).column(0))
                rows = rows[~(positions > Positions.same(barrier, len(rows)))]
            hits[file.location] = np.union1d(rows, hits.get(file.location, rows[:0]))

    def _hidden(self, applied: Numbers) -> dict[str, Numbers]:
        """Rows of the landing's own files that nobody shall see: all but the last changes that are not deletes."""
        batch = self._batch
        seen = np.zeros(len(batch), np.bool_)
        seen[applied] = True
        seen &= ~batch.deletes
        made = {}
        for number, location in enumerate(batch.locations):
            rows = np.flatnonzero(~seen[batch.places.file == number])
            if len(rows):
                made[location] = rows
        return made

    def _completed(self, staged: Numbers) -> pa.Table:
        schema = self._table.schema.to_arrow()
        if not len(staged):
            return schema.empty_table()
        filled = [self._columns[name] for name in self._order.columns if name not in self._order.key]
        made = complete(self._batch, staged, self._seeker, filled, self._order.shape, schema)
        for change, column in made.unknown:
            if change not in self._set_aside:
                self._put_aside(change, column)
                self._set_aside.add(change)
        return made.rows

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

        self._order.aside.part(1 << 20).keep(row, refuse)

    def on_branch(self, session: SparkSession, stamp: Stamp, branch: str) -> None:
        """Never asked: see `plan`."""
        raise NotImplementedError
