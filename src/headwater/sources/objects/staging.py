"""Stages the differences of a listing as bookmarks above the mark: the queue of the next windows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.bookmarks import Block, Ledger
from headwater.model.position.marks import ObjectsMark
from headwater.model.position.stream_state import StreamState
from headwater.model.progress import Lease
from headwater.progress.ledger import bookmark_schema
from headwater.sources.objects.listing_diff import Difference, diff_listing, flat_array
from headwater.sources.objects.tuning import DEFAULT, Tuning
from headwater.storage.container import Container

_MAX_RETRIES = 10_000  # of failed objects at a time
_MAX_CACHED = 100_000  # bookmarks in memory for the next window
BOOKMARKS = bookmark_schema()


@dataclass
class GenerationCounter:
    """Assigns generations: a new one when a window would exceed the limits of the settings."""

    generation: int  # the current one
    max_objects: int  # of one generation
    max_bytes: int
    _filled: tuple[int, int] = (0, 0)  # objects and bytes of the current one

    def assign(self, sizes: pa.Array) -> pa.Array:
        """The generation of each of the next objects."""
        generations = np.empty(len(sizes), np.int64)
        sums = np.cumsum(sizes.to_numpy(zero_copy_only=False))
        begin, before = 0, 0
        while begin < len(generations):
            objects, filled = self._filled
            room = self.max_bytes - filled + before
            end = min(int(np.searchsorted(sums, room, side="right")), begin + self.max_objects - objects)
            if end <= begin and objects == 0:
                end = begin + 1  # larger than the limit: a window of its own
            generations[begin:end] = self.generation
            if end > begin:
                self._filled = (objects + end - begin, filled + int(sums[end - 1]) - before)
                begin, before = end, int(sums[end - 1])
            if begin < len(generations):
                self.generation, self._filled = self.generation + 1, (0, 0)
        return pa.array(generations)


@dataclass(frozen=True)
class StagingRun:
    """The ledger, and the cycle that writes to it."""

    ledger: Ledger
    lease: Lease
    run: str


@dataclass
class FirstGeneration:
    """A cache of the first staged generation, as long as it equals what the ledger would return."""

    generation: int
    _pages: list[pa.Table] | None = field(default_factory=list)  # None: not cached

    def add(self, bookmarks: pa.Table) -> None:
        """In the order of keys."""
        if self._pages is None:
            return
        count = pc.sum(pc.equal(bookmarks["generation"], self.generation)).as_py()
        self._pages += [bookmarks.slice(0, count)] if count else []
        small = sum(page.num_rows for page in self._pages) <= _MAX_CACHED
        if not small or not pc.all(pc.equal(bookmarks["state"], "read")).as_py():
            self.clear()

    def clear(self) -> None:
        self._pages = None

    def pages(self, generation: int) -> Sequence[pa.Table] | None:
        """None: read them from the ledger."""
        return self._pages if generation == self.generation else None


def stage(
    differences: Iterable[Difference],
    staging: StagingRun,
    mark: ObjectsMark,
    settings: ObjectsSourceSettings,
    tuning: Tuning = DEFAULT,
) -> FirstGeneration:
    """Write all differences to the ledger, and failed objects whose retry is due."""
    ledger = staging.ledger
    generations = GenerationCounter(max(ledger.newest(), mark.generation) + 1, settings.max_objects, settings.max_bytes)
    landed = max(mark.generation, mark.reached)
    transaction, first = _Transaction(staging), FirstGeneration(generations.generation)
    for difference in differences:
        for table in bookmarks_of(difference, generations, landed, settings, staging.run):
            transaction.bookmarks.append(table)
            first.add(table)
        transaction.blocks += difference.blocks
        if transaction.count >= tuning.transaction_rows:
            transaction.write()
    transaction.write()  # first: objects that have changed or are gone are no longer due
    due = ledger.due(dt.datetime.now(dt.UTC), _MAX_RETRIES)
    if due.num_rows:
        transaction.bookmarks.append(_retry(due, generations, staging.run))
        first.clear()
    transaction.write()
    return first


@dataclass
class _Transaction:
    """The rows of the next transaction."""

    staging: StagingRun
    bookmarks: list[pa.Table] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(int(table.num_rows) for table in self.bookmarks) + len(self.blocks)

    def write(self) -> None:
        if self.bookmarks or self.blocks:
            staged = pa.concat_tables(self.bookmarks) if self.bookmarks else pa.Table.from_batches([], BOOKMARKS)
            self.staging.ledger.stage(self.staging.lease, staged, self.blocks)
            self.bookmarks, self.blocks = [], []


def bookmarks_of(
    difference: Difference, generations: GenerationCounter, landed: int, settings: ObjectsSourceSettings, run: str
) -> Iterator[pa.Table]:
    """The bookmarks that bring the ledger up to date with a listing."""
    changed = difference.changed
    if changed.num_rows:
        columns = {
            **{name: changed[name] for name in ("key", "etag", "size", "modified")},
            "generation": generations.assign(flat_array(changed["size"])),
            "earlier": _landed_before(changed, landed),
        }
        yield _table(columns, "read", run)
    gone = difference.gone
    if gone.num_rows:
        before = _landed_before(gone, landed)
        remove = pc.and_(before, pa.scalar(value=settings.deleted == "remove_rows"))
        # Only landed rows can be removed; for others the bookmark only records the deletion.
        assigned = generations.assign(pa.array(np.zeros(gone.num_rows, np.int64)))
        columns = {
            **{name: gone[name] for name in ("key", "etag", "size", "modified")},
            "generation": pc.if_else(remove, assigned, gone["generation"]),
            "earlier": before,
        }
        yield _table(columns, "gone", run)


def _retry(due: pa.Table, generations: GenerationCounter, run: str) -> pa.Table:
    """Failed objects to read again, with their number of tries."""
    columns = {name: due[name] for name in ("key", "etag", "size", "modified", "earlier", "tries", "reason")}
    return _table({**columns, "generation": generations.assign(flat_array(due["size"]))}, "read", run)


def _landed_before(bookmarks: pa.Table, landed: int) -> pa.ChunkedArray:
    """True if the sinks have rows of the object: of an earlier version, or of the bookmark's version."""
    is_read = pc.and_(pc.equal(bookmarks["state"], "read"), pc.less_equal(bookmarks["generation"], landed))
    return pc.fill_null(pc.or_kleene(bookmarks["earlier"], is_read), fill_value=False)


def _table(columns: dict[str, pa.ChunkedArray | pa.Array], state: str, run: str) -> pa.Table:
    count = len(columns["key"])
    constant = {"state": state, "tries": 0, "reason": "", "retry_at": None, "run": run}
    for name, value in constant.items():
        if name not in columns:
            type_ = BOOKMARKS.field(name).type
            columns[name] = pa.nulls(count, type_) if value is None else pa.repeat(pa.scalar(value, type_), count)
    return pa.table({name: columns[name] for name in BOOKMARKS.names}, schema=BOOKMARKS)


@dataclass(frozen=True)
class QueuedWindow:
    """A generation of the queue."""

    end: ObjectsMark
    objects: int
    size: int  # in bytes
    pages: Sequence[pa.Table]  # its bookmarks


def find_differences(
    container: Container, ledger: Ledger, settings: ObjectsSourceSettings, tuning: Tuning = DEFAULT
) -> Iterator[Difference]:
    """List the container and compare the listing with the ledger."""
    after = ledger.last_key() if settings.order == "lexical" else None
    differences = diff_listing(container.listing(after), ledger, after, tuning)
    return (_keep_young(difference, container) for difference in differences) if settings.min_age else differences


def _keep_young(difference: Difference, container: Container) -> Difference:
    """An object that was just overwritten is too young to be listed, but not gone: its bookmark stays until then."""
    if not difference.gone.num_rows:
        return difference
    everything = container.without_min_age()
    exists = [everything.stat(key) is not None for key in difference.gone["key"].to_pylist()]
    if not any(exists):
        return difference
    # Until then every listing compares its block: the object may be deleted while it is young.
    blocks = tuple(replace(block, digest=b"") for block in difference.blocks)
    return Difference(difference.changed, difference.gone.filter([not present for present in exists]), blocks)


def count_changes(
    differences: Iterable[Difference], ledger: Ledger, settings: ObjectsSourceSettings
) -> tuple[int, int, int]:
    """How many objects would be staged, their bytes, and how many of them are new."""
    count, size, new = 0, 0, 0
    for difference in differences:
        new += difference.changed["state"].null_count
        count += difference.changed.num_rows + (difference.gone.num_rows if settings.deleted == "remove_rows" else 0)
        size += pc.sum(difference.changed["size"]).as_py() or 0
    due = ledger.due(dt.datetime.now(dt.UTC), settings.max_objects)
    return count + due.num_rows, size + (pc.sum(due["size"]).as_py() or 0), new


def next_window(
    pages: Sequence[pa.Table],
    mark: ObjectsMark,
    generation: int,
    container: Container,
    settings: ObjectsSourceSettings,
    *,
    tuning: Tuning = DEFAULT,
) -> QueuedWindow | None:
    """The window of one generation, by its bookmarks; None if all its objects have changed since."""
    if not pages:
        return None
    queued = pa.concat_tables(pages)
    read = queued.filter(pc.equal(queued["state"], "read"))
    if not read.num_rows and settings.deleted != "remove_rows":
        return None
    new = pc.and_(pc.invert(read["earlier"]), pc.equal(read["tries"], 0))
    if generation <= mark.reached:
        new = pc.and_(new, pa.scalar(value=False))  # counted before the rewind
    count = mark.count + (pc.sum(new).as_py() or 0) - (queued.num_rows - read.num_rows)
    # Events name their key columns even if the settings have a schema.
    declared = settings.schema is not None and settings.format != "debezium"
    state = mark.state if declared else _infer_state(mark.state, read, settings, container, tuning)
    end = replace(mark, generation=generation, count=max(count, 0)).with_state(state)
    return QueuedWindow(end, queued.num_rows, pc.sum(read["size"]).as_py() or 0, pages)


def _infer_state(
    known: StreamState, read: pa.Table, settings: ObjectsSourceSettings, container: Container, tuning: Tuning
) -> StreamState:
    from headwater.sources.objects.schema import infer_state

    return infer_state(known, [read], settings, container, tuning)
