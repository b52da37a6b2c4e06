"""Looks at the container, what would come of them, and the next window of the queue."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.objects_source import ObjectsSource
from headwater.model.ledger import Ledger
from headwater.model.marks import ObjectsMark
from headwater.sources.objects.comparing import Difference, differences
from headwater.sources.objects.container import Container


@dataclass(frozen=True)
class NextWindow:
    """A generation of the queue."""

    end: ObjectsMark
    objects: int
    size: int  # in bytes
    pages: Sequence[pa.Table]  # its bookmarks


def found(container: Container, ledger: Ledger, settings: ObjectsSource) -> Iterator[Difference]:
    """What a listing shows that the ledger does not know."""
    after = ledger.last_key() if settings.order == "lexical" else None
    made = differences(container.listing(after), ledger, after)
    return (_without_young(one, container) for one in made) if settings.min_age else made


def _without_young(difference: Difference, container: Container) -> Difference:
    """An object that was just overwritten is not listed, and is not gone: its bookmark stays until it is old enough."""
    if not difference.gone.num_rows:
        return difference
    every = container.of_any_age()
    there = [every.look(key) is not None for key in difference.gone["key"].to_pylist()]
    if not any(there):
        return difference
    # Until then its block is compared by every look: it may be deleted while it is young.
    blocks = tuple(replace(block, digest=b"") for block in difference.blocks)
    return Difference(difference.changed, difference.gone.filter([not one for one in there]), blocks)


def would_stage(looked: Iterable[Difference], ledger: Ledger, settings: ObjectsSource) -> tuple[int, int, int]:
    """How many objects a look would queue, their bytes, and how many of them are new."""
    count, size, new = 0, 0, 0
    for difference in looked:
        new += difference.changed["state"].null_count
        count += difference.changed.num_rows + (difference.gone.num_rows if settings.deleted == "remove_rows" else 0)
        size += pc.sum(difference.changed["size"]).as_py() or 0
    due = ledger.due(dt.datetime.now(dt.UTC), settings.max_objects)
    return count + due.num_rows, size + (pc.sum(due["size"]).as_py() or 0), new


def next_window(
    pages: Sequence[pa.Table], mark: ObjectsMark, generation: int, container: Container, settings: ObjectsSource
) -> NextWindow | None:
    """The window of one generation, by its bookmarks; None where nothing of it is left (its objects have changed since)."""
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
    # Events say their key, also where somebody wrote their columns.
    known = settings.schema is not None and settings.format != "debezium"
    columns = mark.columns if known else _columns_after(mark, read, settings, container)
    end = replace(mark, generation=generation, count=max(count, 0), columns=columns)
    return NextWindow(end, queued.num_rows, pc.sum(read["size"]).as_py() or 0, pages)


def _columns_after(
    mark: ObjectsMark, read: pa.Table, settings: ObjectsSource, container: Container
) -> Mapping[str, tuple[int, str]]:
    from headwater.sources.objects.found_columns import columns_after  # noqa: PLC0415 - parsers; many poll idly

    return columns_after(mark.columns, [read], settings, container)
