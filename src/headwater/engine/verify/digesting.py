"""What tasks make of rows: sums per range, or the hashes of chosen rows with their keys. Runs in tasks, on either side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.verify.ranges import Ranges, RangeSums
from headwater.engine.verify.row_hash import Lanes, hash_rows
from headwater.model.errors import ValueNotKept
from headwater.model.rows import Rows
from headwater.sinks.iceberg.conform import conform
from headwater.sinks.over_rows import run_over_rows
from headwater.sinks.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    def sums(self, rows: Rows, spark: Callable[[], SparkSession], tally: Tally) -> tuple[RangeSums, Words]:
        """Per range; and the keys of rows that the table has no form for, which nobody can compare."""
        whole, unfit = RangeSums.empty(self.ranges.count), [_NONE]
        for result in run_over_rows(rows, partial(_sum_part, self), spark, f"{self.stream}: comparing", tally):
            words = np.frombuffer(result, np.uint64)
            size = 3 * self.ranges.count
            whole.join(RangeSums(words[:size].reshape(3, -1)))
            unfit.append(words[size:])
        return whole, np.sort(np.concatenate(unfit))

    def keys(self, rows: Rows, spark: Callable[[], SparkSession], tally: Tally) -> Words:
        """The hashes of their keys, sorted."""
        results = run_over_rows(rows, partial(_key_part, self), spark, f"{self.stream}: comparing", tally)
        return np.sort(np.concatenate([_NONE, *(np.frombuffer(result, np.uint64) for result in results)]))

    def listed(self, rows: Rows, spark: Callable[[], SparkSession], tally: Tally) -> pa.Table:
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
