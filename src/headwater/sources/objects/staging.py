"""What a listing shows anew becomes bookmarks above the mark: the queue from which windows are cut."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.objects_source import ObjectsSource
from headwater.model.ledger import Block, Ledger
from headwater.model.marks import ObjectsMark
from headwater.model.progress import Lease
from headwater.progress.ledger import bookmark_schema
from headwater.sources.objects.comparing import Difference
from headwater.sources.objects.slabs import flat

_WRITTEN_AT_ONCE = 20_000  # bookmarks in one transaction
_RETRIES_AT_ONCE = 10_000
_AT_HAND = 100_000  # bookmarks that are kept in memory for the window that follows
BOOKMARKS = bookmark_schema()


@dataclass
class Numbering:
    """Gives out generations: a new one whenever a window would become larger than the settings allow."""

    generation: int  # the one that is being filled
    objects: int  # at most, in one
    bytes: int
    _held: tuple[int, int] = (0, 0)

    def number(self, sizes: pa.Array) -> pa.Array:
        """The generation of each of the next objects."""
        made = np.empty(len(sizes), np.int64)
        sums = np.cumsum(sizes.to_numpy(zero_copy_only=False))
        begin, before = 0, 0
        while begin < len(made):
            objects, held = self._held
            room = self.bytes - held + before
            end = min(int(np.searchsorted(sums, room, side="right")), begin + self.objects - objects)
            if end <= begin and objects == 0:
                end = begin + 1  # larger than a window may be: it is one by itself
            made[begin:end] = self.generation
            if end > begin:
                self._held = (objects + end - begin, held + int(sums[end - 1]) - before)
                begin, before = end, int(sums[end - 1])
            if begin < len(made):
                self.generation, self._held = self.generation + 1, (0, 0)
        return pa.array(made)


@dataclass(frozen=True)
class Pass:
    """One look at the container, on behalf of a cycle."""

    ledger: Ledger
    lease: Lease
    run: str


@dataclass
class FirstStaged:
    """The bookmarks of the first generation that a pass fills, as far as the ledger would give just these."""

    generation: int
    _pages: list[pa.Table] | None = field(default_factory=list)  # None: ask the ledger

    def see(self, bookmarks: pa.Table) -> None:
        """In the order of their keys."""
        if self._pages is None:
            return
        count = pc.sum(pc.equal(bookmarks["generation"], self.generation)).as_py()
        self._pages += [bookmarks.slice(0, count)] if count else []
        few = sum(page.num_rows for page in self._pages) <= _AT_HAND
        if not few or not pc.all(pc.equal(bookmarks["state"], "read")).as_py():
            self.forget()

    def forget(self) -> None:
        self._pages = None

    def of(self, generation: int) -> Sequence[pa.Table] | None:
        """None: ask the ledger."""
        return self._pages if generation == self.generation else None


def stage(found: Iterable[Difference], look: Pass, mark: ObjectsMark, settings: ObjectsSource) -> FirstStaged:
    """Write down all differences, and failed objects whose time has come."""
    ledger = look.ledger
    numbering = Numbering(max(ledger.newest(), mark.generation) + 1, settings.max_objects, settings.max_bytes)
    landed = max(mark.generation, mark.reached)
    waiting, first = _Waiting(look), FirstStaged(numbering.generation)
    for difference in found:
        for table in bookmarks_of(difference, numbering, landed, settings, look.run):
            waiting.bookmarks.append(table)
            first.see(table)
        waiting.blocks += difference.blocks
        if waiting.count >= _WRITTEN_AT_ONCE:
            waiting.write()
    waiting.write()  # before the ledger is asked: what has changed or is gone meanwhile is no longer due
    due = ledger.due(dt.datetime.now(dt.UTC), _RETRIES_AT_ONCE)
    if due.num_rows:
        waiting.bookmarks.append(_again(due, numbering, look.run))
        first.forget()
    waiting.write()
    return first


@dataclass
class _Waiting:
    """What the next transaction writes."""

    look: Pass
    bookmarks: list[pa.Table] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(int(table.num_rows) for table in self.bookmarks) + len(self.blocks)

    def write(self) -> None:
        if self.bookmarks or self.blocks:
            staged = pa.concat_tables(self.bookmarks) if self.bookmarks else pa.Table.from_batches([], BOOKMARKS)
            self.look.ledger.stage(self.look.lease, staged, self.blocks)
            self.bookmarks, self.blocks = [], []


def bookmarks_of(
    difference: Difference, numbering: Numbering, landed: int, settings: ObjectsSource, run: str
) -> Iterator[pa.Table]:
    """The bookmarks that make the ledger agree with a listing."""
    changed = difference.changed
    if changed.num_rows:
        columns = {
            **{name: changed[name] for name in ("key", "etag", "size", "modified")},
            "generation": numbering.number(flat(changed["size"])),
            "earlier": _landed_before(changed, landed),
        }
        yield _table(columns, "read", run)
    gone = difference.gone
    if gone.num_rows:
        before = _landed_before(gone, landed)
        remove = pc.and_(before, pa.scalar(value=settings.deleted == "remove_rows"))
        # Only rows that are there can be removed; otherwise the bookmark just says that its object is gone.
        number = numbering.number(pa.array(np.zeros(gone.num_rows, np.int64)))
        columns = {
            **{name: gone[name] for name in ("key", "etag", "size", "modified")},
            "generation": pc.if_else(remove, number, gone["generation"]),
            "earlier": before,
        }
        yield _table(columns, "gone", run)


def _again(due: pa.Table, numbering: Numbering, run: str) -> pa.Table:
    """Failed objects, to be read once more; how often they were tried stays with them."""
    columns = {name: due[name] for name in ("key", "etag", "size", "modified", "earlier", "tries", "reason")}
    return _table({**columns, "generation": numbering.number(flat(due["size"]))}, "read", run)


def _landed_before(bookmarks: pa.Table, landed: int) -> pa.ChunkedArray:
    """Whether rows of the object are in the sinks: of an earlier version, or of the one that the bookmark knows."""
    is_read = pc.and_(pc.equal(bookmarks["state"], "read"), pc.less_equal(bookmarks["generation"], landed))
    return pc.fill_null(pc.or_kleene(bookmarks["earlier"], is_read), fill_value=False)


def _table(columns: dict[str, pa.ChunkedArray | pa.Array], state: str, run: str) -> pa.Table:
    count = len(columns["key"])
    constant = {"state": state, "tries": 0, "reason": "", "retry_at": None, "run": run}
    for name, value in constant.items():
        if name not in columns:
            kind = BOOKMARKS.field(name).type
            columns[name] = pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)
    return pa.table({name: columns[name] for name in BOOKMARKS.names}, schema=BOOKMARKS)
