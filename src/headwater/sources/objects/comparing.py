"""A listing against the ledger, as a stream: what is new, changed or gone.

Both are ordered by key. The ledger is cut into blocks of about a thousand keys, and keeps a digest of what a listing
showed of each when all of it was staged. A listing that shows the same digest has nothing new there, and none of the
block's bookmarks is read: to find a few changes among ten million objects costs little more than the listing itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.ledger import Block, Ledger
from headwater.sources.objects.container import LISTING_COLUMNS

BLOCK = 1024  # keys; one that has grown to twice as many is cut
_ROWS_AT_ONCE = 64 * BLOCK
LISTING = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in LISTING_COLUMNS.items()])
# What was listed, and beside it what the object's bookmark said until now; NULLs: it has none.
CHANGED = pa.schema([*LISTING, ("state", pa.string()), ("earlier", pa.bool_()), ("generation", pa.int64())])


@dataclass(frozen=True)
class Difference:
    """One range of keys whose listing is not the one that was staged."""

    changed: pa.Table  # objects that are new or have changed: CHANGED
    gone: pa.Table  # bookmarks whose objects are no longer listed
    blocks: tuple[Block, ...]  # true once the above is staged


def differences(listing: Iterable[pa.RecordBatch], ledger: Ledger, after: str | None = None) -> Iterator[Difference]:
    """In the order of keys. With `after` the listing holds only what lies behind every bookmark."""
    for old, first, end, rows in _ranges(listing, ledger, after):
        digest = _digest(rows)
        if old is not None and old.digest == digest:
            continue
        found = _difference(rows, ledger.between(first, end), old, digest)
        if found.blocks or found.gone.num_rows:
            yield found


def _difference(rows: pa.Table, known: pa.Table, old: Block | None, digest: bytes) -> Difference:
    # Beside each object that was listed, what its bookmark says; NULLs where it has none.
    places = pc.index_in(_flat(rows["key"]), value_set=_flat(known["key"]))
    found = known.take(places)
    same = pc.not_equal(found["state"], "gone")
    for name in ("etag", "size", "modified"):
        same = pc.and_(same, pc.equal(rows[name], found[name]))
    changed = rows
    for name in ("state", "earlier", "generation"):
        changed = changed.append_column(CHANGED.field(name), found[name])
    there = pc.is_in(known["key"], value_set=_flat(rows["key"]))
    is_gone = pc.and_(pc.invert(there), pc.not_equal(known["state"], "gone"))
    return Difference(
        changed.filter(pc.invert(pc.fill_null(same, fill_value=False))),
        known.filter(is_gone),
        tuple(_blocks(rows, old, digest)),
    )


def _blocks(rows: pa.Table, old: Block | None, digest: bytes) -> Iterator[Block]:
    """The range as one block, or cut if it is large. It begins where it did: an empty one still covers what is gone."""
    if not (old or rows.num_rows):
        return
    first = old.first if old else rows["key"][0].as_py()
    if rows.num_rows < 2 * BLOCK:
        yield Block(first, digest, rows.num_rows)
        return
    for begin in range(0, rows.num_rows, BLOCK):
        part = rows.slice(begin, BLOCK)
        yield Block(first if begin == 0 else part["key"][0].as_py(), _digest(part), part.num_rows)


_Range = tuple[Block | None, str, str | None, pa.Table]


def _ranges(listing: Iterable[pa.RecordBatch], ledger: Ledger, after: str | None) -> Iterator[_Range]:
    """The listing cut where blocks begin: the block, its first key, the key where the next one begins, and the rows.

    What lies before the first block belongs to none; what lies behind the last one's first key belongs to the last.
    """
    rows = _Ahead(listing)
    block: Block | None = None
    first = ""
    if after is None:
        for following in ledger.blocks():
            yield block, first, following.first, rows.below(following.first)
            block, first = following, following.first
    while True:  # new keys may go on for long
        part = rows.next(_ROWS_AT_ONCE)
        end = rows.first()
        if after is not None:
            if not part.num_rows:
                return
            first = part["key"][0].as_py()
        yield block, first, end, part
        if end is None:
            return
        block, first = None, end


class _Ahead:
    """The listing, read ahead as far as somebody asks."""

    def __init__(self, listing: Iterable[pa.RecordBatch]) -> None:
        self._listing = iter(listing)
        self._held: pa.Table = LISTING.empty_table()
        self._ended = False

    def below(self, key: str) -> pa.Table:
        """The rows before this key."""
        parts = []
        while True:
            self._fill()
            count = self._place(key)
            parts.append(self._held.slice(0, count))
            self._held = self._held.slice(count)
            if self._held.num_rows or self._ended:
                return pa.concat_tables(parts)

    def next(self, most: int) -> pa.Table:
        """About so many rows."""
        parts, count = [], 0
        while count < most:
            self._fill()
            if not self._held.num_rows:
                break
            part = self._held.slice(0, most - count)
            self._held = self._held.slice(part.num_rows)
            count += part.num_rows
            parts.append(part)
        return pa.concat_tables(parts) if parts else LISTING.empty_table()

    def first(self) -> str | None:
        """The key of the next row; None: there is no more."""
        self._fill()
        return self._held["key"][0].as_py() if self._held.num_rows else None

    def _fill(self) -> None:
        while not self._held.num_rows and not self._ended:
            batch = next(self._listing, None)
            self._ended = batch is None
            if batch is not None:
                self._held = pa.Table.from_batches([batch])

    def _place(self, key: str) -> int:
        """How many rows come before the key, by bisection. Python compares texts as their UTF-8 bytes compare."""
        keys = self._held["key"]
        low, high = 0, len(keys)
        if high and keys[high - 1].as_py() < key:
            return high
        while low < high:
            middle = (low + high) // 2
            if keys[middle].as_py() < key:
                low = middle + 1
            else:
                high = middle
        return low


def _digest(rows: pa.Table) -> bytes:
    """Of keys, etags, sizes and times, the same however the listing was cut into batches."""
    made = hashlib.blake2b(digest_size=16)
    for column in rows.columns:
        array = _flat(column)
        if pa.types.is_string(array.type):
            lengths, content = _text_buffers(array)
            made.update(lengths)
            made.update(content)
        else:
            made.update(array.to_numpy(zero_copy_only=False).tobytes())
    return made.digest()


def _text_buffers(array: pa.Array) -> tuple[bytes, memoryview]:
    _, offsets, content = array.buffers()
    edges = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    held = memoryview(content) if content is not None else memoryview(b"")
    return np.diff(edges).tobytes(), held[int(edges[0]) : int(edges[-1])]


def _flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column
