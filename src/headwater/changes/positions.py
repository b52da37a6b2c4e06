"""Positions in a source's log, which are decimals of 38 digits, as numbers that numpy can order and compare."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_WORD = 64
_TYPE = pa.decimal128(38, 0)


@dataclass(frozen=True)
class Positions:
    """128-bit numbers from 0, in two halves."""

    high: npt.NDArray[np.int64]
    low: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> Positions:
        """From a column without NULLs."""
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], _TYPE)
        if not len(array):
            return cls(np.empty(0, np.int64), np.empty(0, np.uint64))
        words = np.frombuffer(array.buffers()[1], np.uint64)[2 * array.offset : 2 * (array.offset + len(array))]
        return cls(words[1::2].astype(np.int64), words[0::2].copy())

    @classmethod
    def same(cls, value: int, count: int) -> Positions:
        """One position, many times."""
        return cls(np.full(count, value >> _WORD, np.int64), np.full(count, value & (1 << _WORD) - 1, np.uint64))

    def __len__(self) -> int:
        return len(self.high)

    def __getitem__(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> Positions:
        return Positions(self.high[rows], self.low[rows])

    def __gt__(self, other: Positions) -> npt.NDArray[np.bool_]:
        made: npt.NDArray[np.bool_] = (self.high > other.high) | ((self.high == other.high) & (self.low > other.low))
        return made

    def at(self, row: int) -> int:
        return _joined_halves(self.high[row], self.low[row])

    def least(self) -> int:
        """Of at least one."""
        high = self.high.min()
        return _joined_halves(high, self.low[self.high == high].min())

    def greatest(self) -> int:
        high = self.high.max()
        return _joined_halves(high, self.low[self.high == high].max())

    def to_arrow(self) -> pa.Array:
        words = np.empty(2 * len(self), np.uint64)
        words[0::2], words[1::2] = self.low, self.high.view(np.uint64)
        return pa.Array.from_buffers(_TYPE, len(self), [None, pa.py_buffer(words)])


def _joined_halves(high: np.int64, low: np.uint64) -> int:
    return (int(high) << _WORD) | int(low)


def joined(parts: list[Positions]) -> Positions:
    return Positions(
        np.concatenate([np.empty(0, np.int64), *(part.high for part in parts)]),
        np.concatenate([np.empty(0, np.uint64), *(part.low for part in parts)]),
    )
