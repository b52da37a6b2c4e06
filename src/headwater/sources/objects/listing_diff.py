"""Compares a listing with the ledger as a stream: which objects are new, changed or gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headwater.model.bookmarks import Block, KeyRange, Ledger
from headwater.sources.objects.tuning import DEFAULT, Tuning
from headwater.storage.container import LISTING_COLUMNS, ObjectVersion

LISTING = pa.schema([(name, pa.type_for_alias(type_)) for name, type_ in LISTING_COLUMNS.items()])

Numbers = np.ndarray[Any, Any]


class ListingChunk:
    """Consecutive rows of a listing."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows.combine_chunks()
        self.count = int(rows.num_rows)
        self._keys, self._etags = (_TextColumn(self.rows[name]) for name in ("key", "etag"))
        self._sizes, self._modified = (_numbers(self.rows[name]) for name in ("size", "modified"))

    def key(self, row: int) -> str:
        return self._keys.text(row).decode()

    def find(self, key: str, begin: int, guess: int) -> int:
        """The first row from `begin` on whose key is not less; usually it is at `guess`."""
        target, low, high = key.encode(), begin, self.count
        if begin < guess < high and self._keys.text(guess) == target:
            return guess
        if low == high or self._keys.text(high - 1) < target:
            return high
        while low < high:
            middle = (low + high) // 2
            if self._keys.text(middle) < target:
                low = middle + 1
            else:
                high = middle
        return low

    def digest(self, begin: int, end: int) -> bytes:
        """Of keys, etags, sizes and times; independent of how the listing was cut into chunks.

        Not cryptographic: an attacker could only hide his own objects.
        """
        texts = (*self._keys.of(begin, end), *self._etags.of(begin, end))
        return xxhash.xxh3_128_digest(b"".join((*texts, self._sizes[begin:end].data, self._modified[begin:end].data)))

    def digests(self, begin: int, end: int, step: int) -> Iterator[bytes]:
        """The digests of every `step` rows; faster than one by one."""
        sizes, modified = self._sizes[begin:end].data, self._modified[begin:end].data
        edges = [*range(0, end - begin, step), end - begin]
        texts = (column.ranges(begin, edges) for column in (self._keys, self._etags))
        for (low, high), keys, etags in zip(pairwise(edges), *texts, strict=True):
            yield xxhash.xxh3_128_digest(b"".join((*keys, *etags, sizes[low:high], modified[low:high])))


class _TextColumn:
    """The bytes of a column, and the offset of each text."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        array = flat_array(column)
        _, offsets, content = array.buffers()
        self._offsets = (
            np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4) if offsets else np.zeros(1, np.int32)
        )
        self._lengths = np.diff(self._offsets)
        self._content = memoryview(content) if content is not None else memoryview(b"")

    def text(self, row: int) -> bytes:
        return bytes(self._content[self._offsets[row] : self._offsets[row + 1]])

    def of(self, begin: int, end: int) -> tuple[memoryview, memoryview]:
        return self._lengths[begin:end].data, self._content[self._offsets[begin] : self._offsets[end]]

    def ranges(self, begin: int, edges: list[int]) -> Iterator[tuple[memoryview, memoryview]]:
        """`of` for each pair of edges, counted from `begin`."""
        lengths, offsets = self._lengths[begin:].data, self._offsets[begin:][edges].tolist()
        for (low, high), (first, end) in zip(pairwise(edges), pairwise(offsets), strict=True):
            yield lengths[low:high], self._content[first:end]


def _numbers(column: pa.ChunkedArray) -> Numbers:
    """From the buffer: Arrow's `to_numpy` imports pandas, which takes longer than listing thousands of objects."""
    array = flat_array(column)
    values = array.buffers()[1]
    return np.frombuffer(values, np.int64, len(array), array.offset * 8) if values else np.empty(0, np.int64)


def flat_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def listing_chunks(listing: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Tables of at least `rows` rows; the last one may be shorter, and there is always one."""
    batches: list[pa.RecordBatch] = []
    count = 0
    for batch in listing:
        batches.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(batches, LISTING)
            batches, count = [], 0
    yield pa.Table.from_batches(batches, LISTING)


_DIGEST_BYTES = 16
# The listed object, and the state of its bookmark so far; NULLs: it has none.
CHANGED = pa.schema([*LISTING, ("state", pa.string()), ("earlier", pa.bool_()), ("generation", pa.int64())])


@dataclass(frozen=True)
class Difference:
    """Ranges of keys whose listing has changed since it was staged."""

    changed: pa.Table  # new or changed objects: CHANGED
    gone: pa.Table  # bookmarks whose objects are no longer listed
    blocks: tuple[Block, ...]  # valid once the rows are staged


def diff_listing(
    listing: Iterable[pa.RecordBatch], ledger: Ledger, after: str | None = None, tuning: Tuning = DEFAULT
) -> Iterator[Difference]:
    """In the order of keys. With `after` the listing holds only keys after every bookmark."""
    walk = _MergeWalk(ledger, after, tuning)
    carry: pa.Table = pa.Table.from_batches([], LISTING)
    for table in listing_chunks(listing, tuning.chunk_rows):
        chunk = ListingChunk(pa.concat_tables([carry, table]))
        done = walk.compare(chunk, last=False)
        if walk.suspects.is_full:
            yield from _diff_suspects(walk.take_suspects(), ledger)
        carry = chunk.rows.slice(done)
    walk.compare(ListingChunk(carry), last=True)
    yield from _diff_suspects(walk.take_suspects(), ledger)


@dataclass
class _Suspects:
    """Ranges with another digest: their keys, their listed rows, and their new blocks."""

    tuning: Tuning
    ranges: list[KeyRange] = field(default_factory=list)
    listed: list[pa.Table] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    rows: int = 0
    _chunk_rows: list[tuple[int, int]] = field(default_factory=list)  # in the current chunk

    def add(self, keys: KeyRange, low: int, high: int) -> None:
        self.ranges.append(keys)
        self.rows += high - low
        self._chunk_rows.append((low, high))

    def copy_rows(self, chunk: ListingChunk) -> None:
        """Copy the rows, so that the chunk can be freed."""
        if self._chunk_rows:
            rows = np.concatenate([np.arange(low, high) for low, high in self._chunk_rows])
            self.listed.append(chunk.rows.take(pa.array(rows)))
            self._chunk_rows = []

    @property
    def is_full(self) -> bool:
        return len(self.ranges) >= self.tuning.lookup_ranges or self.rows >= self.tuning.lookup_rows


class _MergeWalk:
    """Walks along the blocks of the ledger and the rows of the listing, side by side."""

    def __init__(self, ledger: Ledger, after: str | None, tuning: Tuning) -> None:
        self._tuning = tuning
        self._blocks = iter(()) if after is not None else ledger.blocks()
        self._only_new = after is not None
        self._block: Block | None = None  # of the current range; None: before the first block, or among new keys
        self._first = ""  # key of the range
        self._next = next(self._blocks, None)
        self.suspects = _Suspects(tuning)

    def take_suspects(self) -> _Suspects:
        suspects, self.suspects = self.suspects, _Suspects(self._tuning)
        return suspects

    def compare(self, chunk: ListingChunk, *, last: bool) -> int:
        """Compare all ranges that end in this chunk; return the number of rows in them."""
        done = self._compare_ranges(chunk, last=last)
        self.suspects.copy_rows(chunk)
        return done

    def _compare_ranges(self, chunk: ListingChunk, *, last: bool) -> int:
        at = 0
        while self._next:
            end = chunk.find(self._next.first, at, at + (self._block.objects if self._block else 0))
            if end == chunk.count and not last:
                return at  # the range may continue in the next chunk
            self._compare_range(chunk, at, end, self._next.first)
            self._block, self._first = self._next, self._next.first
            self._next, at = next(self._blocks, None), end
        if last:
            self._compare_range(chunk, at, chunk.count, None)
            return chunk.count
        return self._tail(chunk, at)

    def _tail(self, chunk: ListingChunk, at: int) -> int:
        """After the last block new keys may continue for long: compare all but the chunk's last row."""
        end = chunk.count - 1
        if end <= at or (self._block and _has_digest(self._block, chunk.digest(at, chunk.count))):
            return at
        self._compare_range(chunk, at, end, chunk.key(end))
        self._block, self._first = None, chunk.key(end)
        return end

    def _compare_range(self, chunk: ListingChunk, begin: int, end: int, until: str | None) -> None:
        """Compare the keys from `_first` up to `until`."""
        old, digest = self._block, chunk.digest(begin, end)
        if _has_digest(old, digest) if old else begin == end:
            return  # unchanged; or neither bookmarks nor objects
        first = chunk.key(begin) if self._only_new else self._first
        blocks = list(_blocks(chunk, begin, end, old, self._tuning))
        for low, high in _changed_rows(old, blocks, begin, end, self._tuning.part_keys):
            lower = chunk.key(low) if low > begin else first
            self.suspects.add((lower, chunk.key(high) if high < end else until), low, high)
        self.suspects.blocks += blocks


def _blocks(chunk: ListingChunk, begin: int, end: int, old: Block | None, tuning: Tuning) -> Iterator[Block]:
    """The range as one block, or several if it is large. The first key stays: an empty block still covers deleted keys."""
    if old is None and begin == end:
        return
    first = old.first if old else chunk.key(begin)
    step = tuning.block_keys if end - begin >= 2 * tuning.block_keys else max(end - begin, 1)
    for low in range(begin, max(end, begin + 1), step):
        high = min(low + step, end)
        digests = b"".join((chunk.digest(low, high), *chunk.digests(low, high, tuning.part_keys)))
        yield Block(first if low == begin else chunk.key(low), digests, high - low)


def _has_digest(block: Block, digest: bytes) -> bool:
    return block.digest[: len(digest)] == digest


def _changed_rows(
    old: Block | None, blocks: list[Block], begin: int, end: int, part_keys: int
) -> Iterator[tuple[int, int]]:
    """Which rows of a range to compare.

    If the range has as many rows as before, parts with equal digests have equal rows; the changed keys, old and new, are
    between them. The last row of the equal part before is compared too, as the lower bound of the changed keys.
    """
    if old is None or len(blocks) != 1 or len(old.digest) != len(blocks[0].digest):
        yield begin, end
        return
    offsets = range(_DIGEST_BYTES, len(old.digest), _DIGEST_BYTES)
    same = [old.digest[at : at + _DIGEST_BYTES] == blocks[0].digest[at : at + _DIGEST_BYTES] for at in offsets]
    low = begin
    for number, is_same in enumerate(same):
        if is_same:
            low = begin + (number + 1) * part_keys - 1
        elif number + 1 == len(same) or same[number + 1]:
            yield low, min(begin + (number + 1) * part_keys, end)


def diff_keys(versions: Mapping[str, ObjectVersion | None], ledger: Ledger) -> Iterator[Difference]:
    """Of a few keys, by their current versions; None: deleted.

    The digests of their blocks are cleared: they belong to an earlier listing, which may return (undoing a deletion
    restores the same version). The next listing compares these blocks, and makes new digests.
    """
    present = [vars(version) for version in versions.values() if version]
    changed, gone = _compare(pa.Table.from_pylist(present, schema=LISTING), ledger.get(list(versions)))
    keys = [*changed["key"].to_pylist(), *gone["key"].to_pylist()]
    if not keys:
        return
    blocks = [replace(block, digest=b"") for block in ledger.covering(keys)]
    least = min(keys, key=str.encode)
    if not ledger.covering([least]):  # before the first block nothing is compared: it would never be gone
        blocks.append(Block("", b"", 0))
    yield Difference(changed, gone, tuple(blocks))


def _diff_suspects(suspects: _Suspects, ledger: Ledger) -> Iterator[Difference]:
    if not suspects.ranges:
        return
    changed, gone = _compare(pa.concat_tables(suspects.listed), ledger.between(suspects.ranges))
    if suspects.blocks or gone.num_rows:
        yield Difference(changed, gone, tuple(suspects.blocks))


def _compare(rows: pa.Table, bookmarks: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The new or changed rows, and the bookmarks without a row."""
    # For each row its bookmark; NULLs: it has none.
    matches = bookmarks.take(pc.index_in(flat_array(rows["key"]), value_set=flat_array(bookmarks["key"])))
    same = pc.not_equal(matches["state"], "gone")
    for name in ("etag", "size", "modified"):
        same = pc.and_(same, pc.equal(rows[name], matches[name]))
    for name in ("state", "earlier", "generation"):
        rows = rows.append_column(CHANGED.field(name), matches[name])
    listed = pc.is_in(bookmarks["key"], value_set=flat_array(rows["key"]))
    gone = bookmarks.filter(pc.and_(pc.invert(listed), pc.not_equal(bookmarks["state"], "gone")))
    changed = rows.filter(pc.invert(pc.fill_null(same, fill_value=False)))
    return changed, gone
