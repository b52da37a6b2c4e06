"""Keys as numbers: rows that share a key share a number, and a key of somewhere else can be looked up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
NOWHERE = -1


@dataclass(frozen=True)
class _Column:
    values: pa.Array  # every value once
    pairs: Numbers  # sorted: number of the key's part before × how many values + place among the values


class KeyNumbers:
    """The keys of one batch; `columns` are in the order of the key, without NULLs."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns: list[_Column] = []
        numbers: Numbers = np.zeros(len(columns[0]), np.int64)
        for number, column in enumerate(columns):
            encoded = column.dictionary_encode()
            values, places = encoded.dictionary, _numbers(encoded.indices)
            if number == 0:
                known, numbers = np.arange(len(values)), places
            else:
                known, numbers = np.unique(numbers * max(len(values), 1) + places, return_inverse=True)
            self._columns.append(_Column(values, known))
        self.of_rows: Numbers = numbers

    def __len__(self) -> int:
        """How many different keys there are."""
        return len(self._columns[-1].pairs)

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        """The number of each of these keys, or NOWHERE."""
        numbers: Numbers = np.zeros(len(columns[0]), np.int64)
        for known, column in zip(self._columns, columns, strict=True):
            if not len(known.values):
                return np.full(len(column), NOWHERE, np.int64)
            places = _places(column, known.values)
            pairs = numbers * len(known.values) + places
            at = np.minimum(np.searchsorted(known.pairs, pairs), len(known.pairs) - 1)
            there = (numbers >= 0) & (places >= 0) & (known.pairs[at] == pairs)
            numbers = np.where(there, at, NOWHERE)
        return numbers


def _places(column: pa.Array, values: pa.Array) -> Numbers:
    return _numbers(pc.index_in(column, value_set=values).fill_null(NOWHERE))


def _numbers(array: pa.Array) -> Numbers:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.int64)
