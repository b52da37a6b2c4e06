"""Ranges of a key, the sums and hashes of their rows, made in tasks on either side, and the rows that differ.

A key of one column that is a number or a time is cut by its values, anything else by its hash. Sums do not depend on
the order of rows, and count those that are there twice.
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
from headwater.model.errors import ValueNotKept
from headwater.model.protocols.source import KeyRanges
from headwater.model.rows import Rows
from headwater.sinks.rejects import conform
from headwater.sinks.tasks import RowCounter, run_over_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """How rows are distinguished by their keys."""

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

    def spans(self, bounds: Sequence[tuple[int, int]], kind: pa.DataType) -> KeyRanges | None:
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
        return KeyRanges(self.column, tuple(made))


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


Words = npt.NDArray[np.uint64]
KEY = ("headwater key 1", "headwater key 2")
ROW = ("headwater row 1", "headwater row 2")
_NONE = np.empty(0, np.uint64)
_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Digests:
    """How rows of one comparison are read and hashed; sent to the workers."""

    stream: str
    schema: pa.Schema  # what is compared, in the table's types
    key: tuple[str, ...]  # empty: a row is named by all of its values
    ranges: Ranges = field(default_factory=lambda: Ranges.by_hash(1))
    skipped: Words = field(default_factory=lambda: _NONE)  # hashes of keys that are not compared, sorted
    chosen: Words | None = None  # only these keys, sorted; None: all
    chosen_ranges: npt.NDArray[np.bool_] | None = None  # only these ranges; None: all

    def sums(self, rows: Rows, spark: Callable[[], SparkSession], tally: RowCounter) -> tuple[RangeSums, Words]:
        """Per range; and the keys of rows that the table cannot hold, which cannot be compared."""
        whole, unfit = RangeSums.empty(self.ranges.count), [_NONE]
        for result in run_over_rows(rows, partial(_sum_part, self), spark, f"{self.stream}: comparing", tally):
            words = np.frombuffer(result, np.uint64)
            size = 3 * self.ranges.count
            whole.join(RangeSums(words[:size].reshape(3, -1)))
            unfit.append(words[size:])
        return whole, np.sort(np.concatenate(unfit))

    def keys(self, rows: Rows, spark: Callable[[], SparkSession], tally: RowCounter) -> Words:
        """The hashes of their keys, sorted."""
        results = run_over_rows(rows, partial(_key_part, self), spark, f"{self.stream}: comparing", tally)
        return np.sort(np.concatenate([_NONE, *(np.frombuffer(result, np.uint64) for result in results)]))

    def listed(self, rows: Rows, spark: Callable[[], SparkSession], tally: RowCounter) -> pa.Table:
        """The keys of the chosen rows, and the hashes of both."""
        results = run_over_rows(
            rows, partial(_list_part, self), spark, f"{self.stream}: looking for what differs", tally
        )
        tables = [pa.ipc.open_stream(result).read_all() for result in results]
        return pa.concat_tables([self.listing.empty_table(), *tables]).combine_chunks()

    def only(self, *, keys: Words | None = None, ranges: npt.NDArray[np.bool_] | None = None) -> Digests:
        return replace(self, chosen=keys, chosen_ranges=ranges)

    @property
    def listing(self) -> pa.Schema:
        fields = [self.schema.field(name).with_nullable(nullable=True).remove_metadata() for name in self.key]
        return pa.schema([*fields, *(pa.field(name, pa.uint64()) for name in (*KEY, *ROW))])

    def hashed(
        self, batches: Iterable[pa.RecordBatch], unfit: list[Words]
    ) -> Iterator[tuple[pa.RecordBatch, Lanes, Lanes]]:
        """The rows that count: their columns, the hashes of their keys, and their own."""
        names = self.schema.names
        for whole in batches:
            for first in range(0, whole.num_rows, _AT_ONCE):
                for batch in self._fitting(whole.slice(first, _AT_ONCE), unfit):
                    rows = None if self.key else hash_rows(batch, names)
                    keys = hash_rows(batch, self.key) if rows is None else rows
                    counts = self._counts(batch, keys)
                    if counts is not None:
                        places = pa.array(counts)
                        batch, keys = batch.filter(places), (keys[0][counts], keys[1][counts])  # noqa: PLW2901
                        rows = None if rows is None else (rows[0][counts], rows[1][counts])
                    if batch.num_rows:
                        yield batch, keys, hash_rows(batch, names) if rows is None else rows

    def _counts(self, batch: pa.RecordBatch, keys: Lanes) -> npt.NDArray[np.bool_] | None:
        """None: all of them do."""
        counts = None
        if len(self.skipped):
            counts = ~_among(keys[0], self.skipped)
        if self.chosen is not None:
            chosen = _among(keys[0], self.chosen)
            counts = chosen if counts is None else counts & chosen
        if self.chosen_ranges is not None:
            chosen = self.chosen_ranges[self.ranges.of(batch, keys)]
            counts = chosen if counts is None else counts & chosen
        return None if counts is None or counts.all() else counts

    def _fitting(self, batch: pa.RecordBatch, unfit: list[Words]) -> Iterator[pa.RecordBatch]:
        """In the table's types. A row that has no form there is a reject of the sink, and is not compared."""
        try:
            fitted = conform(batch, self.schema, self.stream)
        except ValueNotKept:
            if batch.num_rows > 1:
                half = batch.num_rows // 2
                yield from self._fitting(batch.slice(0, half), unfit)
                yield from self._fitting(batch.slice(half), unfit)
            elif self.key:
                unfit.append(self._key_of(batch))
            return
        yield fitted

    def _key_of(self, row: pa.RecordBatch) -> Words:
        try:
            key = conform(row, pa.schema([self.schema.field(name) for name in self.key]), self.stream)
        except ValueNotKept:
            return _NONE  # then the table cannot have it either
        return hash_rows(key, self.key)[0]


def _among(hashes: Words, wanted: Words) -> npt.NDArray[np.bool_]:
    if not len(wanted):
        return np.zeros(len(hashes), np.bool_)
    at = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
    return np.asarray(wanted[at] == hashes)


def _sum_part(digests: Digests, _number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    sums, unfit = RangeSums.empty(digests.ranges.count), [_NONE]
    for batch, keys, rows in digests.hashed(batches, unfit):
        sums.add(digests.ranges.of(batch, keys), rows)
    yield np.concatenate([sums.values.reshape(-1), *unfit]).tobytes()


def _key_part(digests: Digests, _number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    unfit: list[Words] = []
    found = [keys[0] for _, keys, _ in digests.hashed(batches, unfit)]
    yield np.concatenate([_NONE, *found, *unfit]).tobytes()


def _list_part(digests: Digests, _number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    schema, out = digests.listing, pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as writer:
        for batch, keys, rows in digests.hashed(batches, []):
            columns = [batch.column(name) for name in digests.key]
            writer.write_batch(pa.RecordBatch.from_arrays([*columns, *map(pa.array, (*keys, *rows))], schema=schema))
    yield out.getvalue().to_pybytes()


_THERE = "headwater there"


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


def differences(source: pa.Table, table: pa.Table, key: Sequence[str]) -> Differences:
    """Of listed rows (see `Digests.listed`). Where rows of the source share a key, the table may have any one of them."""
    if not key:
        return _of_bags(source, table, key)
    counts = table.group_by(list(KEY)).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts.column("count_all"), 1)).select(list(KEY))
    same = table.join(source.select([*KEY, *ROW]), keys=[*KEY, *ROW], join_type="left semi")
    right = same.select(list(KEY)).join(twice, keys=list(KEY), join_type="left anti")
    others = source.join(right, keys=list(KEY), join_type="left anti")
    different = others.join(table.select(list(KEY)), keys=list(KEY), join_type="left semi")
    missing = others.join(table.select(list(KEY)), keys=list(KEY), join_type="left anti")
    extra = table.join(source.select(list(KEY)), keys=list(KEY), join_type="left anti")
    return Differences(*(_keys(some, key) for some in (missing, different, extra)))


def bag_differences(source: pa.Table, table: pa.Table, key: Sequence[str]) -> Differences:
    """Where every row counts, and counts as often as it is there: a row is missing or too many, never different."""
    return _of_bags(source, table, key)


def _of_bags(source: pa.Table, table: pa.Table, key: Sequence[str]) -> Differences:
    words = [*KEY, *ROW]
    counted = [
        some.group_by(words).aggregate([([], "count_all")]).rename_columns([*words, name])
        for some, name in ((source, "here"), (table, "there"))
    ]
    both = counted[0].join(counted[1], keys=words, join_type="full outer")
    here, there = (pc.fill_null(both.column(name), 0) for name in ("here", "there"))
    fewer, more = (both.filter(test).select(words) for test in (pc.greater(here, there), pc.less(here, there)))
    missing = source.join(fewer, keys=words, join_type="left semi")
    extra = table.join(more, keys=words, join_type="left semi")
    none = source.slice(0, 0)
    return Differences(*(_keys(some, key) for some in (missing, none, extra)))


def _keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """One row per key."""
    columns = [*key, *KEY]
    first = rows.append_column(_THERE, pa.array(range(rows.num_rows), pa.int64()))
    places = first.group_by(list(KEY)).aggregate([(_THERE, "min")]).column(f"{_THERE}_min")
    return rows.take(places.combine_chunks()).select(columns)
