"""The changes of a batch by key, in the order of the source's log (G7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headwater.changes.positions import Positions

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class InOrder:
    """The rows of a batch, sorted by key and, within a key, by position; equal ones in the order they came."""

    rows: Numbers
    begins: Numbers  # where each key's rows begin in `rows`; its number is the key's
    ends: Numbers

    @property
    def last(self) -> Numbers:
        """The row of the last change of every key that has one."""
        return self.rows[self.ends[self.begins < self.ends] - 1]

    def of_key(self, number: int) -> Numbers:
        """The rows of one key, from its first change to its last."""
        return self.rows[self.begins[number] : self.ends[number]]


def in_order(keys: Numbers, count: int, positions: Positions) -> InOrder:
    """`keys` are the numbers of the rows' keys, of which there are `count`; some may have no row."""
    of_key = np.bincount(keys, minlength=count)
    rows = np.argsort(keys, kind="stable")
    # Most keys have one change: positions order those of the others only.
    several = np.flatnonzero((of_key > 1)[keys])
    if len(several):
        ordered = several[np.lexsort((positions.low[several], positions.high[several], keys[several]))]
        rows[(of_key > 1)[keys[rows]]] = ordered
    ends = np.cumsum(of_key)
    return InOrder(rows, ends - of_key, ends)
