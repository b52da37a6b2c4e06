"""Changes in the order of the source's log: positions and keys as numbers, the last change of each key (G7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Number = TypeVar("Number", np.int64, np.uint64)


def sorted_distinct(*arrays: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """The distinct numbers of these arrays, ascending."""
    ordered = np.sort(np.concatenate(arrays) if len(arrays) > 1 else arrays[0])
    differs = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=differs[1:])
    return ordered[differs]


_WORD = 64
_TYPE = pa.decimal128(38, 0)


@dataclass(frozen=True)
class Positions:
    """128-bit numbers from 0 on, in two halves."""

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
        """One position, `count` times."""
        return cls(np.full(count, value >> _WORD, np.int64), np.full(count, value & (1 << _WORD) - 1, np.uint64))

    def __len__(self) -> int:
        return len(self.high)

    def __getitem__(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> Positions:
        return Positions(self.high[rows], self.low[rows])

    def __gt__(self, other: Positions) -> npt.NDArray[np.bool_]:
        greater: npt.NDArray[np.bool_] = (self.high > other.high) | ((self.high == other.high) & (self.low > other.low))
        return greater

    def at(self, row: int) -> int:
        return _join_halves(self.high[row], self.low[row])

    def least(self) -> int:
        """Of at least one."""
        high = self.high.min()
        return _join_halves(high, self.low[self.high == high].min())

    def to_arrow(self) -> pa.Array:
        words = np.empty(2 * len(self), np.uint64)
        words[0::2], words[1::2] = self.low, self.high.view(np.uint64)
        return pa.Array.from_buffers(_TYPE, len(self), [None, pa.py_buffer(words)])


def _join_halves(high: np.int64, low: np.uint64) -> int:
    return (int(high) << _WORD) | int(low)


def concat_positions(parts: list[Positions]) -> Positions:
    return Positions(
        np.concatenate([np.empty(0, np.int64), *(part.high for part in parts)]),
        np.concatenate([np.empty(0, np.uint64), *(part.low for part in parts)]),
    )


Numbers = npt.NDArray[np.int64]
ABSENT = -1


@dataclass(frozen=True)
class _Column:
    values: pa.Array  # distinct
    pairs: Numbers  # sorted: number of the key's prefix × count of values + index of the value


class KeyNumbers:
    """The keys of one batch; `columns` are in the order of the key, without NULLs."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns: list[_Column] = []
        numbers: Numbers = np.zeros(len(columns[0]), np.int64)
        for number, column in enumerate(columns):
            encoded = column.dictionary_encode()
            values, indexes = encoded.dictionary, _numbers(encoded.indices)
            if number == 0:
                pairs, numbers = np.arange(len(values)), indexes
            else:
                pairs, numbers = np.unique(numbers * max(len(values), 1) + indexes, return_inverse=True)
            self._columns.append(_Column(values, pairs))
        self.of_rows: Numbers = numbers

    def __len__(self) -> int:
        """The number of distinct keys."""
        return len(self._columns[-1].pairs)

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        """The number of each of these keys, or ABSENT."""
        numbers: Numbers = np.zeros(len(columns[0]), np.int64)
        for own, column in zip(self._columns, columns, strict=True):
            if not len(own.values):
                return np.full(len(column), ABSENT, np.int64)
            indexes = _numbers(pc.index_in(column, value_set=own.values).fill_null(ABSENT))
            pairs = numbers * len(own.values) + indexes
            index = np.minimum(np.searchsorted(own.pairs, pairs), len(own.pairs) - 1)
            present = (numbers >= 0) & (indexes >= 0) & (own.pairs[index] == pairs)
            numbers = np.where(present, index, ABSENT)
        return numbers


def _numbers(array: pa.Array) -> Numbers:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.int64)


@dataclass(frozen=True)
class OrderedChanges:
    """The rows of a batch, sorted by key and, within a key, by position; equal positions in the batch's order."""

    rows: Numbers
    begins: Numbers  # where the rows of each key begin in `rows`, by the key's number
    ends: Numbers

    @property
    def last(self) -> Numbers:
        """The row of the last change of every key that has one."""
        return self.rows[self.ends[self.begins < self.ends] - 1]

    def of_key(self, number: int) -> Numbers:
        """The rows of one key, from its first change to its last."""
        return self.rows[self.begins[number] : self.ends[number]]


def order_changes(keys: Numbers, count: int, positions: Positions) -> OrderedChanges:
    """`keys` are the numbers of the rows' keys, of which there are `count`; some may have no row."""
    counts = np.bincount(keys, minlength=count)
    rows = np.argsort(keys, kind="stable")
    # Most keys have one change: only those of the others are sorted by position.
    repeated = np.flatnonzero((counts > 1)[keys])
    if len(repeated):
        ordered = repeated[np.lexsort((positions.low[repeated], positions.high[repeated], keys[repeated]))]
        rows[(counts > 1)[keys[rows]]] = ordered
    ends = np.cumsum(counts)
    return OrderedChanges(rows, ends - counts, ends)
