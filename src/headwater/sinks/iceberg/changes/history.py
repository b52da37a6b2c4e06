"""Changes kept as history: every version of every row, from its change until what ended it.

A change that comes late finds its place between others. A version whose end changes is taken away and added again with
the other end; every version, and every delete, is found again in data files by its key (see seeking.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.changes.keys import NOWHERE
from headwater.changes.positions import Positions, joined
from headwater.changes.versions import NEVER, Intervals, Points, intervals
from headwater.model.changes import SOURCE_TIME
from headwater.model.errors import InputError
from headwater.sinks.iceberg.changes.batch import Batch
from headwater.sinks.iceberg.changes.completing import Completed
from headwater.sinks.iceberg.changes.gathering import gather, take_rows
from headwater.sinks.iceberg.changes.seeking import Found
from headwater.sinks.iceberg.changes.shapes import CURRENT, TO_POSITION, VALID_FROM, VALID_TO
from headwater.sinks.iceberg.changes.table_of_changes import TableOfChanges
from headwater.sinks.iceberg.keyset import plain
from headwater.sinks.iceberg.removing import deleted_rows, removal_of
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.upsert import UpsertPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

TRUNCATES_PROPERTY = "headwater.truncates"
"""Positions of all truncates with their times in µs, as JSON: a change that comes late may end at any of them."""


@dataclass(frozen=True)
class _Held:
    """Rows of the table with keys of the batch."""

    found: Found
    alive: Bools
    deletes: Bools  # rows that only keep a delete's position
    time: Numbers
    ends: Bools
    until: Positions
    until_time: Numbers


class History(TableOfChanges):
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
        if self._files.truncates:
            self._planned = self._seeker.every_file()
        else:
            self._planned = self._seeker.planned(self._keys) if self._keys else []
        return self._chosen(len(self._keys[0]) if self._keys else 0)

    def update(self, plan: UpsertPlan) -> Any | None:
        held = self._held(plan)
        completed = self._completed(np.arange(self._batch.first_staged, len(self._batch)))
        unknown = {change for change, _ in completed.unknown}
        points = self._points(held, unknown)
        truncates = {**self._truncates, **self._files.truncates}
        found = self._differences(intervals(points, truncates), held, completed)
        self._files.write_more(found.added)
        removal = removal_of(self._planned, found.removed, drop=frozenset())
        self.removed, self.rows = removal.rows, int(found.seen.sum()) + found.added.num_rows
        new_truncates = truncates.keys() - self._truncates.keys()
        self.properties = {TRUNCATES_PROPERTY: json.dumps(truncates)} if new_truncates else {}
        if not self.rows and not removal.rows and not self.properties and not self._new_deletes(points, held):
            return None
        return self._published(removal, found.seen)

    def on_branch(self, session: SparkSession, stamp: Stamp, branch: str) -> None:  # noqa: ARG002 - a promise
        """Versions are found by the places of their rows: MERGE knows none."""
        raise InputError(
            f"{self._table.name}: history is not kept by Spark's MERGE",
            hint="write upsert: auto, and let Headwater make the table (format version 3, Parquet)",
        )

    def _new_deletes(self, points: Points, held: _Held) -> bool:
        """Whether the batch brings a delete whose position the table does not keep yet."""
        known = set(
            zip(
                held.found.key.tolist(),
                held.found.positions.high.tolist(),
                held.found.positions.low.tolist(),
                strict=True,
            )
        )
        rows = np.flatnonzero(points.deletes & (points.preference == _BATCH))
        return any(
            (int(points.key[n]), int(points.positions.high[n]), int(points.positions.low[n])) not in known for n in rows
        )

    def _held(self, plan: UpsertPlan) -> _Held:
        """What the table has of the batch's keys; where it is truncated, all that it has."""
        batch, hits = self._batch, dict[str, Numbers]()
        if self._files.truncates:
            hits = {file.location: np.arange(file.rows) for file in self._planned}
        elif plan.kind != "append":
            hits = self._seeker.rows(self._planned, self._keys)
        found = self._seeker.positions(hits, batch.keys) if len(batch) else self._without_batch(hits)
        columns = [self._columns[name] for name in (VALID_FROM, TO_POSITION, CURRENT, VALID_TO)]
        state = gather(hits, columns)
        until = state.column(1).combine_chunks()
        return _Held(
            found,
            self._alive(hits),
            np.asarray(state.column(2).is_null()),
            _micros(state.column(0)),
            np.asarray(until.is_valid()),
            Positions.of(until.fill_null(0)),
            _micros(state.column(3)),
        )

    def _without_batch(self, hits: Mapping[str, Numbers]) -> Found:
        """A window of truncates alone: no row has a key of the batch."""
        locations = list(hits)
        sizes = [len(hits[location]) for location in locations]
        positions = joined(
            [Positions.of(take_rows(each, [self._position], hits[each]).column(0)) for each in locations]
        )
        none = np.empty(0, np.int64)
        rows = np.concatenate([none, *hits.values()])
        return Found(locations, np.repeat(np.arange(len(sizes)), sizes), rows, np.full(len(rows), NOWHERE), positions)

    def _alive(self, hits: Mapping[str, Numbers]) -> Bools:
        gone = {file.location: deleted_rows(file) for file in self._planned if file.location in hits}
        made = [
            np.array([row not in gone[location] for row in rows.tolist()], np.bool_) for location, rows in hits.items()
        ]
        return np.concatenate([np.empty(0, np.bool_), *made])

    def _points(self, held: _Held, unknown: set[int]) -> Points:
        """The table's, the batch's, and the ends of versions whose keys are not in the batch, in this order.

        Such versions are there where the table is truncated: each stands for itself, with the end that it has.
        """
        batch, found = self._batch, held.found
        own = len(batch.keys if len(batch) else ()) + np.arange(len(found.key))
        key = np.where(found.key < 0, own, found.key)
        ended = (found.key < 0) & held.ends
        known = np.array([change not in unknown for change in range(len(batch))], np.bool_)
        self._changes = np.flatnonzero(known)
        return Points(
            np.concatenate([key, batch.numbers[known] if len(batch) else key[:0], key[ended]]),
            joined([found.positions, batch.positions[known], held.until[ended]]),
            np.concatenate([held.time, self._times[known], held.until_time[ended]]),
            np.concatenate([held.deletes, batch.deletes[known], np.ones(int(ended.sum()), np.bool_)]),
            np.concatenate(
                [
                    np.where(held.alive, _ALIVE, _DEAD),
                    np.full(int(known.sum()), _BATCH),
                    np.full(int(ended.sum()), _DEAD),
                ]
            ),
        )

    @cached_property
    def _times(self) -> Numbers:
        """When each change of the batch happened."""
        batch, column = self._batch, self._columns[VALID_FROM]
        files = (*self._files.upserts, *self._files.deletes)
        parts = [_micros(take_rows(f.location, [column], np.arange(f.rows)).column(0)) for f in files]
        if batch.staged is not None:
            parts.append(_micros(batch.staged.column(SOURCE_TIME)))
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _differences(self, made: Intervals, held: _Held, completed: Completed) -> _Differences:
        """What the table has to become, against what it is."""
        batch, count = self._batch, len(held.alive)
        in_table = made.point < count
        at = np.where(in_table, made.point, 0)
        change = np.where(in_table, -1, self._changes[np.maximum(made.point - count, 0)] if len(self._changes) else -1)
        staged = change >= batch.first_staged
        moved = in_table & _take(held.alive, at) & ~self._same(made, held, at)
        whole = ~in_table & ~staged
        seen = np.zeros(len(batch), np.bool_)
        seen[change[whole & ~made.ends]] = True
        again = np.flatnonzero(moved | (whole & made.ends))
        places = _Places.of(held.found, batch, in_table, at, change)
        parts = [
            self._rewritten(made, again[np.argsort(places.file[again], kind="stable")], places),
            self._from_staged(made, np.flatnonzero(staged), change, completed),
        ]
        removed = places.by_location(np.flatnonzero(moved))
        return _Differences(seen, removed, pa.concat_tables([part.cast(completed.rows.schema) for part in parts]))

    def _same(self, made: Intervals, held: _Held, at: Numbers) -> Bools:
        """Whether the table's row ends where it should."""
        ends, until = _take(held.ends, at), held.until
        if not len(until):
            return np.zeros(len(at), np.bool_)
        there = until[at]
        equal = (there.high == made.until.high) & (there.low == made.until.low)
        same: Bools = (ends == made.ends) & (~ends | equal)
        return same

    def _rewritten(self, made: Intervals, which: Numbers, places: _Places) -> pa.Table:
        """Rows that are in files already, with other ends; `which` is sorted by file."""
        columns = list(self._columns.values())
        return _with_ends(gather(places.by_location(which), columns), made, which)

    def _from_staged(self, made: Intervals, which: Numbers, change: Numbers, completed: Completed) -> pa.Table:
        rows = np.searchsorted(completed.changes, change[which])
        return _with_ends(completed.rows.take(pa.array(rows)), made, which)


@dataclass(frozen=True)
class _Differences:
    seen: Bools  # changes of the batch that are right as they are written
    removed: dict[str, Numbers]
    added: pa.Table


@dataclass(frozen=True)
class _Places:
    """Where the row of every version is written."""

    locations: list[str]
    file: Numbers
    row: Numbers

    @classmethod
    def of(cls, found: Found, batch: Batch, in_table: Bools, at: Numbers, change: Numbers) -> _Places:
        mine = np.maximum(change, 0)
        file = np.where(in_table, _take(found.file, at), len(found.locations) + _take(batch.places.file, mine))
        row = np.where(in_table, _take(found.row, at), _take(batch.places.row, mine))
        return cls([*found.locations, *batch.locations], file, row)

    def by_location(self, which: Numbers) -> dict[str, Numbers]:
        """Rows by file, in the order of `which` within each."""
        return {self.locations[n]: self.row[which[self.file[which] == n]] for n in np.unique(self.file[which]).tolist()}


def _take(values: Any, at: Numbers) -> Any:
    """The values at these places; where there are none at all, nobody will look at them."""
    return values[at] if len(values) else np.zeros(len(at), values.dtype)


def _with_ends(rows: pa.Table, made: Intervals, which: Numbers) -> pa.Table:
    ended = pa.array(made.ends[which])
    unknown = pa.array(made.until_time[which] == NEVER)
    time = pa.array(made.until_time[which]).cast(pa.timestamp("us", "UTC"))
    ends = {
        VALID_TO: pc.if_else(pc.and_not(ended, unknown), time, pa.scalar(None, time.type)),
        TO_POSITION: pc.if_else(ended, made.until[which].to_arrow(), pa.scalar(None, pa.decimal128(38, 0))),
        CURRENT: pc.invert(ended),
    }
    for name, values in ends.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place).with_type(values.type), values)
    return rows


def _micros(column: pa.ChunkedArray | pa.Array) -> Numbers:
    array = plain(column)
    return np.asarray(array.cast(pa.int64()).fill_null(NEVER).to_numpy(zero_copy_only=False), np.int64)


_ALIVE, _DEAD, _BATCH = 0, 1, 2  # of several rows at one place the first counts
