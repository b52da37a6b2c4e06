"""A user's own Spark code under our mark: kept only if the block succeeds."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.engine.abandoning import abandon, why_abandoned
from headwater.engine.lease import held_lease
from headwater.engine.planning import next_window
from headwater.model.errors import RunError, UnknownName
from headwater.model.progress import HistoryEntry, Intent
from headwater.model.rows import Rows
from headwater.model.source import Source
from headwater.model.store import Store
from headwater.model.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class WindowBlock:
    """What the user holds inside the block. False when there is nothing to read."""

    def __init__(self, window: Window | None, streams: dict[str, Rows]) -> None:
        self.window = window
        self.streams = streams
        self._groups: list[tuple[SparkSession, str]] = []
        self._vouched = False

    def __bool__(self) -> bool:
        return bool(self.streams)

    def read(self, spark: SparkSession, stream: str | None = None) -> DataFrame:
        """The window's rows, lazily. Raises UnknownName for a stream that has none."""
        if stream is None and len(self.streams) != 1:
            raise UnknownName(
                f"the window has {len(self.streams)} streams: {', '.join(sorted(self.streams)) or 'none'}",
                hint="test `if window:` first, and name the stream: window.read(spark, 'sales.orders')",
            )
        name = stream or next(iter(self.streams))
        if name not in self.streams:
            raise UnknownName(f"no stream {name!r} in this window; it has: {', '.join(sorted(self.streams)) or 'none'}")
        group = f"headwater-{uuid.uuid4().hex[:8]}"
        spark.sparkContext.setJobGroup(group, f"headwater window of {name}")
        self._groups.append((spark, group))
        return self.streams[name].dataframe(spark)

    def landed(self) -> None:
        """Say that the rows are durable where Headwater cannot see a Spark job (another library wrote them)."""
        self._vouched = True

    def was_used(self) -> bool:
        """Whether a Spark job ran after `read`, or the user vouched for it, or there was nothing to read."""
        tracked = (spark.sparkContext.statusTracker().getJobIdsForGroup(group) for spark, group in self._groups)
        return self._vouched or not self.streams or any(tracked)


@contextmanager
def window_block(
    source: Source, store: Store, *, name: str, owner: str, lease_seconds: float = 60.0
) -> Iterator[WindowBlock]:
    """Lease, plan, intend; then the user's block; then advance. An exception leaves the mark where it stood (G1)."""
    with held_lease(store, name, owner, lease_seconds) as lease:
        progress = store.load(name)
        lost = why_abandoned(source, progress.intent) if progress.intent else ""
        if lost:
            progress = abandon(store, lease.lease, progress, run="", who=owner, why=lost)
        if progress.intent is None:
            run = uuid.uuid4().hex[:12]
            waiting = frozenset(one.stream for one in progress.waiting if one.window)
            plan = next_window(source, progress.mark, lease.lease, run, waiting)
            if plan.refused:
                raise next(iter(plan.refused.values()))
            if plan.window is None:
                yield WindowBlock(None, {})
                return
            intent = Intent(run, plan.window, dt.datetime.now(dt.UTC))
            progress = store.swap(lease.lease, progress, progress.intending(intent), None)
        else:
            intent = progress.intent  # G5: what an earlier block began is tried again, over the same window
        with source.read(intent.window) as streams:
            block = WindowBlock(intent.window, {rows.stream: rows for rows in streams})
            yield block
        if not block.was_used():
            raise RunError(
                f"{name}: the block ended without a Spark job on the window's rows; the mark stays at {progress.mark or 'none'}",
                hint="write the DataFrame inside the block, or call window.landed() if another library made the rows durable",
            )
        lease.ensure()
        entry = HistoryEntry(
            kind="landed",
            run=intent.run,
            at=dt.datetime.now(dt.UTC),
            who=owner,
            epoch=lease.lease.epoch,
            start=str(intent.window.start or "the beginning"),
            end=str(intent.window.end),
            why="by a window block",
        )
        store.swap(lease.lease, progress, progress.advanced(intent.window.end), entry)
