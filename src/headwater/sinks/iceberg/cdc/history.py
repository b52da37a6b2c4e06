"""Changes as history: every version of every row, from its change until the change that ended it.

A late change becomes a version between others. A version whose end changes is removed and added again with the new
end; every version, and every delete, is found in data files by its key (see batch.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.changes.positions import ABSENT, Positions, concat_positions, sorted_distinct
from headwater.changes.versions import NEVER, NONE, Intervals, Points, intervals
from headwater.model.errors import InputError
from headwater.model.rows import SOURCE_TIME
from headwater.sinks.iceberg.cdc.batch import Batch, LocatedRows
from headwater.sinks.iceberg.cdc.change_files import CURRENT, TO_POSITION, VALID_FROM, VALID_TO
from headwater.sinks.iceberg.cdc.current_state import ChangeTable
from headwater.sinks.iceberg.cdc.fill_missing import CompleteRows
from headwater.sinks.iceberg.data_files import gather_rows, take_rows
from headwater.sinks.iceberg.merge.copy_on_write import deleted_rows, plan_removal
from headwater.sinks.iceberg.merge.key_lookup import plain
from headwater.sinks.iceberg.merge.strategy import UpsertPlan

Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TableVersions:
    """Rows of the table with keys of the batch."""

    located: LocatedRows
    live: Bools
    deletes: Bools  # rows that only hold a delete's position
    time: Numbers
    ends: Bools
    until: Positions
    until_time: Numbers

    def only(self, mask: Bools) -> TableVersions:
        rows = self.located
        return TableVersions(
            LocatedRows(rows.locations, rows.file[mask], rows.row[mask], rows.key[mask], rows.positions[mask]),
            self.live[mask],
            self.deletes[mask],
            self.time[mask],
            self.ends[mask],
            self.until[mask],
            self.until_time[mask],
        )

    def by_location(self, which: Numbers) -> dict[str, Numbers]:
        """Rows by file."""
        rows = self.located
        return {rows.locations[n]: rows.row[which[rows.file[which] == n]] for n in np.unique(rows.file[which]).tolist()}


@dataclass(frozen=True)
class VersionAddresses:
    """Where the row of every version is written."""

    locations: list[str]
    file: Numbers
    row: Numbers

    @classmethod
    def of(cls, located: LocatedRows, batch: Batch, in_table: Bools, at: Numbers, change: Numbers) -> VersionAddresses:
        number, addresses = np.maximum(change, 0), batch.addresses
        file = np.where(in_table, take(located.file, at), len(located.locations) + take(addresses.file, number))
        row = np.where(in_table, take(located.row, at), take(addresses.row, number))
        return cls([*located.locations, *batch.locations], file, row)

    def by_location(self, which: Numbers) -> dict[str, Numbers]:
        """Rows by file, in the order of `which` within each."""
        return {self.locations[n]: self.row[which[self.file[which] == n]] for n in np.unique(self.file[which]).tolist()}


def equal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Bools:
    """Value by value; NULL equals NULL."""
    if pa.types.is_nested(left.type):
        return np.array([a == b for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)], np.bool_)
    same = pc.fill_null(pc.equal(plain(left), plain(right)), fill_value=False)
    return np.asarray(pc.or_(same, pc.and_(pc.is_null(left), pc.is_null(right))), np.bool_)


def take(values: Any, at: Numbers) -> Any:
    """The values at these indexes; zeros that no caller uses if there are no values."""
    return values[at] if len(values) else np.zeros(len(at), values.dtype)


def with_ends(rows: pa.Table, versions: Intervals, which: Numbers) -> pa.Table:
    ended = pa.array(versions.ends[which])
    unknown = pa.array(versions.until_time[which] == NEVER)
    time = pa.array(versions.until_time[which]).cast(pa.timestamp("us", "UTC"))
    ends = {
        VALID_TO: pc.if_else(pc.and_not(ended, unknown), time, pa.scalar(None, time.type)),
        TO_POSITION: pc.if_else(ended, versions.until[which].to_arrow(), pa.scalar(None, pa.decimal128(38, 0))),
        CURRENT: pc.invert(ended),
    }
    for name, values in ends.items():
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index).with_type(values.type), values)
    return rows


def micros(column: pa.ChunkedArray | pa.Array) -> Numbers:
    array = plain(column)
    return np.asarray(array.cast(pa.int64()).fill_null(NEVER).to_numpy(zero_copy_only=False), np.int64)


TRUNCATES_PROPERTY = "headwater.truncates"
"""Positions of all truncates with their times in µs, as JSON: a late change may end at any of them."""


class History(ChangeTable):
    """All changes of every key."""

    @cached_property
    def _keys(self) -> list[pa.Array]:
        batch = self._batch
        return batch.key_values(batch.order.last) if len(batch) else []

    @property
    def _truncates(self) -> dict[int, int]:
        known = self._table.java.properties().get(TRUNCATES_PROPERTY)
        return {int(position): int(time) for position, time in json.loads(known or "{}").items()}

    def plan(self) -> UpsertPlan:
        if self._changes.truncates:
            self._planned = self._lookup.all_files()
        else:
            self._planned = self._lookup.plan_files(self._keys) if self._keys else []
        plan = self._choose(len(self._keys[0]) if self._keys else 0)
        if plan.strategy == "merge":  # versions are found by row numbers, which MERGE does not have
            raise InputError(
                f"{self._table.name}: mode history cannot use Spark's MERGE",
                hint="write upsert: auto, and let Headwater create the table (format version 3, Parquet)",
            )
        return plan

    def update(self, plan: UpsertPlan) -> Any | None:
        table = self._table_versions(plan)
        complete = self._complete(np.arange(self._batch.first_staged, len(self._batch)))
        unknown = {change for change, _ in complete.unknown}
        points = self._points(table, unknown)
        truncates = {**self._truncates, **self._changes.truncates}
        versions = intervals(points, truncates)
        repeats = self._repeats(points, versions, table, complete)
        if repeats.any():
            versions = intervals(points, truncates, without=repeats)
        differences = self._differences(versions, table, complete, repeats)
        self._changes.write_complete(differences.added)
        removal = plan_removal(self._planned, differences.removed, drop=frozenset())
        self.removed, self._landed_rows = removal.rows, int(differences.visible.sum()) + differences.added.num_rows
        new_truncates = truncates.keys() - self._truncates.keys()
        self.properties = {TRUNCATES_PROPERTY: json.dumps(truncates)} if new_truncates else {}
        if not self.rows and not removal.rows and not self.properties and not self._has_new_deletes(points, table):
            return None
        return self._row_delta(plan, removal, differences.visible)

    def _has_new_deletes(self, points: Points, table: TableVersions) -> bool:
        """True if the batch has a delete whose position the table does not hold yet."""
        located = table.located
        positions = located.positions
        known = set(zip(located.key.tolist(), positions.high.tolist(), positions.low.tolist(), strict=True))
        rows = np.flatnonzero(points.deletes & (points.preference == _BATCH))
        return any(
            (int(points.key[n]), int(points.positions.high[n]), int(points.positions.low[n])) not in known for n in rows
        )

    def _table_versions(self, plan: UpsertPlan) -> TableVersions:
        """The table's versions of the batch's keys; after a truncate, of all keys."""
        batch, hits = self._batch, dict[str, Numbers]()
        if self._changes.truncates:
            hits = {file.location: np.arange(file.rows) for file in self._planned}
        elif plan.strategy != "append":
            hits = self._lookup.rows(self._planned, self._keys)
        located = self._lookup.locate(hits, batch.keys) if len(batch) else self._locate_without_keys(hits)
        columns = [self._columns[name] for name in (VALID_FROM, TO_POSITION, CURRENT, VALID_TO)]
        state = gather_rows(hits, columns)
        until = state.column(1).combine_chunks()
        versions = TableVersions(
            located,
            self._live(hits),
            np.asarray(state.column(2).is_null()),
            micros(state.column(0)),
            np.asarray(until.is_valid()),
            Positions.of(until.fill_null(0)),
            micros(state.column(3)),
        )
        return versions.only(versions.live | versions.deletes)  # a deleted version was added again with another end

    def _locate_without_keys(self, hits: Mapping[str, Numbers]) -> LocatedRows:
        """For a window of truncates alone: no row has a key of the batch."""
        locations = list(hits)
        sizes = [len(hits[location]) for location in locations]
        positions = concat_positions(
            [Positions.of(take_rows(file, [self._position], hits[file]).column(0)) for file in locations]
        )
        none = np.empty(0, np.int64)
        rows = np.concatenate([none, *hits.values()])
        files = np.repeat(np.arange(len(sizes)), sizes)
        return LocatedRows(locations, files, rows, np.full(len(rows), ABSENT), positions)

    def _live(self, hits: Mapping[str, Numbers]) -> Bools:
        deleted = {file.location: deleted_rows(file) for file in self._planned if file.location in hits}
        live = [
            np.array([row not in deleted[location] for row in rows.tolist()], np.bool_)
            for location, rows in hits.items()
        ]
        return np.concatenate([np.empty(0, np.bool_), *live])

    def _points(self, table: TableVersions, unknown: set[int]) -> Points:
        """The table's, the batch's, and the ends of versions whose keys are not in the batch, in this order.

        A truncate brings in such versions: each has a key number of its own, and the end that it has.
        """
        batch, located = self._batch, table.located
        extra_keys = len(batch.keys if len(batch) else ()) + np.arange(len(located.key))
        key = np.where(located.key < 0, extra_keys, located.key)
        ended = (located.key < 0) & table.ends
        known = np.array([change not in unknown for change in range(len(batch))], np.bool_)
        self._complete_changes = np.flatnonzero(known)
        return Points(
            np.concatenate([key, batch.numbers[known] if len(batch) else key[:0], key[ended]]),
            concat_positions([located.positions, batch.positions[known], table.until[ended]]),
            np.concatenate([table.time, self._times[known], table.until_time[ended]]),
            np.concatenate([table.deletes, batch.deletes[known], np.ones(int(ended.sum()), np.bool_)]),
            np.concatenate(
                [
                    np.where(table.live, _LIVE, _DELETED),
                    np.full(int(known.sum()), _BATCH),
                    np.full(int(ended.sum()), _DELETED),
                ]
            ),
        )

    @cached_property
    def _times(self) -> Numbers:
        """When each change of the batch happened."""
        batch, column = self._batch, self._columns[VALID_FROM]
        files = (*self._changes.upserts, *self._changes.deletes)
        parts = [micros(take_rows(f.location, [column], np.arange(f.rows)).column(0)) for f in files]
        if batch.staged is not None:
            parts.append(micros(batch.staged.column(SOURCE_TIME)))
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _differences(
        self, versions: Intervals, table: TableVersions, complete: CompleteRows, repeats: Bools
    ) -> _Differences:
        """The changes that bring the table to these versions."""
        batch = self._batch
        in_table, at, change = self._origins(versions, table)
        staged = change >= batch.first_staged
        moved = in_table & take(table.live, at) & ~self._has_same_end(versions, table, at)
        written = ~in_table & ~staged
        visible = np.zeros(len(batch), np.bool_)
        visible[change[written & ~versions.ends]] = True
        again = np.flatnonzero(moved | (written & versions.ends))
        addresses = VersionAddresses.of(table.located, batch, in_table, at, change)
        parts = [
            self._rewritten(versions, again[np.argsort(addresses.file[again], kind="stable")], addresses),
            self._from_staged(versions, np.flatnonzero(staged), change, complete),
        ]
        removed = addresses.by_location(np.flatnonzero(moved))
        for location, rows in table.by_location(np.flatnonzero(repeats[: len(table.live)])).items():
            removed[location] = sorted_distinct(removed.get(location, rows[:0]), rows)
        return _Differences(visible, removed, pa.concat_tables([part.cast(complete.rows.schema) for part in parts]))

    def _repeats(self, points: Points, versions: Intervals, table: TableVersions, complete: CompleteRows) -> Bools:
        """Reads of a snapshot that found a row unchanged since the version before: they are not new versions.

        A version of the table may be among them, if the one before it was late.
        """
        repeats = np.zeros(len(points.key), np.bool_)
        reads = points.positions.low[versions.point] % 2 == 0  # see `position`
        which = np.flatnonzero(reads & (versions.follows != NONE))
        if len(which):
            same = np.ones(len(which), np.bool_)
            sides = [self._values(versions, side, table, complete) for side in (which, versions.follows[which])]
            for left, right in zip(*(side.columns for side in sides), strict=True):
                same &= equal(left, right)
            repeats[versions.point[which[same]]] = True
        return repeats

    def _values(self, versions: Intervals, which: Numbers, table: TableVersions, complete: CompleteRows) -> pa.Table:
        """The source's columns in these versions."""
        columns = [self._columns[name] for name in self._request.columns if name in self._columns]
        in_table, at, change = self._origins(versions, table)
        addresses = VersionAddresses.of(table.located, self._batch, in_table, at, change)
        staged = change[which] >= self._batch.first_staged
        written, incomplete = which[~staged], which[staged]
        by_file = np.argsort(addresses.file[written], kind="stable")
        rows = [gather_rows(addresses.by_location(written[by_file]), columns)]
        rows.append(complete.rows.take(pa.array(np.searchsorted(complete.changes, change[incomplete]))))
        order = np.concatenate([np.flatnonzero(~staged)[by_file], np.flatnonzero(staged)])
        names = [column.name for column in columns]
        return pa.concat_tables([part.select(names).cast(rows[0].schema) for part in rows]).take(
            pa.array(np.argsort(order))
        )

    def _origins(self, versions: Intervals, table: TableVersions) -> tuple[Bools, Numbers, Numbers]:
        """For every version: True if the table has it, the number of its row there, the number of its change."""
        count, changes = len(table.live), self._complete_changes
        in_table = versions.point < count
        at = np.where(in_table, versions.point, 0)
        change = np.where(in_table, -1, changes[np.maximum(versions.point - count, 0)] if len(changes) else -1)
        return in_table, at, change

    def _has_same_end(self, versions: Intervals, table: TableVersions, at: Numbers) -> Bools:
        """True where the table's row ends where the version does."""
        ends, until = take(table.ends, at), table.until
        if not len(until):
            return np.zeros(len(at), np.bool_)
        table_end = until[at]
        equal_end = (table_end.high == versions.until.high) & (table_end.low == versions.until.low)
        same: Bools = (ends == versions.ends) & (~ends | equal_end)
        return same

    def _rewritten(self, versions: Intervals, which: Numbers, addresses: VersionAddresses) -> pa.Table:
        """Rows that are in files already, with other ends; `which` is sorted by file."""
        columns = list(self._columns.values())
        return with_ends(gather_rows(addresses.by_location(which), columns), versions, which)

    def _from_staged(self, versions: Intervals, which: Numbers, change: Numbers, complete: CompleteRows) -> pa.Table:
        rows = np.searchsorted(complete.changes, change[which])
        return with_ends(complete.rows.take(pa.array(rows)), versions, which)


@dataclass(frozen=True)
class _Differences:
    visible: Bools  # changes of the batch whose written rows are current versions
    removed: dict[str, Numbers]
    added: pa.Table


_LIVE, _DELETED, _BATCH = 0, 1, 2  # of several rows at one position the first counts
