"""Finds the rows of a table that have certain keys: an index of the keys, the files that may hold one.

Runs in tasks, too.
"""

from __future__ import annotations

import bisect
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.changes.positions import sorted_distinct
from headwater.sinks.iceberg.catalog.table import PlannedFile
from headwater.sinks.iceberg.data_files import ArrowColumn, one_array, open_columns, read_columns
from headwater.sinks.iceberg.merge.strategy import Tuning
from headwater.sinks.iceberg.partitioning import Bucket, partition_values
from headwater.sinks.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Numbers = npt.NDArray[np.int64]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd: multiplying by it spreads neighbouring keys over the table
_MIN_BITS, _MAX_BITS = 16, 26
_MAX_SORTED = 1 << 17  # texts; sorting more takes longer than it saves


def plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array of a storage type, which Arrow can compare and join."""
    array = one_array(column) if isinstance(column, pa.ChunkedArray) else column
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array


def as_longs(array: pa.Array) -> pa.Array | None:
    """64-bit integers with the same order and equality; None: the type has none."""
    data_type = array.type
    if pa.types.is_date32(data_type):
        return array.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(data_type):
        return array.cast(pa.int64())
    return array.cast(pa.int64()) if pa.types.is_integer(data_type) else None


class KeySet:
    """Keys of one or several columns; `columns` are in the order of the key, without NULLs."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self.columns = [plain(column) for column in columns]

    @cached_property
    def _indexes(self) -> list[_LongIndex | _HashIndex]:
        return [_index(column) for column in self.columns]

    def __len__(self) -> int:
        return len(self.columns[0])

    def only(self, rows: Numbers) -> KeySet:
        """The keys with these numbers."""
        return KeySet([column.take(pa.array(rows)) for column in self.columns])

    def ready(self) -> KeySet:
        """The same set with its indexes built: otherwise each of several threads would build them."""
        _ = self._indexes
        return self

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        """The numbers of the rows whose key is in the set, ascending."""
        arrays = [plain(column) for column in columns]
        rows: Numbers | None = None
        for index, array in zip(self._indexes, arrays, strict=True):
            hits = index.find(array if rows is None else array.take(pa.array(rows)))
            rows = hits if rows is None else rows[hits]
            if len(rows) == 0:
                break
        assert rows is not None  # noqa: S101 - a key has at least one column
        if len(arrays) == 1 or len(rows) == 0:
            return rows
        return self._match_whole_key([array.take(pa.array(rows)) for array in arrays], rows)

    def _match_whole_key(self, columns: Sequence[pa.Array], rows: Numbers) -> Numbers:
        """The columns can match keys of different rows; only the whole key counts."""
        names = [f"k{n}" for n in range(len(columns))]
        left = pa.table([*columns, pa.array(rows)], names=[*names, "row"])
        matches = left.join(self._table, keys=names, join_type="left semi")
        return np.sort(matches.column("row").to_numpy())

    @cached_property
    def _table(self) -> pa.Table:
        return pa.table(self.columns, names=[f"k{n}" for n in range(len(self.columns))])

    def may_be_between(self, low: Sequence[object], high: Sequence[object]) -> bool:
        """False only if no key lies in these bounds, column by column; None: an unknown bound."""
        return all(index.any_between(a, b) for index, a, b in zip(self._indexes, low, high, strict=True))

    def bounds(self) -> list[tuple[object, object]]:
        """The least and the greatest value of each column."""
        pairs = [pc.min_max(column).as_py() if _has_order(column.type) else None for column in self.columns]
        return [(None, None) if pair is None else (pair["min"], pair["max"]) for pair in pairs]


def _index(column: pa.Array) -> _LongIndex | _HashIndex:
    longs = as_longs(column)
    return _LongIndex(longs) if longs is not None else _HashIndex(column)


class _LongIndex:
    """A bitmap by hash leaves few rows for an exact lookup: an order of magnitude faster than a hash set."""

    def __init__(self, keys: pa.Array) -> None:
        self._keys = sorted_distinct(keys.to_numpy())
        bits = max(_MIN_BITS, min(_MAX_BITS, len(self._keys).bit_length() + 4))
        self._shift = np.uint64(64 - bits)
        self._table: npt.NDArray[np.bool_] = np.zeros(1 << bits, dtype=np.bool_)
        self._table[self._hash(self._keys)] = True

    def _hash(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        return (values.view(np.uint64) * _MULTIPLIER) >> self._shift

    def find(self, column: pa.Array) -> Numbers:
        longs = as_longs(column)
        assert longs is not None  # noqa: S101 - columns are cast to the table's type before
        values = longs.fill_null(0).to_numpy() if longs.null_count else longs.to_numpy()
        candidates = np.flatnonzero(self._table[self._hash(values)])
        candidate_values = values[candidates]
        index = np.minimum(np.searchsorted(self._keys, candidate_values), len(self._keys) - 1)
        hits: Numbers = candidates[self._keys[index] == candidate_values]
        if longs.null_count:
            hits = hits[np.asarray(longs.is_valid())[hits]]
        return hits

    def any_between(self, low: object, high: object) -> bool:
        bounds = [None if v is None else as_longs(pa.array([v])) for v in (low, high)]
        if bounds[0] is None or bounds[1] is None:
            return True
        first = np.searchsorted(self._keys, bounds[0][0].as_py())
        return bool(first < len(self._keys) and self._keys[first] <= bounds[1][0].as_py())


class _HashIndex:
    """Texts, decimals, bytes: Arrow's own hash set."""

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys.unique()
        pair = pc.min_max(self._keys).as_py() if _has_order(keys.type) and len(keys) else None
        self._low: object = pair["min"] if pair else None
        self._high: object = pair["max"] if pair else None

    def find(self, column: pa.Array) -> Numbers:
        if not pa.types.is_dictionary(column.type):
            return np.flatnonzero(self._are_in(column))
        # Every distinct value is looked up once, however many rows have it. NULL gets an extra entry that never matches.
        is_key = np.append(self._are_in(column.dictionary), False)
        return np.flatnonzero(is_key[column.indices.fill_null(len(column.dictionary)).to_numpy()])

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
        if len(self._keys) > _MAX_SORTED:
            return True
        first = bisect.bisect_left(self._sorted, low)
        return bool(first < len(self._sorted) and self._sorted[first] <= high)


def _has_order(data_type: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_integer(data_type)
        or t.is_date(data_type)
        or t.is_timestamp(data_type)
        or t.is_string(data_type)
        or t.is_decimal(data_type)
    )


class KeysByBucket:
    """The keys of a batch by bucket: a file of a table partitioned by `bucket(N, key)` is searched for its own keys only.

    Bounds leave out no bucket, since neighbouring keys lie in different ones. Safe to use from several threads.
    """

    def __init__(self, keys: KeySet, columns: Sequence[int]) -> None:
        """`columns` are the ids of the key's columns."""
        self._keys, self._columns = keys, list(columns)
        self._by_buckets: dict[tuple[Bucket, ...], KeySet | None] = {}
        self._sorted: dict[tuple[int, int], tuple[Numbers, Numbers]] = {}
        self._lock = threading.Lock()

    def of(self, buckets: Sequence[Bucket]) -> KeySet | None:
        """The keys that a file of these buckets may hold; None: none of them."""
        usable = tuple(bucket for bucket in buckets if self._is_usable(bucket))
        with self._lock:
            if not usable:
                return self._keys.ready()
            if usable not in self._by_buckets:
                rows = self._rows_of(usable)
                self._by_buckets[usable] = self._keys.only(rows).ready() if len(rows) else None
            return self._by_buckets[usable]

    def may_be_in(self, buckets: Sequence[Bucket]) -> bool:
        usable = [bucket for bucket in buckets if self._is_usable(bucket)]
        with self._lock:
            return not usable or len(self._rows_of(usable)) > 0

    def _is_usable(self, bucket: Bucket) -> bool:
        """Iceberg hashes nanoseconds as microseconds: buckets of such columns are ignored here."""
        if bucket.column not in self._columns:
            return False
        data_type = self._keys.columns[self._columns.index(bucket.column)].type
        return not (pa.types.is_timestamp(data_type) and data_type.unit == "ns")

    def _rows_of(self, buckets: Sequence[Bucket]) -> Numbers:
        first, *rest = buckets
        order, numbers = self._by_number(first)
        low, high = np.searchsorted(numbers, [first.number, first.number + 1])
        rows = order[low:high]
        for bucket in rest:
            order, numbers = self._by_number(bucket)
            low, high = np.searchsorted(numbers, [bucket.number, bucket.number + 1])
            rows = np.intersect1d(rows, order[low:high], assume_unique=True)
        return rows

    def _by_number(self, bucket: Bucket) -> tuple[Numbers, Numbers]:
        """The keys sorted by bucket: their row numbers, and their buckets."""
        if (bucket.column, bucket.width) not in self._sorted:
            values = self._keys.columns[self._columns.index(bucket.column)]
            numbers = partition_values(values, f"bucket[{bucket.width}]").to_numpy().astype(np.int64)
            order = np.argsort(numbers, kind="stable")
            self._sorted[bucket.column, bucket.width] = order, numbers[order]
        return self._sorted[bucket.column, bucket.width]


Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ScanUnit:
    """Every `shares`th row group of a file, from number `share` on: large files are shared between tasks."""

    location: str
    share: int = 0
    shares: int = 1


def read_keys(locations: Sequence[str], key: Sequence[ArrowColumn]) -> KeySet:
    """The keys of files that were just written."""
    keys = pa.concat_tables([read_columns(location, key) for location in locations])
    return KeySet(keys.columns)


def find_rows(unit: ScanUnit, key: Sequence[ArrowColumn], keys: KeySet) -> Positions:
    """The numbers of the rows whose key is in the set, ascending."""
    with open_columns(unit.location, key, dictionaries=True) as reader:
        if not reader.has_all:
            return np.empty(0, np.int64)  # written before the column was added: every key in it is NULL
        hits = [
            group.first_row + keys.find(reader.read(group).columns)
            for group in reader.row_groups(unit.share, unit.shares)
            if keys.may_be_between(*reader.bounds(group))
        ]
    return np.concatenate([np.empty(0, np.int64), *hits])


_Unit = tuple[ScanUnit, tuple[Bucket, ...]]


@dataclass(frozen=True)
class Search:
    """Keys to find in a table, and the columns that hold them."""

    key: tuple[ArrowColumn, ...]
    keys: KeySet
    load: Callable[[], KeySet]  # the same keys in a task; a batch's are not sent there, but read from its files
    activity: str

    @cached_property
    def by_bucket(self) -> KeysByBucket:
        return KeysByBucket(self.keys, [column.id for column in self.key])

    def in_buckets(self, planned: Sequence[PlannedFile]) -> list[PlannedFile]:
        """Without the files of buckets that none of the keys belongs to."""
        return [file for file in planned if self.by_bucket.may_be_in(file.buckets)]


def find_in_table(
    spark: SparkSession, planned: Sequence[PlannedFile], search: Search, tuning: Tuning
) -> dict[str, Positions]:
    """File → numbers of its rows that have one of the keys, deleted ones too."""
    units = [
        (ScanUnit(file.location, share, shares), file.buckets)
        for file in planned
        for shares in [max(1, file.rows // tuning.unit_rows)]
        for share in range(shares)
    ]
    if sum(file.rows for file in planned) <= tuning.driver_rows:
        look_up = partial(_look_up, search.key, search.by_bucket)
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as threads:
            results = list(threads.map(look_up, units))
    else:
        cores = spark.sparkContext.defaultParallelism
        shares = [units[n :: 2 * cores] for n in range(min(2 * cores, len(units)))]
        work = partial(_scan, search.load, search.key)
        results = [_unpack(result) for result in run_tasks(spark, work, shares, search.activity)]
    hits: dict[str, list[Positions]] = {}
    for location, positions in results:
        if len(positions):
            hits.setdefault(location, []).append(positions)
    return {location: np.concatenate(parts) for location, parts in hits.items()}


def _look_up(key: Sequence[ArrowColumn], keys: KeysByBucket, unit: _Unit) -> tuple[str, Positions]:
    scan, buckets = unit
    bucket_keys = keys.of(buckets)
    return scan.location, np.empty(0, np.int64) if bucket_keys is None else find_rows(scan, key, bucket_keys)


def _scan(load: Callable[[], KeySet], key: Sequence[ArrowColumn], units: Sequence[_Unit]) -> Iterator[bytes]:
    """In a task."""
    keys = KeysByBucket(load(), [column.id for column in key])
    for unit in units:
        location, positions = _look_up(key, keys, unit)
        name = location.encode()
        yield len(name).to_bytes(4, "big") + name + positions.tobytes()


def _unpack(result: bytes) -> tuple[str, Positions]:
    end = 4 + int.from_bytes(result[:4], "big")
    return result[4:end].decode(), np.frombuffer(result[end:], dtype=np.int64)
