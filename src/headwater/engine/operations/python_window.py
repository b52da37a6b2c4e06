"""`hw.window`: the user's own Spark code under our mark, which advances only if the block succeeds."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.config.pipeline import DEFAULT_LEASE_SECONDS
from headwater.engine.cycle import abandon_lost
from headwater.engine.journal import Journal, open_journal
from headwater.engine.pipeline import acknowledge
from headwater.model.errors import RunError, UnknownName
from headwater.model.faults import Faults, NoFaults
from headwater.model.position.window import Window
from headwater.model.progress import Intent
from headwater.model.protocols.source import Source
from headwater.model.protocols.store import Store
from headwater.model.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PythonWindow:
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
def python_window(
    source: Source,
    store: Store,
    *,
    name: str,
    owner: str,
    lease_seconds: float = DEFAULT_LEASE_SECONDS,
    faults: Faults | None = None,
) -> Iterator[PythonWindow]:
    """Lease, plan, intend; then the user's block; then advance and acknowledge. An exception leaves the mark (G1)."""
    faults = faults or NoFaults()
    with open_journal(store, name, owner, lease_seconds, faults=faults) as journal:
        abandon_lost(source, journal)
        intent = journal.intent or _next_intent(source, journal)  # G5: an earlier block's window is tried again
        if intent is None:
            yield PythonWindow(None, {})
            return
        with source.read(intent.window) as streams:
            block = PythonWindow(intent.window, {rows.stream: rows for rows in streams})
            yield block
        if not block.was_used():
            raise RunError(
                f"{name}: the block ended without a Spark job on the window's rows; the mark stays at {journal.mark or 'none'}",
                hint="write the DataFrame inside the block, or call window.landed() if another library made the rows durable",
            )
        journal.ensure_lease()
        journal.advance(intent.window, (), why=["by a window block"])
        acknowledge(source, intent.window.end, faults)  # G10: last


def _next_intent(source: Source, journal: Journal) -> Intent | None:
    paused = frozenset(stream.stream for stream in journal.progress.paused if stream.window)
    plan = source.plan(journal.mark, claim=journal.claim, skip=paused)
    if plan.refused:
        raise next(iter(plan.refused.values()))
    return journal.intend(plan.window) if plan.window else None
