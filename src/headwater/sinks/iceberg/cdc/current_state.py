"""Tables that are made of changes; the current state: the last change of each key, if later than its row.

| change | effect |
| --- | --- |
| last of its key, later than the table's row | replaces it; a delete removes it |
| not the last, or not later (a replay, a snapshot's read) | none |
| a truncate | removes every row before it; its position becomes a property of the table |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.changes.positions import Positions, sorted_distinct
from headwater.model.errors import ValueNotKept
from headwater.sinks.iceberg.catalog.publish import Stamp
from headwater.sinks.iceberg.catalog.table import PlannedFile, quote
from headwater.sinks.iceberg.cdc.batch import Batch, KeyLookup, spark_values
from headwater.sinks.iceberg.cdc.change_files import ChangeFiles, TableLayout
from headwater.sinks.iceberg.cdc.fill_missing import CompleteRows, CompletionTarget, complete_changes
from headwater.sinks.iceberg.data_files import arrow_columns, take_rows
from headwater.sinks.iceberg.merge.copy_on_write import Removal, plan_removal, table_stats, unreadable
from headwater.sinks.iceberg.merge.key_lookup import plain
from headwater.sinks.iceberg.merge.spark_merge import changes_statement, run_merge
from headwater.sinks.iceberg.merge.strategy import DELETE_FILES, BatchStats, UpsertPlan, UpsertSetting, choose_upsert
from headwater.sinks.iceberg.merge.table_update import MergesBySpark, TableUpdate, Target
from headwater.sinks.rejects import SinkRejects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ChangesRequest:
    """Changes to apply to a table."""

    stream: str
    key: tuple[str, ...]
    columns: tuple[str, ...]  # that changes fill
    layout: TableLayout
    upsert: UpsertSetting
    rejects: SinkRejects
    is_copy: bool = False  # reads of one exported snapshot, no two of one key


class ChangeTable(TableUpdate):
    """The update of a table by one window of changes."""

    def __init__(self, target: Target, files: ChangeFiles, request: ChangesRequest) -> None:
        super().__init__(target, keeps_hidden=True)
        self.removed = 0
        self._landed_rows = 0
        self._request, self._changes = request, files
        self._columns = {column.name: column for column in arrow_columns(target.table.schema)}
        self._key = tuple(self._columns[name] for name in request.key)
        self._position = self._columns[request.layout.position]
        self._lookup = KeyLookup(target, self._key, self._position, request.stream)
        self._rejected: set[int] = set()

    @property
    def rows(self) -> int:
        return self._landed_rows

    @cached_property
    def _batch(self) -> Batch:
        return Batch(self._changes, self._key, self._position)

    def _choose(self, changes: int) -> UpsertPlan:
        """The strategy for so many keys in the planned files."""
        batch = BatchStats(changes, len(self._batch) - changes)
        stats = table_stats(self._table.format_version, self._table.rows, self._planned)
        return choose_upsert(batch, stats, self._request.upsert, self._tuning)

    def _row_delta(self, plan: UpsertPlan, removal: Removal, visible: Bools) -> Any:
        """The update that adds the landing's files, with only these changes visible, and removes rows."""
        self.applied = plan  # not reconsidered: hidden rows are copied too, so copying saves nothing
        update = self._delta.update(plan.strategy, self._planned, removal, self._hidden(visible))
        return update or self._table.append([])  # a property of the table needs a snapshot, too

    def _hidden(self, visible: Bools) -> dict[str, Numbers]:
        """Rows of the landing's files that readers must not see."""
        batch, hidden = self._batch, {}
        for number, location in enumerate(batch.locations):
            rows = np.flatnonzero(~visible[batch.addresses.file == number])
            if len(rows):
                hidden[location] = rows
        return hidden

    def _complete(self, staged: Numbers) -> CompleteRows:
        """The rows of changes that leave values out; a change whose value is unknown is rejected."""
        schema = self._table.schema.to_arrow()
        if not len(staged):
            return CompleteRows(schema.empty_table(), staged)
        columns = [self._columns[name] for name in self._request.columns if name not in self._request.key]
        target = CompletionTarget(schema, columns, self._request.layout)
        rows = complete_changes(self._batch, staged, self._lookup, target)
        for change, column in rows.unknown:
            if change not in self._rejected:
                self._reject(change, column)
                self._rejected.add(change)
        return rows

    def _reject(self, change: int, column: str) -> None:
        batch = self._batch
        assert batch.staged is not None  # noqa: S101 - it holds the change
        row = batch.staged.slice(change - batch.first_staged, 1).combine_chunks().to_batches()[0]

        def refuse(_: pa.RecordBatch) -> None:
            raise ValueNotKept(
                f"{self._request.stream}: the event omits the unchanged value of {column!r}, and no earlier row has it",
                hint="take a snapshot of the row (headwater signal snapshot), or replay the reject when the row exists",
            )

        self._request.rejects.part(_DRIVER_PART).write(row, refuse)


_DRIVER_PART = 1 << 20  # a number that no task's part has


TRUNCATED_PROPERTY = "headwater.truncated"
"""The position of the last truncate: changes before it have no effect, however late they arrive."""


class CurrentState(ChangeTable, MergesBySpark):
    """The last change of every key."""

    _keys_are_new = False

    @property
    def _barrier(self) -> int:
        """Changes up to here are void: a truncate came after them."""
        return max(self._truncated, *self._changes.truncates, -1)

    @property
    def _truncated(self) -> int:
        return int(self._table.java.properties().get(TRUNCATED_PROPERTY) or -1)

    @cached_property
    def _last(self) -> Numbers:
        return self._batch.order.last if len(self._batch) else np.empty(0, np.int64)

    @property
    def _effective(self) -> Numbers:
        """The last changes of their keys that no truncate made void."""
        barrier, positions = self._barrier, self._batch.positions[self._last]
        return self._last if barrier < 0 else self._last[positions > Positions.same(barrier, len(self._last))]

    def _files_before_copy(self) -> Sequence[PlannedFile] | None:
        """The table's files, if a copy's truncate makes all their rows void; else None.

        Then the table has none of the copy's keys, and no row of the copy is late. Earlier windows of the same copy
        brought other keys; its position directly follows the truncate's.
        """
        files, copied = self._changes, self._barrier + 1
        if not self._request.is_copy or self._request.upsert != "auto" or files.staged or files.deletes:
            return None
        planned = self._lookup.all_files()
        last = [self._lookup.last_position(file) for file in planned]
        return planned if all(position is not None and position <= copied for position in last) else None

    def plan(self) -> UpsertPlan:
        before = self._files_before_copy()
        self._keys_are_new = before is not None
        if before is not None:
            self._planned = before
            return UpsertPlan("append", "an initial copy: the table has none of its keys")
        effective = self._effective
        if self._changes.truncates:
            self._planned = self._lookup.all_files()
        else:
            self._planned = self._lookup.plan_files(self._batch.key_values(effective)) if len(effective) else []
        return self._choose(len(effective))

    def update(self, plan: UpsertPlan) -> Any | None:
        if self._keys_are_new:
            return self._append_copy(plan)
        batch, effective = self._batch, self._effective
        hits, late = self._hits(plan, effective)
        applied = effective[~late[batch.numbers[effective]]] if len(effective) else effective
        complete = self._complete(applied[applied >= batch.first_staged])
        self._changes.write_complete(complete.rows)
        self._landed_rows = len(applied) - len(complete.unknown)
        truncates = self._changes.truncates
        removal = plan_removal(self._planned, hits, drop=self._void_files() if truncates else frozenset())
        self.removed = removal.rows
        self.properties = {TRUNCATED_PROPERTY: str(self._barrier)} if self._barrier > self._truncated else {}
        if not len(applied) and not removal.rows and not self.properties:
            return None
        visible = np.zeros(len(batch), np.bool_)
        visible[applied] = True
        return self._row_delta(plan, removal, visible & ~batch.deletes)

    def _append_copy(self, plan: UpsertPlan) -> Any:
        """Add every row of the landing, and remove the void ones of the table."""
        hits: dict[str, Numbers] = {}
        if self._changes.truncates:
            self._add_void(hits)
        removal = plan_removal(self._planned, hits, drop=self._void_files())
        self._landed_rows, self.removed, self.applied = self._files.rows, removal.rows, plan
        self.properties = {TRUNCATED_PROPERTY: str(self._barrier)} if self._barrier > self._truncated else {}
        return self._delta.update(plan.strategy, self._planned, removal, {}) or self._table.append([])

    def merge_on_branch(self, session: SparkSession, stamp: Stamp, branch: str) -> None:
        """As `update`, by Spark. If the table's format has delete files, deletes still keep their positions."""
        batch, effective, barrier = self._batch, self._effective, self._barrier
        complete = self._complete(effective[effective >= batch.first_staged])
        self._changes.write_complete(complete.rows)
        self._landed_rows = len(effective) - len(complete.unknown)
        self.properties = {TRUNCATED_PROPERTY: str(barrier)} if barrier > self._truncated else {}
        deletes = [file.location for file in self._changes.deletes]
        upserts = [location for location in self._files.locations if location not in deletes]
        name = self._request.layout.position
        bounds = self._lookup.bounds(batch.key_values(effective)) if len(effective) else {}
        statement = partial(
            changes_statement,
            schema=self._table.schema,
            key=self._request.key,
            position=name,
            after=barrier,
            bounds=bounds,
        )
        void = f"{quote(name)} <= {barrier}BD"
        run_merge(
            session,
            self._table,
            statement,
            stamp=stamp,
            branch=branch,
            files=[upserts, deletes],
            tables=[self._late_keys(effective)],
            first=(lambda target: f"DELETE FROM {target} WHERE {void}") if self._changes.truncates else None,  # noqa: S608
        )
        if deletes and self._table.format_version >= DELETE_FILES:
            self._delta.add_hidden(branch, self._changes.deletes, stamp)

    def _late_keys(self, effective: Numbers) -> pa.Table:
        """Keys that a later change removed from the table: MERGE sees live rows only."""
        readable = len(effective) and not unreadable(self._planned)
        late = self._hits(UpsertPlan("delete-append", ""), effective)[1] if readable else np.empty(0, np.bool_)
        keys = (
            self._batch.keys_numbered(np.flatnonzero(late))
            if late.any()
            else [plain(pa.array([], c.type)) for c in self._key]
        )
        return pa.table(
            [spark_values(column.type, values) for column, values in zip(self._key, keys, strict=True)],
            names=list(self._request.key),
        )

    def _hits(self, plan: UpsertPlan, effective: Numbers) -> tuple[dict[str, Numbers], Bools]:
        """Rows of the table to remove, and which keys have a row there that is later than their change."""
        batch = self._batch
        late: Bools = np.zeros(len(batch.keys) if len(batch) else 0, np.bool_)
        hits: dict[str, Numbers] = {}
        if len(effective) and plan.strategy != "append":
            hits = self._lookup.rows(self._planned, batch.key_values(effective))
            least = batch.positions[effective].least()
            suspects = {f.location for f in self._planned if (self._lookup.last_position(f) or least) >= least}
            located = self._lookup.locate({f: rows for f, rows in hits.items() if f in suspects}, batch.keys)
            changes = np.zeros(len(batch.keys), np.int64)
            changes[batch.numbers[effective]] = effective
            not_later = ~(batch.positions[changes[located.key]] > located.positions) & (located.key >= 0)
            late[located.key[not_later]] = True
            for number, location in enumerate(located.locations):
                in_file = located.file == number
                hits[location] = located.row[in_file & ~late[located.key]]
        if self._changes.truncates:
            self._add_void(hits)
        return {location: rows for location, rows in hits.items() if len(rows)}, late

    def _void_files(self) -> frozenset[str]:
        """Files whose rows are all before the truncate."""
        barrier = self._barrier
        last = {file.location: self._lookup.last_position(file) for file in self._planned}
        return frozenset(location for location, position in last.items() if position is not None and position < barrier)

    def _add_void(self, hits: dict[str, Numbers]) -> None:
        """All rows before the truncate."""
        barrier, void_files = self._barrier, self._void_files()
        for file in self._planned:
            rows = np.arange(file.rows)
            if file.location not in void_files:
                positions = Positions.of(take_rows(file.location, [self._position], rows).column(0))
                rows = rows[~(positions > Positions.same(barrier, len(rows)))]
            hits[file.location] = sorted_distinct(rows, hits.get(file.location, rows[:0]))
