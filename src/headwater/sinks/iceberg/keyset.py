"""The keys of a batch, made ready to be looked for in many rows. Runs in tasks."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.sinks.sorted_once import sorted_once

_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # an odd constant: multiplying by it spreads neighbours over the table
_LEAST_BITS, _MOST_BITS = 16, 26
_SORTED_UP_TO = 1 << 17  # texts; to sort more of them takes longer than it saves


def plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array of a type that can be compared and joined."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # of no chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=array.type)
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array


def as_longs(array: pa.Array) -> pa.Array | None:
    """The same order and equality in 64-bit integers, where the type has such a form."""
    kind = array.type
    if pa.types.is_date32(kind):
        return array.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return array.cast(pa.int64())
    return array.cast(pa.int64()) if pa.types.is_integer(kind) else None


class KeySet:
    """Keys of one or several columns; `columns` are in the order of the key, without NULLs."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self.columns = [plain(column) for column in columns]

    @cached_property
    def _members(self) -> list[_Longs | _Others]:
        return [_members(column) for column in self.columns]

    def __len__(self) -> int:
        return len(self.columns[0])

    def only(self, places: npt.NDArray[np.int64]) -> KeySet:
        """The keys at these places."""
        return KeySet([column.take(pa.array(places)) for column in self.columns])

    def ready(self) -> KeySet:
        """The same, with all that a search needs: threads that search together would each make it for themselves."""
        _ = self._members
        return self

    def find(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
        """The places of the rows whose key is in the set."""
        rows = [plain(column) for column in columns]
        places: npt.NDArray[np.int64] | None = None
        for members, column in zip(self._members, rows, strict=True):
            found = members.find(column if places is None else column.take(pa.array(places)))
            places = found if places is None else places[found]
            if len(places) == 0:
                break
        assert places is not None  # noqa: S101 - a key has at least one column
        if len(rows) == 1 or len(places) == 0:
            return places
        return self._exactly([row.take(pa.array(places)) for row in rows], places)

    def _exactly(self, rows: Sequence[pa.Array], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Each column alone can match by chance; only the whole key counts."""
        names = [f"k{n}" for n in range(len(rows))]
        left = pa.table([*rows, pa.array(places)], names=[*names, "place"])
        joined = left.join(self._table, keys=names, join_type="left semi")
        return np.sort(joined.column("place").to_numpy())

    @cached_property
    def _table(self) -> pa.Table:
        return pa.table(self.columns, names=[f"k{n}" for n in range(len(self.columns))])

    def may_be_between(self, low: Sequence[object], high: Sequence[object]) -> bool:
        """False only when no key can lie in these bounds, column by column; None stands for an unknown bound."""
        return all(m.any_between(a, b) for m, a, b in zip(self._members, low, high, strict=True))

    def bounds(self) -> list[tuple[object, object]]:
        """The least and the greatest value of each column."""
        made = [pc.min_max(column).as_py() if _has_order(column.type) else None for column in self.columns]
        return [(None, None) if pair is None else (pair["min"], pair["max"]) for pair in made]


def _members(column: pa.Array) -> _Longs | _Others:
    longs = as_longs(column)
    return _Longs(longs) if longs is not None else _Others(column)


class _Longs:
    """A hash table of bits leaves few rows to look up exactly: an order of magnitude faster than a hash set."""

    def __init__(self, keys: pa.Array) -> None:
        self._keys = sorted_once(keys.to_numpy())
        bits = max(_LEAST_BITS, min(_MOST_BITS, len(self._keys).bit_length() + 4))
        self._shift = np.uint64(64 - bits)
        self._table: npt.NDArray[np.bool_] = np.zeros(1 << bits, dtype=np.bool_)
        self._table[self._hashed(self._keys)] = True

    def _hashed(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        return (values.view(np.uint64) * _SPREAD) >> self._shift

    def find(self, column: pa.Array) -> npt.NDArray[np.int64]:
        longs = as_longs(column)
        assert longs is not None  # noqa: S101 - columns are cast to the table's type before
        values = longs.fill_null(0).to_numpy() if longs.null_count else longs.to_numpy()
        candidates = np.flatnonzero(self._table[self._hashed(values)])
        sought = values[candidates]
        at = np.minimum(np.searchsorted(self._keys, sought), len(self._keys) - 1)
        found: npt.NDArray[np.int64] = candidates[self._keys[at] == sought]
        if longs.null_count:
            found = found[np.asarray(longs.is_valid())[found]]
        return found

    def any_between(self, low: object, high: object) -> bool:
        bounds = [None if v is None else as_longs(pa.array([v])) for v in (low, high)]
        if bounds[0] is None or bounds[1] is None:
            return True
        first = np.searchsorted(self._keys, bounds[0][0].as_py())
        return bool(first < len(self._keys) and self._keys[first] <= bounds[1][0].as_py())


class _Others:
    """Texts, decimals, bytes: Arrow's own hash set."""

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys.unique()
        pair = pc.min_max(self._keys).as_py() if _has_order(keys.type) and len(keys) else None
        self._low: object = pair["min"] if pair else None
        self._high: object = pair["max"] if pair else None

    def find(self, column: pa.Array) -> npt.NDArray[np.int64]:
        if not pa.types.is_dictionary(column.type):
            return np.flatnonzero(self._are_in(column))
        # Every different value is looked up once, however many rows have it. NULL stands for a value that is not there.
        wanted = np.append(self._are_in(column.dictionary), False)
        return np.flatnonzero(wanted[column.indices.fill_null(len(column.dictionary)).to_numpy()])

    def _are_in(self, column: pa.Array) -> npt.NDArray[np.bool_]:
        return np.asarray(pc.is_in(column, value_set=self._keys, skip_nulls=True), dtype=np.bool_)

    @cached_property
    def _sorted(self) -> list[Any]:
        return sorted(self._keys.to_pylist())

    def any_between(self, low: object, high: object) -> bool:
        if self._low is None or type(low) is not type(self._low) or type(high) is not type(self._high):
            return True
        if not (low <= self._high and self._low <= high):  # type: ignore[operator]
            return False
        if len(self._keys) > _SORTED_UP_TO:
            return True
        first = bisect.bisect_left(self._sorted, low)
        return bool(first < len(self._sorted) and self._sorted[first] <= high)


def _has_order(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_integer(kind) or t.is_date(kind) or t.is_timestamp(kind) or t.is_string(kind) or t.is_decimal(kind)
    )
