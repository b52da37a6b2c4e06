"""Versions of rows, and the origin of values that a change event leaves out.

A missing value is that of the row's previous version: an earlier change in the batch, or the table's row; after a
change of key that version has the old key. A version is valid from its change until the next change of its key, its
delete, or a truncate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headwater.changes.positions import OrderedChanges, Positions


@dataclass(frozen=True)
class IncompleteChange:
    """A change that leaves values out."""

    missing: frozenset[str]
    old_key: int | None = None  # the number of the row's old key, if the change has another one


@dataclass(frozen=True)
class InBatch:
    """The value of another row of the batch."""

    row: int


@dataclass(frozen=True)
class InTable:
    """The value of the last row with this key before this position of the log."""

    key: int  # its number
    before: int
    is_old_key: bool = False  # its delete, at this very position, must have landed first


Origin = InBatch | InTable | None  # None: the row was deleted before, the value is unknown


class MissingValues:
    """The missing values of one batch."""

    def __init__(
        self,
        order: OrderedChanges,
        positions: Positions,
        keys: Mapping[int, int],  # incomplete row → its key's number
        incomplete: Mapping[int, IncompleteChange],
        deletes: Iterable[int],
    ) -> None:
        self._order, self._positions, self._keys = order, positions, keys
        self._incomplete, self._deletes = incomplete, frozenset(deletes)

    def origins(self, row: int) -> dict[str, Origin]:
        """The origin of every value that the row leaves out."""
        origins: dict[str, Origin] = {}
        self._trace(row, self._keys[row], set(self._incomplete[row].missing), origins)
        return origins

    def _trace(self, row: int, key: int, missing: set[str], origins: dict[str, Origin]) -> None:
        """Go back change by change, from key to old key, until every value has an origin."""
        change = self._incomplete.get(row)
        is_old_key = change is not None and change.old_key is not None
        if change is not None and change.old_key is not None:
            key = change.old_key
        before = self._positions.at(row)
        for previous in self._order.of_key(key)[::-1].tolist():
            if self._positions.at(previous) >= before:
                continue
            if previous in self._deletes:
                origins.update(dict.fromkeys(missing))
                return
            previous_change = self._incomplete.get(previous)
            present = missing - previous_change.missing if previous_change else set(missing)
            origins.update(dict.fromkeys(present, InBatch(previous)))
            missing -= present
            if not missing:
                return
            if previous_change is not None and previous_change.old_key is not None:
                self._trace(previous, key, missing, origins)
                return
        origins.update(dict.fromkeys(missing, InTable(key, before, is_old_key)))


Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).min  # an unknown time


@dataclass(frozen=True)
class Points:
    """Positions at which versions begin or rows are deleted; in any order, some more than once."""

    key: Numbers
    positions: Positions
    time: Numbers  # µs, or NEVER
    deletes: Bools
    preference: Numbers  # of several at one position the least counts


@dataclass(frozen=True)
class Intervals:
    """Distinct versions."""

    point: Numbers  # which of the points
    ends: Bools  # True: a later change ended it
    until: Positions  # where it ends, if it does
    until_time: Numbers
    follows: Numbers  # the index of the version before it; NONE: no version ends where this one begins


NONE = -1


def intervals(points: Points, truncates: Mapping[int, int], without: Bools | None = None) -> Intervals:
    """`truncates` are positions with their times: they end every open version. `without` are points to leave out."""
    positions = points.positions
    order = np.lexsort((points.preference, positions.low, positions.high, points.key))
    if without is not None:
        order = order[~without[order]]
    key, high, low = points.key[order], positions.high[order], positions.low[order]
    duplicates = np.zeros(len(order), np.bool_)
    duplicates[1:] = (key[1:] == key[:-1]) & (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    order = order[~duplicates]
    key, begins = points.key[order], positions[order]
    follows = np.zeros(len(order), np.bool_)
    follows[:-1] = key[1:] == key[:-1]
    next_ = np.minimum(np.arange(len(order)) + 1, max(len(order) - 1, 0))
    until, until_time = begins[next_], points.time[order][next_]
    for position, time in sorted(truncates.items(), reverse=True):
        truncate = Positions.same(position, len(order))
        truncated = (truncate > begins) & (~follows | (until > truncate))
        until.high[truncated], until.low[truncated] = truncate.high[truncated], truncate.low[truncated]
        until_time = np.where(truncated, time, until_time)
        follows = follows | truncated
    versions = np.flatnonzero(~points.deletes[order])
    version_number = np.full(len(order), NONE)
    version_number[versions] = np.arange(len(versions))
    before = np.concatenate([[NONE], version_number[:-1]])[: len(order)]
    adjacent = np.zeros(len(order), np.bool_)
    adjacent[1:] = (key[1:] == key[:-1]) & (until.high[:-1] == begins.high[1:]) & (until.low[:-1] == begins.low[1:])
    before = np.where(adjacent, before, NONE)
    return Intervals(order[versions], follows[versions], until[versions], until_time[versions], before[versions])
