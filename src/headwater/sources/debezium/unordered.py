"""Changes of one row that stand at one place of a MySQL log, so that nothing tells which of them came last.

With `binlog_transaction_compression` a whole transaction is one event of the log: all its changes have that event's
place, and the connector counts rows from 0 for each statement in it. A delete may then stand before the insert that it
undoes. With `provide.transaction.metadata` the connector numbers them.

What comes twice because a connector began again is no such thing: it is the same both times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.sources.debezium.positions import Numbers


def at_one_place(major: Numbers, minor: Numbers, changes: npt.NDArray[np.bool_]) -> Numbers:
    """Every change at a place where numbers do not grow: the few that are worth a closer look, most often none.

    Reads of a snapshot are no changes: they all stand at one place, and none is of a row that another is of.
    """
    rows = np.flatnonzero(changes)
    major, minor = major[rows], minor[rows]
    behind = (major[1:] == major[:-1]) & (minor[1:] <= minor[:-1]) & (major[1:] >= 0)
    return rows[np.isin(major, major[1:][behind])] if behind.any() else rows[:0]


@dataclass(frozen=True)
class Change:
    """An event, as far as its order goes."""

    place: int  # in the log
    number: int  # at that place
    key: tuple[Any, ...]
    op: str
    after: Any


def unordered(changes: Sequence[Change]) -> Collection[int]:
    """Which of the changes, in the order in which they came, are of one row and not in an order that is told."""
    of_row: dict[tuple[int, tuple[Any, ...]], list[int]] = defaultdict(list)
    for index, change in enumerate(changes):
        of_row[change.place, change.key].append(index)
    found: list[int] = []
    for indices in of_row.values():
        once: list[Change] = []
        for index in indices:
            if changes[index] not in once:
                once.append(changes[index])
        if any(later.number <= one.number for one, later in pairwise(once)):
            found += indices
    return found
