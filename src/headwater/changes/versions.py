"""Versions of rows: each holds from its change until the next change of its key, its delete, or a truncate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headwater.changes.positions import Positions

Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).min  # a time that nobody knows


@dataclass(frozen=True)
class Points:
    """Where the versions of rows begin, and where rows were deleted; in any order, some more than once."""

    key: Numbers
    positions: Positions
    time: Numbers  # µs, or NEVER
    deletes: Bools
    preference: Numbers  # of several at one place the one with the least counts


@dataclass(frozen=True)
class Intervals:
    """Versions, each once."""

    point: Numbers  # which of the points
    ends: Bools  # whether something ended it
    until: Positions  # where it ends, if it does
    until_time: Numbers
    follows: Numbers  # which version stood until then, as a place among these; NONE: no version did


NONE = -1


def intervals(points: Points, truncates: Mapping[int, int], without: Bools | None = None) -> Intervals:
    """`truncates` are positions with their times: they end every version that stands. `without` are points to leave out."""
    places = points.positions
    order = np.lexsort((points.preference, places.low, places.high, points.key))
    if without is not None:
        order = order[~without[order]]
    key, high, low = points.key[order], places.high[order], places.low[order]
    again = np.zeros(len(order), np.bool_)
    again[1:] = (key[1:] == key[:-1]) & (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    order = order[~again]
    key, here = points.key[order], places[order]
    follows = np.zeros(len(order), np.bool_)
    follows[:-1] = key[1:] == key[:-1]
    after = np.minimum(np.arange(len(order)) + 1, max(len(order) - 1, 0))
    until, until_time = here[after], points.time[order][after]
    for position, time in sorted(truncates.items(), reverse=True):
        at = Positions.same(position, len(order))
        earlier = (at > here) & (~follows | (until > at))
        until.high[earlier], until.low[earlier] = at.high[earlier], at.low[earlier]
        until_time = np.where(earlier, time, until_time)
        follows = follows | earlier
    versions = np.flatnonzero(~points.deletes[order])
    number = np.full(len(order), NONE)
    number[versions] = np.arange(len(versions))
    before = np.concatenate([[NONE], number[:-1]])[: len(order)]
    begins_there = np.zeros(len(order), np.bool_)
    begins_there[1:] = (key[1:] == key[:-1]) & (until.high[:-1] == here.high[1:]) & (until.low[:-1] == here.low[1:])
    before = np.where(begins_there, before, NONE)
    return Intervals(order[versions], follows[versions], until[versions], until_time[versions], before[versions])
