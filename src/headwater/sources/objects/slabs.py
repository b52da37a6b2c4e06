"""A listing in slabs: tens of thousands of rows whose texts and numbers lie side by side, to be cut and digested quickly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from headwater.sources.objects.container import LISTING_COLUMNS

LISTING = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in LISTING_COLUMNS.items()])

Numbers = np.ndarray[Any, Any]


class Slab:
    """Some rows of a listing, in order."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows.combine_chunks()
        self.count = int(rows.num_rows)
        self._keys, self._etags = (_Texts(self.rows[name]) for name in ("key", "etag"))
        self._sizes, self._modified = (_numbers(self.rows[name]) for name in ("size", "modified"))

    def key(self, row: int) -> str:
        return self._keys.text(row).decode()

    def place(self, key: str, begin: int, guess: int) -> int:
        """The first row at or behind `begin` whose key is not below; `guess` rows on is where it usually is."""
        wanted, low, high = key.encode(), begin, self.count
        if begin < guess < high and self._keys.text(guess) == wanted:
            return guess
        if low == high or self._keys.text(high - 1) < wanted:
            return high
        while low < high:
            middle = (low + high) // 2
            if self._keys.text(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def digest(self, begin: int, end: int) -> bytes:
        """Of keys, etags, sizes and times, the same however the listing was cut into slabs.

        Not one that withstands attacks: whoever could make two listings alike would only hide objects of his own.
        """
        texts = (*self._keys.of(begin, end), *self._etags.of(begin, end))
        return xxhash.xxh3_128_digest(b"".join((*texts, self._sizes[begin:end].data, self._modified[begin:end].data)))

    def digests(self, begin: int, end: int, step: int) -> Iterator[bytes]:
        """The same of every so many rows; faster than one by one."""
        sizes, modified = self._sizes[begin:end].data, self._modified[begin:end].data
        places = [*range(0, end - begin, step), end - begin]
        texts = (column.parts(begin, places) for column in (self._keys, self._etags))
        for (low, high), keys, etags in zip(pairwise(places), *texts, strict=True):
            yield xxhash.xxh3_128_digest(b"".join((*keys, *etags, sizes[low:high], modified[low:high])))


class _Texts:
    """The bytes of a column, and where each text begins in them."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        array = flat(column)
        _, offsets, content = array.buffers()
        self._edges = (
            np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4) if offsets else np.zeros(1, np.int32)
        )
        self._lengths = np.diff(self._edges)
        self._content = memoryview(content) if content is not None else memoryview(b"")

    def text(self, row: int) -> bytes:
        return bytes(self._content[self._edges[row] : self._edges[row + 1]])

    def of(self, begin: int, end: int) -> tuple[memoryview, memoryview]:
        return self._lengths[begin:end].data, self._content[self._edges[begin] : self._edges[end]]

    def parts(self, begin: int, places: list[int]) -> Iterator[tuple[memoryview, memoryview]]:
        """The same between every two of these places behind `begin`."""
        lengths, edges = self._lengths[begin:].data, self._edges[begin:][places].tolist()
        for (low, high), (first, end) in zip(pairwise(places), pairwise(edges), strict=True):
            yield lengths[low:high], self._content[first:end]


def _numbers(column: pa.ChunkedArray) -> Numbers:
    """By hand: Arrow's own way imports pandas, which takes longer than a look at thousands of objects."""
    array = flat(column)
    held = array.buffers()[1]
    return np.frombuffer(held, np.int64, len(array), array.offset * 8) if held else np.empty(0, np.int64)


def flat(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def slabs(listing: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """The listing in tables of at least so many rows; the last one may be shorter, and there is always one."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in listing:
        held.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(held, LISTING)
            held, count = [], 0
    yield pa.Table.from_batches(held, LISTING)
