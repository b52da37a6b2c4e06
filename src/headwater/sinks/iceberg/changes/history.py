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

from headwater.changes.keys import NOWHERE
from headwater.changes.positions import Positions, joined
from headwater.changes.versions import NONE, Intervals, Points, intervals
from headwater.model.changes import SOURCE_TIME
from headwater.model.errors import InputError
from headwater.sinks.iceberg.changes.completing import Completed
from headwater.sinks.iceberg.changes.gathering import gather, take_rows
from headwater.sinks.iceberg.changes.seeking import Found
from headwater.sinks.iceberg.changes.shapes import CURRENT, TO_POSITION, VALID_FROM, VALID_TO
from headwater.sinks.iceberg.changes.table_of_changes import TableOfChanges
from headwater.sinks.iceberg.changes.versions import Held, Places, equal, micros, take, with_ends
from headwater.sinks.iceberg.removing import deleted_rows, removal_of
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.upsert import UpsertPlan
from headwater.sinks.sorted_once import sorted_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

TRUNCATES_PROPERTY = "headwater.truncates"
"""Positions of all truncates with their times in µs, as JSON: a change that comes late may end at any of them."""


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
        versions = intervals(points, truncates)
        repeats = self._repeats(points, versions, held, completed)
        if repeats.any():
            versions = intervals(points, truncates, without=repeats)
        found = self._differences(versions, held, completed, repeats)
        self._files.write_more(found.added)
        removal = removal_of(self._planned, found.removed, drop=frozenset())
        self.removed, self.rows = removal.rows, int(found.seen.sum()) + found.added.num_rows
        new_truncates = truncates.keys() - self._truncates.keys()
        self.properties = {TRUNCATES_PROPERTY: json.dumps(truncates)} if new_truncates else {}
        if not self.rows and not removal.rows and not self.properties and not self._new_deletes(points, held):
            return None
        return self._published(plan, removal, found.seen)

    def on_branch(self, session: SparkSession, stamp: Stamp, branch: str) -> None:  # noqa: ARG002 - a promise
        """Versions are found by the places of their rows: MERGE knows none."""
        raise InputError(
            f"{self._table.name}: history is not kept by Spark's MERGE",
            hint="write upsert: auto, and let Headwater make the table (format version 3, Parquet)",
        )

    def _new_deletes(self, points: Points, held: Held) -> bool:
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

    def _held(self, plan: UpsertPlan) -> Held:
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
        held = Held(
            found,
            self._alive(hits),
            np.asarray(state.column(2).is_null()),
            micros(state.column(0)),
            np.asarray(until.is_valid()),
            Positions.of(until.fill_null(0)),
            micros(state.column(3)),
        )
        return held.only(held.alive | held.deletes)  # a version that is dead has been added again with another end

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

    def _points(self, held: Held, unknown: set[int]) -> Points:
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
        parts = [micros(take_rows(f.location, [column], np.arange(f.rows)).column(0)) for f in files]
        if batch.staged is not None:
            parts.append(micros(batch.staged.column(SOURCE_TIME)))
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _differences(self, made: Intervals, held: Held, completed: Completed, repeats: Bools) -> _Differences:
        """What the table has to become, against what it is."""
        batch = self._batch
        in_table, at, change = self._origins(made, held)
        staged = change >= batch.first_staged
        moved = in_table & take(held.alive, at) & ~self._same(made, held, at)
        whole = ~in_table & ~staged
        seen = np.zeros(len(batch), np.bool_)
        seen[change[whole & ~made.ends]] = True
        again = np.flatnonzero(moved | (whole & made.ends))
        places = Places.of(held.found, batch, in_table, at, change)
        parts = [
            self._rewritten(made, again[np.argsort(places.file[again], kind="stable")], places),
            self._from_staged(made, np.flatnonzero(staged), change, completed),
        ]
        removed = places.by_location(np.flatnonzero(moved))
        for location, rows in held.by_location(np.flatnonzero(repeats[: len(held.alive)])).items():
            removed[location] = sorted_once(removed.get(location, rows[:0]), rows)
        return _Differences(seen, removed, pa.concat_tables([part.cast(completed.rows.schema) for part in parts]))

    def _repeats(self, points: Points, made: Intervals, held: Held, completed: Completed) -> Bools:
        """Reads of a snapshot that found a row as the version before left it: they are no new versions.

        One that the table has may be among them, where the version before it came late.
        """
        repeats = np.zeros(len(points.key), np.bool_)
        reads = points.positions.low[made.point] % 2 == 0  # see `position`
        which = np.flatnonzero(reads & (made.follows != NONE))
        if len(which):
            alike = np.ones(len(which), np.bool_)
            sides = [self._values(made, some, held, completed) for some in (which, made.follows[which])]
            for one, other in zip(*(side.columns for side in sides), strict=True):
                alike &= equal(one, other)
            repeats[made.point[which[alike]]] = True
        return repeats

    def _values(self, made: Intervals, which: Numbers, held: Held, completed: Completed) -> pa.Table:
        """What the source's table held in these versions."""
        columns = [self._columns[name] for name in self._order.columns if name in self._columns]
        in_table, at, change = self._origins(made, held)
        places = Places.of(held.found, self._batch, in_table, at, change)
        staged = change[which] >= self._batch.first_staged
        written, waiting = which[~staged], which[staged]
        by_file = np.argsort(places.file[written], kind="stable")
        rows = [gather(places.by_location(written[by_file]), columns)]
        rows.append(completed.rows.take(pa.array(np.searchsorted(completed.changes, change[waiting]))))
        order = np.concatenate([np.flatnonzero(~staged)[by_file], np.flatnonzero(staged)])
        names = [column.name for column in columns]
        return pa.concat_tables([part.select(names).cast(rows[0].schema) for part in rows]).take(
            pa.array(np.argsort(order))
        )

    def _origins(self, made: Intervals, held: Held) -> tuple[Bools, Numbers, Numbers]:
        """Of every version: whether the table has it, which of its rows it is, and which change of the batch."""
        count = len(held.alive)
        in_table = made.point < count
        at = np.where(in_table, made.point, 0)
        change = np.where(in_table, -1, self._changes[np.maximum(made.point - count, 0)] if len(self._changes) else -1)
        return in_table, at, change

    def _same(self, made: Intervals, held: Held, at: Numbers) -> Bools:
        """Whether the table's row ends where it should."""
        ends, until = take(held.ends, at), held.until
        if not len(until):
            return np.zeros(len(at), np.bool_)
        there = until[at]
        equal = (there.high == made.until.high) & (there.low == made.until.low)
        same: Bools = (ends == made.ends) & (~ends | equal)
        return same

    def _rewritten(self, made: Intervals, which: Numbers, places: Places) -> pa.Table:
        """Rows that are in files already, with other ends; `which` is sorted by file."""
        columns = list(self._columns.values())
        return with_ends(gather(places.by_location(which), columns), made, which)

    def _from_staged(self, made: Intervals, which: Numbers, change: Numbers, completed: Completed) -> pa.Table:
        rows = np.searchsorted(completed.changes, change[which])
        return with_ends(completed.rows.take(pa.array(rows)), made, which)


@dataclass(frozen=True)
class _Differences:
    seen: Bools  # changes of the batch that are right as they are written
    removed: dict[str, Numbers]
    added: pa.Table


_ALIVE, _DEAD, _BATCH = 0, 1, 2  # of several rows at one place the first counts
