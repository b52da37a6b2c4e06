"""Ranges of a key, the sums and hashes of their rows, computed in tasks for source and table, and the rows that differ.

A key of one column that is a number or a time is cut by its values, anything else by its hash. Sums do not depend on
the order of rows, and count duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.verify.row_hash import Lanes, hash_rows
from headwater.model.bisect import bisect
from headwater.model.errors import ValueNotKept
from headwater.model.protocols.source import KeyRanges
from headwater.model.rows import Rows
from headwater.sinks.rejects import conform
from headwater.sinks.tasks import RowCounter, run_over_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Numbers = npt.NDArray[np.int64]
_MAX_DIGITS = 18  # of a decimal in 64 bits
_RANGE_ROWS = 2_000
_MIN_RANGES, _MAX_RANGES = 16, 1 << 16
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def range_count(rows: int) -> int:
    """Enough that one wrong row means few rows to list, few enough for memory."""
    return max(_MIN_RANGES, min(_MAX_RANGES, rows // _RANGE_ROWS))


def has_order(data_type: pa.DataType) -> bool:
    """Whether values are integers of at most 64 bits, in some unit."""
    t = pa.types
    if t.is_decimal(data_type):
        return bool(data_type.precision <= _MAX_DIGITS)
    return bool(
        (t.is_integer(data_type) and not t.is_uint64(data_type)) or t.is_date32(data_type) or t.is_timestamp(data_type)
    )


def as_numbers(values: pa.Array) -> Numbers:
    """Values of a type that has such an order; NULL as 0."""
    data_type = values.type
    filled = values.fill_null(0) if values.null_count and not pa.types.is_decimal(data_type) else values
    if pa.types.is_decimal(data_type):
        words = np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), 16 * values.offset)[::2].copy()
        if values.null_count:
            words[np.asarray(values.is_null())] = 0
        return words
    if pa.types.is_timestamp(data_type):
        return np.asarray(filled.view(pa.int64()))
    return np.asarray(filled.view(pa.int32()) if pa.types.is_date32(data_type) else filled).astype(np.int64)


@dataclass(frozen=True)
class Ranges:
    """How keys are divided into ranges."""

    count: int
    column: str = ""  # whose values cut; empty: the key's hash does
    cuts: Numbers | None = None  # where each range but the first begins

    @classmethod
    def by_hash(cls, count: int) -> Ranges:
        return cls(count)

    @classmethod
    def by_value(cls, column: str, files: Sequence[tuple[int, int, int]], count: int) -> Ranges:
        """From the least value, the greatest value and the rows of each data file. Values may lie anywhere in between."""
        rows = sum(file[2] for file in files)
        spread = [np.linspace(low, high, max(2, 4 * count * file_rows // rows)) for low, high, file_rows in files]
        values = np.sort(np.concatenate(spread))
        quantiles = values[np.linspace(0, len(values) - 1, count + 1).astype(np.int64)[1:-1]]
        limits = np.iinfo(np.int64)
        cuts = np.unique(np.clip(quantiles, float(limits.min), float(limits.max - 1024)).astype(np.int64))
        return cls(len(cuts) + 1, column, cuts)

    def of(self, batch: pa.RecordBatch, keys: Lanes) -> Numbers:
        """The range of every row."""
        if self.cuts is None:
            return (keys[0] % np.uint64(self.count)).astype(np.int64)
        return np.searchsorted(self.cuts, as_numbers(batch.column(self.column)), side="right")

    def bounds(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        """The first and last value of these ranges; neighbours are joined."""
        limits, cuts = np.iinfo(np.int64), [] if self.cuts is None else self.cuts.tolist()
        edges = [limits.min, *cuts, limits.max + 1]
        bounds: list[tuple[int, int]] = []
        for number in sorted(numbers):
            low, high = edges[number], edges[number + 1] - 1
            if bounds and bounds[-1][1] == low - 1:
                bounds[-1] = (bounds[-1][0], high)
            else:
                bounds.append((low, high))
        return bounds

    def spans(self, bounds: Sequence[tuple[int, int]], data_type: pa.DataType) -> KeyRanges | None:
        """The same as values of the column; None: a database could not read them."""
        limits = np.iinfo(np.int64)
        try:
            spans = [
                (
                    None if low == limits.min else _value(low, data_type),
                    None if high == limits.max else _value(high, data_type),
                )
                for low, high in bounds
            ]
        except (ValueError, OverflowError):
            return None
        return KeyRanges(self.column, tuple(spans))


def _value(number: int, data_type: pa.DataType) -> object:
    if pa.types.is_decimal(data_type):
        raw = number.to_bytes(16, "little", signed=True)
        return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(raw)])[0].as_py()
    if pa.types.is_date32(data_type):
        return pa.array([number], pa.int32()).view(data_type)[0].as_py()
    return pa.array([number], pa.int64()).view(data_type)[0].as_py() if pa.types.is_timestamp(data_type) else number


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


Words = npt.NDArray[np.uint64]
KEY = ("headwater key 1", "headwater key 2")
ROW = ("headwater row 1", "headwater row 2")
_EMPTY = np.empty(0, np.uint64)
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Digests:
    """How one comparison reads and hashes rows; sent to the workers."""

    stream: str
    schema: pa.Schema  # what is compared, in the table's types
    key: tuple[str, ...]  # empty: all values of a row identify it
    ranges: Ranges = field(default_factory=lambda: Ranges.by_hash(1))
    skipped_keys: Words = field(default_factory=lambda: _EMPTY)  # hashes of keys that are not compared, sorted
    only_keys: Words | None = None  # only these keys, sorted; None: all
    only_ranges: npt.NDArray[np.bool_] | None = None  # only these ranges; None: all

    def sums(self, rows: Rows, spark: Callable[[], SparkSession], counter: RowCounter) -> tuple[RangeSums, Words]:
        """Per range; and the keys of rows that the table's types cannot hold, which are not compared."""
        total, unfit = RangeSums.empty(self.ranges.count), [_EMPTY]
        for result in run_over_rows(rows, partial(_sum_task, self), spark, f"{self.stream}: comparing", counter):
            words = np.frombuffer(result, np.uint64)
            size = 3 * self.ranges.count
            total.join(RangeSums(words[:size].reshape(3, -1)))
            unfit.append(words[size:])
        return total, np.sort(np.concatenate(unfit))

    def keys(self, rows: Rows, spark: Callable[[], SparkSession], counter: RowCounter) -> Words:
        """The hashes of their keys, sorted."""
        results = run_over_rows(rows, partial(_key_task, self), spark, f"{self.stream}: comparing", counter)
        return np.sort(np.concatenate([_EMPTY, *(np.frombuffer(result, np.uint64) for result in results)]))

    def list_keys(self, rows: Rows, spark: Callable[[], SparkSession], counter: RowCounter) -> pa.Table:
        """The keys of the selected rows, the hashes of the keys and of the rows."""
        results = run_over_rows(rows, partial(_list_task, self), spark, f"{self.stream}: listing differences", counter)
        tables = [pa.ipc.open_stream(result).read_all() for result in results]
        return pa.concat_tables([self.listing.empty_table(), *tables]).combine_chunks()

    def narrow(self, *, keys: Words | None = None, ranges: npt.NDArray[np.bool_] | None = None) -> Digests:
        return replace(self, only_keys=keys, only_ranges=ranges)

    @property
    def listing(self) -> pa.Schema:
        fields = [self.schema.field(name).with_nullable(nullable=True).remove_metadata() for name in self.key]
        return pa.schema([*fields, *(pa.field(name, pa.uint64()) for name in (*KEY, *ROW))])

    def hash_batches(
        self, batches: Iterable[pa.RecordBatch], unfit: list[Words]
    ) -> Iterator[tuple[pa.RecordBatch, Lanes, Lanes]]:
        """The selected rows: their columns, the hashes of their keys, and their own."""
        names = self.schema.names
        for block in batches:
            for first in range(0, block.num_rows, _BATCH_ROWS):
                for batch in self._conform(block.slice(first, _BATCH_ROWS), unfit):
                    rows = None if self.key else hash_rows(batch, names)
                    keys = hash_rows(batch, self.key) if rows is None else rows
                    mask = self._mask(batch, keys)
                    if mask is not None:
                        batch, keys = batch.filter(pa.array(mask)), (keys[0][mask], keys[1][mask])  # noqa: PLW2901
                        rows = None if rows is None else (rows[0][mask], rows[1][mask])
                    if batch.num_rows:
                        yield batch, keys, hash_rows(batch, names) if rows is None else rows

    def _mask(self, batch: pa.RecordBatch, keys: Lanes) -> npt.NDArray[np.bool_] | None:
        """Which rows to compare; None: all."""
        mask = None
        if len(self.skipped_keys):
            mask = ~_contains(keys[0], self.skipped_keys)
        if self.only_keys is not None:
            matches = _contains(keys[0], self.only_keys)
            mask = matches if mask is None else mask & matches
        if self.only_ranges is not None:
            matches = self.only_ranges[self.ranges.of(batch, keys)]
            mask = matches if mask is None else mask & matches
        return None if mask is None or mask.all() else mask

    def _conform(self, batch: pa.RecordBatch, unfit: list[Words]) -> Iterator[pa.RecordBatch]:
        """In the table's types. A row that they cannot hold is a reject of the sink, and is not compared."""
        for part in bisect(batch, partial(conform, target=self.schema, stream=self.stream), ValueNotKept):
            if part.result is not None:
                yield part.result
            elif self.key:
                unfit.append(self._key_of(part.items))

    def _key_of(self, row: pa.RecordBatch) -> Words:
        try:
            key = conform(row, pa.schema([self.schema.field(name) for name in self.key]), self.stream)
        except ValueNotKept:
            return _EMPTY  # then the table cannot have it either
        return hash_rows(key, self.key)[0]


def _contains(hashes: Words, sorted_hashes: Words) -> npt.NDArray[np.bool_]:
    if not len(sorted_hashes):
        return np.zeros(len(hashes), np.bool_)
    index = np.minimum(np.searchsorted(sorted_hashes, hashes), len(sorted_hashes) - 1)
    return np.asarray(sorted_hashes[index] == hashes)


def _sum_task(digests: Digests, _number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    sums, unfit = RangeSums.empty(digests.ranges.count), [_EMPTY]
    for batch, keys, rows in digests.hash_batches(batches, unfit):
        sums.add(digests.ranges.of(batch, keys), rows)
    yield np.concatenate([sums.values.reshape(-1), *unfit]).tobytes()


def _key_task(digests: Digests, _number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    unfit: list[Words] = []
    hashes = [keys[0] for _, keys, _ in digests.hash_batches(batches, unfit)]
    yield np.concatenate([_EMPTY, *hashes, *unfit]).tobytes()


def _list_task(digests: Digests, _number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    schema, out = digests.listing, pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as writer:
        for batch, keys, rows in digests.hash_batches(batches, []):
            columns = [batch.column(name) for name in digests.key]
            writer.write_batch(pa.RecordBatch.from_arrays([*columns, *map(pa.array, (*keys, *rows))], schema=schema))
    yield out.getvalue().to_pybytes()


_INDEX = "headwater index"


@dataclass(frozen=True)
class Differences:
    """The keys of rows that differ, each once: tables of the key's columns and the hash of the key."""

    missing: pa.Table  # the source has the row, the table has none of its key
    different: pa.Table  # the table has other values, or the key twice
    extra: pa.Table  # only the table has a row of the key

    @property
    def count(self) -> int:
        return int(self.missing.num_rows + self.different.num_rows + self.extra.num_rows)

    @property
    def all_keys(self) -> pa.Table:
        return pa.concat_tables([self.missing, self.different, self.extra])


def compare_keys(source: pa.Table, table: pa.Table, key: Sequence[str]) -> Differences:
    """Compare the tables of `Digests.list_keys`. Where rows of the source share a key, the table may have any of them."""
    if not key:
        return compare_bags(source, table, key)
    counts = table.group_by(list(KEY)).aggregate([([], "count_all")])
    duplicates = counts.filter(pc.greater(counts.column("count_all"), 1)).select(list(KEY))
    same = table.join(source.select([*KEY, *ROW]), keys=[*KEY, *ROW], join_type="left semi")
    equal = same.select(list(KEY)).join(duplicates, keys=list(KEY), join_type="left anti")
    wrong = source.join(equal, keys=list(KEY), join_type="left anti")
    different = wrong.join(table.select(list(KEY)), keys=list(KEY), join_type="left semi")
    missing = wrong.join(table.select(list(KEY)), keys=list(KEY), join_type="left anti")
    extra = table.join(source.select(list(KEY)), keys=list(KEY), join_type="left anti")
    return Differences(*(_keys(rows, key) for rows in (missing, different, extra)))


def compare_bags(source: pa.Table, table: pa.Table, key: Sequence[str]) -> Differences:
    """Compare without a key, duplicates included: a row is missing or extra, never different."""
    words = [*KEY, *ROW]
    counts = [
        rows.group_by(words).aggregate([([], "count_all")]).rename_columns([*words, name])
        for rows, name in ((source, "here"), (table, "there"))
    ]
    both = counts[0].join(counts[1], keys=words, join_type="full outer")
    here, there = (pc.fill_null(both.column(name), 0) for name in ("here", "there"))
    fewer, more = (both.filter(test).select(words) for test in (pc.greater(here, there), pc.less(here, there)))
    missing = source.join(fewer, keys=words, join_type="left semi")
    extra = table.join(more, keys=words, join_type="left semi")
    none = source.slice(0, 0)
    return Differences(*(_keys(rows, key) for rows in (missing, none, extra)))


def _keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """One row per key."""
    columns = [*key, *KEY]
    numbered = rows.append_column(_INDEX, pa.array(range(rows.num_rows), pa.int64()))
    first_rows = numbered.group_by(list(KEY)).aggregate([(_INDEX, "min")]).column(f"{_INDEX}_min")
    return rows.take(first_rows.combine_chunks()).select(columns)
