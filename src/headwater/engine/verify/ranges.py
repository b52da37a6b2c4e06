"""Ranges of a key, and what each of them holds: how many rows, and the sum of their hashes.

A key of one column that is a number or a time is cut by its values, anything else by its hash. Sums do not depend on the
order of rows, and count those that are there twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.verify.row_hash import Lanes
from headwater.model.comparing import Spans

Numbers = npt.NDArray[np.int64]
_MOST_DIGITS = 18  # of a decimal in 64 bits
_ROWS_EACH = 2_000
_FEWEST, _MOST = 16, 1 << 16
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def range_count(rows: int) -> int:
    """Enough that one wrong row leaves little to look through, few enough to be held."""
    return max(_FEWEST, min(_MOST, rows // _ROWS_EACH))


def has_order(kind: pa.DataType) -> bool:
    """Whether values are whole numbers of 64 bits, in some unit."""
    t = pa.types
    if t.is_decimal(kind):
        return bool(kind.precision <= _MOST_DIGITS)
    return bool((t.is_integer(kind) and not t.is_uint64(kind)) or t.is_date32(kind) or t.is_timestamp(kind))


def as_numbers(values: pa.Array) -> Numbers:
    """Values of a type that has such an order; NULL as 0."""
    kind = values.type
    filled = values.fill_null(0) if values.null_count and not pa.types.is_decimal(kind) else values
    if pa.types.is_decimal(kind):
        words = np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), 16 * values.offset)[::2].copy()
        if values.null_count:
            words[np.asarray(values.is_null())] = 0
        return words
    if pa.types.is_timestamp(kind):
        return np.asarray(filled.view(pa.int64()))
    return np.asarray(filled.view(pa.int32()) if pa.types.is_date32(kind) else filled).astype(np.int64)


@dataclass(frozen=True)
class Ranges:
    """How rows are told apart by their keys."""

    count: int
    column: str = ""  # whose values cut; empty: the key's hash does
    cuts: Numbers | None = None  # where each range but the first begins

    @classmethod
    def by_hash(cls, count: int) -> Ranges:
        return cls(count)

    @classmethod
    def by_value(cls, column: str, known: Sequence[tuple[int, int, int]], count: int) -> Ranges:
        """From what is known of data files: least and greatest value, and rows. Rows within a file may lie anywhere."""
        rows = sum(one[2] for one in known)
        spread = [np.linspace(low, high, max(2, 4 * count * number // rows)) for low, high, number in known]
        values = np.sort(np.concatenate(spread))
        chosen = values[np.linspace(0, len(values) - 1, count + 1).astype(np.int64)[1:-1]]
        limits = np.iinfo(np.int64)
        cuts = np.unique(np.clip(chosen, float(limits.min), float(limits.max - 1024)).astype(np.int64))
        return cls(len(cuts) + 1, column, cuts)

    def of(self, batch: pa.RecordBatch, keys: Lanes) -> Numbers:
        """The range of every row."""
        if self.cuts is None:
            return (keys[0] % np.uint64(self.count)).astype(np.int64)
        return np.searchsorted(self.cuts, as_numbers(batch.column(self.column)), side="right")

    def bounds(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        """Of these ranges, neighbours joined: the first and the last value."""
        limits, cuts = np.iinfo(np.int64), [] if self.cuts is None else self.cuts.tolist()
        edges = [limits.min, *cuts, limits.max + 1]
        found: list[tuple[int, int]] = []
        for number in sorted(numbers):
            low, high = edges[number], edges[number + 1] - 1
            if found and found[-1][1] == low - 1:
                found[-1] = (found[-1][0], high)
            else:
                found.append((low, high))
        return found

    def spans(self, bounds: Sequence[tuple[int, int]], kind: pa.DataType) -> Spans | None:
        """The same in values of the column; None: they have no form that a database would understand."""
        limits = np.iinfo(np.int64)
        try:
            made = [
                (
                    None if low == limits.min else _value(low, kind),
                    None if high == limits.max else _value(high, kind),
                )
                for low, high in bounds
            ]
        except (ValueError, OverflowError):
            return None
        return Spans(self.column, tuple(made))


def _value(number: int, kind: pa.DataType) -> object:
    if pa.types.is_decimal(kind):
        raw = number.to_bytes(16, "little", signed=True)
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(raw)])[0].as_py()
    if pa.types.is_date32(kind):
        return pa.array([number], pa.int32()).view(kind)[0].as_py()
    return pa.array([number], pa.int64()).view(kind)[0].as_py() if pa.types.is_timestamp(kind) else number


class RangeSums:
    """Per range the number of rows and the sum of their hashes, in two lanes modulo 2⁶⁴."""

    def __init__(self, values: npt.NDArray[np.uint64]) -> None:
        self.values = values  # three rows: counts and the two lanes

    @classmethod
    def empty(cls, count: int) -> RangeSums:
        return cls(np.zeros((3, count), np.uint64))

    @property
    def rows(self) -> int:
        return int(self.values[0].sum())

    def add(self, ranges: Numbers, hashes: Lanes) -> None:
        """Rows of one batch. Halves of words are summed as doubles, which hold them exactly for two million rows."""
        size = self.values.shape[1]
        self.values[0] += np.bincount(ranges, minlength=size).astype(np.uint64)
        for lane, words in enumerate(hashes, start=1):
            low = np.bincount(ranges, weights=(words & _LOW).astype(np.float64), minlength=size)
            high = np.bincount(ranges, weights=(words >> _HALF).astype(np.float64), minlength=size)
            self.values[lane] += low.astype(np.uint64) + (high.astype(np.uint64) << _HALF)

    def join(self, other: RangeSums) -> None:
        self.values += other.values

    def differing(self, other: RangeSums) -> list[int]:
        return np.flatnonzero((self.values != other.values).any(axis=0)).tolist()
