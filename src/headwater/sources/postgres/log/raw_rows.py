"""Messages that are rows of one layout, as they came, waiting until enough of them are together to be decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.sources.postgres.log.transactions import Placed
from headwater.sources.postgres.log.tuples import TEXT, Cells, texts
from headwater.sources.sql.copy_binary import PADDING, Numbers

_OVERHEAD = 2_000  # bytes that some rows cost beside their own


@dataclass(frozen=True)
class RawRows:
    """Whole messages, and of each its place in the log."""

    data: Numbers  # with PADDING bytes behind the last message
    starts: Numbers
    ends: Numbers
    lsns: Numbers
    numbers: Numbers
    times: Numbers
    transactions: Numbers

    @property
    def size(self) -> int:
        return len(self.data) + 48 * len(self.starts) + _OVERHEAD


def taken(placed: Placed, indices: Numbers) -> RawRows:
    """Copies of these messages: the bytes that they came in are overwritten by those that follow."""
    messages = placed.messages
    starts, ends = messages.starts[indices], messages.ends[indices]
    cells = Cells(starts, ends, np.full(len(indices), TEXT, np.uint8))
    _, offsets, data = texts(pa.py_buffer(messages.data), cells).buffers()
    edges = np.frombuffer(offsets, np.int32, len(indices) + 1).astype(np.int64)
    return RawRows(
        np.frombuffer(data, np.uint8),
        edges[:-1],
        edges[1:],
        placed.lsns[indices],
        placed.numbers[indices],
        placed.times[indices],
        placed.transactions[indices],
    )


def joined(parts: Sequence[RawRows]) -> RawRows:
    data = np.concatenate([*(part.data for part in parts), np.zeros(PADDING, np.uint8)])
    bases = np.concatenate([[0], np.cumsum([len(part.data) for part in parts])])[:-1]

    def shifted(name: str) -> Numbers:
        return np.concatenate([getattr(part, name) + base for part, base in zip(parts, bases, strict=True)])

    def all_of(name: str) -> Numbers:
        return np.concatenate([getattr(part, name) for part in parts])

    return RawRows(
        data,
        shifted("starts"),
        shifted("ends"),
        all_of("lsns"),
        all_of("numbers"),
        all_of("times"),
        all_of("transactions"),
    )
