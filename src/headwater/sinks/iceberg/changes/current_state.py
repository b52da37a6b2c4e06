"""Changes applied to the table of the current state: the last change of each key, if it is later than what is there.

| change | comes to |
| --- | --- |
| last of its key, later than the table's row | replaces it; a delete takes it away |
| not the last, or not later (a replay, a snapshot's read) | nothing |
| a truncate | takes away every row before it; its position is kept as a property of the table |
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.changes.positions import Positions
from headwater.sinks.iceberg.changes.gathering import take_rows
from headwater.sinks.iceberg.changes.other_keys import as_text
from headwater.sinks.iceberg.changes.table_of_changes import TableOfChanges
from headwater.sinks.iceberg.keyset import plain
from headwater.sinks.iceberg.merge_sql import changes_statement
from headwater.sinks.iceberg.naming import quote
from headwater.sinks.iceberg.removing import removal_of, unreadable
from headwater.sinks.iceberg.spark_merge import merge_on_branch
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.table import PlannedFile
from headwater.sinks.iceberg.upsert import DELETE_FILES, UpsertPlan
from headwater.sinks.sorted_once import sorted_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

TRUNCATED_PROPERTY = "headwater.truncated"
"""The position of the last truncate: a change before it comes to nothing, whenever it comes."""


class CurrentState(TableOfChanges):
    """The last change of every key."""

    _is_all_new = False

    @property
    def _barrier(self) -> int:
        """Changes up to here are void: a truncate came after them."""
        return max(self._truncated, *self._files.truncates, -1)

    @property
    def _truncated(self) -> int:
        return int(self._table.java.properties().get(TRUNCATED_PROPERTY) or -1)

    @cached_property
    def _last(self) -> Numbers:
        return self._batch.order.last if len(self._batch) else np.empty(0, np.int64)

    @property
    def _standing(self) -> Numbers:
        """The last changes of their keys that no truncate made void."""
        barrier, positions = self._barrier, self._batch.positions[self._last]
        return self._last if barrier < 0 else self._last[positions > Positions.same(barrier, len(self._last))]

    def _copied_onto(self) -> Sequence[PlannedFile] | None:
        """The table's files, where a copy comes onto nothing but what its truncate makes void; else None.

        Then none of its keys can be there, and none of its rows is late. Earlier windows of the same copy brought other
        keys; its position follows right behind the truncate's.
        """
        files, copied = self._files, self._barrier + 1
        if not self._order.is_copy or self._order.forced != "auto" or files.staged or files.deletes:
            return None
        planned = self._seeker.every_file()
        last = [self._seeker.last_position(file) for file in planned]
        return planned if all(position is not None and position <= copied for position in last) else None

    def plan(self) -> UpsertPlan:
        onto = self._copied_onto()
        self._is_all_new = onto is not None
        if onto is not None:
            self._planned = onto
            return UpsertPlan("append", "a copy, of which nothing can be there")
        standing = self._standing
        if self._files.truncates:
            self._planned = self._seeker.every_file()
        else:
            self._planned = self._seeker.planned(self._batch.key_values(standing)) if len(standing) else []
        return self._chosen(len(standing))

    def update(self, plan: UpsertPlan) -> Any | None:
        if self._is_all_new:
            return self._copied(plan)
        batch, standing = self._batch, self._standing
        hits, late = self._hits(plan, standing)
        applied = standing[~late[batch.numbers[standing]]] if len(standing) else standing
        completed = self._completed(applied[applied >= batch.first_staged])
        self._files.write_more(completed.rows)
        self.rows = len(applied) - len(completed.unknown)
        truncates = self._files.truncates
        removal = removal_of(self._planned, hits, drop=self._void_files() if truncates else frozenset())
        self.removed = removal.rows
        self.properties = {TRUNCATED_PROPERTY: str(self._barrier)} if self._barrier > self._truncated else {}
        if not len(applied) and not removal.rows and not self.properties:
            return None
        seen = np.zeros(len(batch), np.bool_)
        seen[applied] = True
        return self._published(plan, removal, seen & ~batch.deletes)

    def _copied(self, plan: UpsertPlan) -> Any:
        """Every row of the landing counts; the table's own go."""
        hits: dict[str, Numbers] = {}
        if self._files.truncates:
            self._add_void(hits)
        removal = removal_of(self._planned, hits, drop=self._void_files())
        self.rows, self.removed, self.way = self._files.rows, removal.rows, plan
        self.properties = {TRUNCATED_PROPERTY: str(self._barrier)} if self._barrier > self._truncated else {}
        return self._delta.update(plan.kind, self._planned, removal, {}) or self._table.append([])

    def on_branch(self, session: SparkSession, stamp: Stamp, branch: str) -> None:
        """Carry out a `merge`: as `update`, by Spark. Where the table can, deletes keep their positions all the same."""
        batch, standing, barrier = self._batch, self._standing, self._barrier
        completed = self._completed(standing[standing >= batch.first_staged])
        self._files.write_more(completed.rows)
        self.rows = len(standing) - len(completed.unknown)
        self.properties = {TRUNCATED_PROPERTY: str(barrier)} if barrier > self._truncated else {}
        gone = [file.location for file in self._files.deletes]
        rows = [location for location in self._files.locations if location not in gone]
        name = self._order.shape.position
        bounds = self._seeker.bounds(batch.key_values(standing)) if len(standing) else {}
        statement = partial(
            changes_statement,
            schema=self._table.schema,
            key=self._order.key,
            position=name,
            after=barrier,
            bounds=bounds,
        )
        void = f"{quote(name)} <= {barrier}BD"
        merge_on_branch(
            session,
            self._table,
            statement,
            stamp=stamp,
            branch=branch,
            rows=[rows, gone],
            more=[self._late_keys(standing)],
            first=(lambda target: f"DELETE FROM {target} WHERE {void}") if self._files.truncates else None,  # noqa: S608
        )
        if gone and self._table.format_version >= DELETE_FILES:
            self._delta.keep_unseen(branch, self._files.deletes, stamp)

    def _late_keys(self, standing: Numbers) -> pa.Table:
        """Keys whose rows are gone from the table by something later than their changes: MERGE sees only what is there."""
        readable = len(standing) and not unreadable(self._planned)
        late = self._hits(UpsertPlan("delete-append", ""), standing)[1] if readable else np.empty(0, np.bool_)
        keys = (
            self._batch.keys_numbered(np.flatnonzero(late))
            if late.any()
            else [plain(pa.array([], c.type)) for c in self._key]
        )
        return pa.table(
            [as_text(column.type, values) for column, values in zip(self._key, keys, strict=True)],
            names=list(self._order.key),
        )

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
        if self._files.truncates:
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
            hits[file.location] = sorted_once(rows, hits.get(file.location, rows[:0]))
