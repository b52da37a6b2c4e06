"""A listing against the ledger, as a stream: what is new, changed or gone.

Both are ordered by key. The ledger is cut into blocks of a few hundred keys, and keeps a digest of what a listing
showed of each when all of it was staged. A listing that shows the same digest has nothing new there, and none of the
block's bookmarks is read: to find a few changes among ten million objects costs little more than the listing itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.ledger import Block, KeyRange, Ledger
from headwater.sources.objects.container import ObjectVersion
from headwater.sources.objects.slabs import LISTING, Slab, flat, slabs

BLOCK = 1024  # keys; one that has grown to twice as many is cut
PART = 16  # keys with a digest of their own within a block, behind the digest of the whole
SLAB = 1 << 14  # rows of a listing that are looked at together: few enough to stay in a processor's cache
RANGES, ROWS = 256, 20_000  # so many suspects are looked up together
_DIGEST = 16  # bytes
# What was listed, and beside it what the object's bookmark said until now; NULLs: it has none.
CHANGED = pa.schema([*LISTING, ("state", pa.string()), ("earlier", pa.bool_()), ("generation", pa.int64())])


@dataclass(frozen=True)
class Difference:
    """Ranges of keys whose listing is not the one that was staged."""

    changed: pa.Table  # objects that are new or have changed: CHANGED
    gone: pa.Table  # bookmarks whose objects are no longer listed
    blocks: tuple[Block, ...]  # true once the above is staged


def differences(listing: Iterable[pa.RecordBatch], ledger: Ledger, after: str | None = None) -> Iterator[Difference]:
    """In the order of keys. With `after` the listing holds only what lies behind every bookmark."""
    walk = _Walk(ledger, after)
    rest: pa.Table = pa.Table.from_batches([], LISTING)
    for table in slabs(listing, SLAB):
        slab = Slab(pa.concat_tables([rest, table]))
        used = walk.take(slab, last=False)
        if walk.found.are_enough:
            yield from _compared(walk.suspects(), ledger)
        rest = slab.rows.slice(used)
    walk.take(Slab(rest), last=True)
    yield from _compared(walk.suspects(), ledger)


@dataclass
class _Suspects:
    """Ranges whose digest is another: their keys, what was listed of them, and their blocks as they will be."""

    ranges: list[KeyRange] = field(default_factory=list)
    listed: list[pa.Table] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    rows: int = 0
    _places: list[tuple[int, int]] = field(default_factory=list)  # of rows in the slab that is looked at

    def add(self, keys: KeyRange, low: int, high: int) -> None:
        self.ranges.append(keys)
        self.rows += high - low
        self._places.append((low, high))

    def take_from(self, slab: Slab) -> None:
        """Copy their rows, so that the slab can go."""
        if self._places:
            rows = np.concatenate([np.arange(low, high) for low, high in self._places])
            self.listed.append(slab.rows.take(pa.array(rows)))
            self._places = []

    @property
    def are_enough(self) -> bool:
        return len(self.ranges) >= RANGES or self.rows >= ROWS


class _Walk:
    """Goes along the blocks of the ledger and the rows of the listing, side by side."""

    def __init__(self, ledger: Ledger, after: str | None) -> None:
        self._blocks = iter(()) if after is not None else ledger.blocks()
        self._only_new = after is not None
        self._block: Block | None = None  # the range that we are in; None: before the first, or in new ones
        self._first = ""  # where it begins
        self._next = next(self._blocks, None)
        self.found = _Suspects()

    def suspects(self) -> _Suspects:
        found, self.found = self.found, _Suspects()
        return found

    def take(self, slab: Slab, *, last: bool) -> int:
        """Look at all ranges that end in this slab; gives how many rows are done with."""
        used = self._look_at(slab, last=last)
        self.found.take_from(slab)
        return used

    def _look_at(self, slab: Slab, *, last: bool) -> int:
        at = 0
        while self._next:
            end = slab.place(self._next.first, at, at + (self._block.objects if self._block else 0))
            if end == slab.count and not last:
                return at  # the range may go on in the next slab
            self._range(slab, at, end, self._next.first)
            self._block, self._first = self._next, self._next.first
            self._next, at = next(self._blocks, None), end
        if last:
            self._range(slab, at, slab.count, None)
            return slab.count
        return self._tail(slab, at)

    def _tail(self, slab: Slab, at: int) -> int:
        """Behind the last block's beginning new keys may go on for long: all but the slab's last row can be settled."""
        end = slab.count - 1
        if end <= at or (self._block and _is(self._block, slab.digest(at, slab.count))):
            return at
        self._range(slab, at, end, slab.key(end))
        self._block, self._first = None, slab.key(end)
        return end

    def _range(self, slab: Slab, begin: int, end: int, until: str | None) -> None:
        """What was listed between `_first` and `until`."""
        old, digest = self._block, slab.digest(begin, end)
        if _is(old, digest) if old else begin == end:
            return  # as it was; or no block, so no bookmarks, and no objects
        first = slab.key(begin) if self._only_new else self._first
        made = list(_blocks(slab, begin, end, old))
        for low, high in _other_parts(old, made, begin, end):
            lower = slab.key(low) if low > begin else first
            self.found.add((lower, slab.key(high) if high < end else until), low, high)
        self.found.blocks += made


def _blocks(slab: Slab, begin: int, end: int, old: Block | None) -> Iterator[Block]:
    """The range as one block, or cut if it is large. It begins where it did: an empty one still covers what is gone."""
    if old is None and begin == end:
        return
    first = old.first if old else slab.key(begin)
    step = BLOCK if end - begin >= 2 * BLOCK else max(end - begin, 1)
    for low in range(begin, max(end, begin + 1), step):
        high = min(low + step, end)
        digests = b"".join((slab.digest(low, high), *slab.digests(low, high, PART)))
        yield Block(first if low == begin else slab.key(low), digests, high - low)


def _is(block: Block, digest: bytes) -> bool:
    return block.digest[: len(digest)] == digest


def _other_parts(old: Block | None, made: list[Block], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Which rows of a range to compare.

    Where it holds as many rows as before, equal parts hold equal rows. Between two of them lie the keys that the other
    parts hold, and held. The last row of the equal part before is compared too: from there on, whatever is there belongs
    to the other.
    """
    if old is None or len(made) != 1 or len(old.digest) != len(made[0].digest):
        yield begin, end
        return
    places = range(_DIGEST, len(old.digest), _DIGEST)
    same = [old.digest[at : at + _DIGEST] == made[0].digest[at : at + _DIGEST] for at in places]
    low = begin
    for number, is_same in enumerate(same):
        if is_same:
            low = begin + (number + 1) * PART - 1
        elif number + 1 == len(same) or same[number + 1]:
            yield low, min(begin + (number + 1) * PART, end)


def differences_at(versions: Mapping[str, ObjectVersion | None], ledger: Ledger) -> Iterator[Difference]:
    """Of a few keys, by what is there now: None, nothing.

    The digests of their blocks go: they are of an earlier listing, and it may come back as it was (a deletion that is
    undone brings the same version). The next listing compares these blocks, and makes new digests.
    """
    there = [vars(version) for version in versions.values() if version]
    changed, gone = _compare(pa.Table.from_pylist(there, schema=LISTING), ledger.get(list(versions)))
    keys = [*changed["key"].to_pylist(), *gone["key"].to_pylist()]
    if not keys:
        return
    blocks = [replace(block, digest=b"") for block in ledger.covering(keys)]
    least = min(keys, key=str.encode)
    if not ledger.covering([least]):  # before the first block nothing would be compared, so it would never be gone
        blocks.append(Block("", b"", 0))
    yield Difference(changed, gone, tuple(blocks))


def _compared(suspects: _Suspects, ledger: Ledger) -> Iterator[Difference]:
    if not suspects.ranges:
        return
    changed, gone = _compare(pa.concat_tables(suspects.listed), ledger.between(suspects.ranges))
    if suspects.blocks or gone.num_rows:
        yield Difference(changed, gone, tuple(suspects.blocks))


def _compare(rows: pa.Table, known: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What is new or has changed among listed rows, and whose bookmarks have no row."""
    # Beside each object that was listed, what its bookmark says; NULLs where it has none.
    found = known.take(pc.index_in(flat(rows["key"]), value_set=flat(known["key"])))
    same = pc.not_equal(found["state"], "gone")
    for name in ("etag", "size", "modified"):
        same = pc.and_(same, pc.equal(rows[name], found[name]))
    for name in ("state", "earlier", "generation"):
        rows = rows.append_column(CHANGED.field(name), found[name])
    there = pc.is_in(known["key"], value_set=flat(rows["key"]))
    gone = known.filter(pc.and_(pc.invert(there), pc.not_equal(known["state"], "gone")))
    changed = rows.filter(pc.invert(pc.fill_null(same, fill_value=False)))
    return changed, gone
