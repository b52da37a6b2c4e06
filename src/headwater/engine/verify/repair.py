"""Repair: reads what differs again and lands it like a cycle: with lease, fencing, stamp, rejects and history.

Only keys come from the comparison. Their rows are read again, under the lease and at the current mark, so a repair never
restores an older state.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headwater.engine.cycle import run_cycle
from headwater.engine.journal import Journal, open_journal
from headwater.engine.landing import begin_attempt
from headwater.engine.pipeline import OpenPipeline
from headwater.engine.verify.digest import KEY, Digests
from headwater.engine.verify.report import ComparedTable, RepairedTable
from headwater.model.errors import InputError, LeaseHeld
from headwater.model.landing import Landing
from headwater.model.position.window import Window
from headwater.model.protocols.lake import LakeSink
from headwater.model.protocols.source import CurrentRows, Verifiable
from headwater.model.rows import Rows
from headwater.sinks.tasks import RowCounter

_PAUSE_SECONDS = 0.1
_MAX_KEYS = 5_000_000


@dataclass(frozen=True)
class _TableRepair:
    """The keys to repair in one table."""

    table: ComparedTable
    upserts: pa.Table  # to be landed
    extra: pa.Table  # to be removed


def repair(
    pipeline: OpenPipeline,
    source: Verifiable,
    tables: Sequence[ComparedTable],
    wait_seconds: float,
    *,
    delete_extra: bool,
) -> list[RepairedTable]:
    """Repair every table that differs, one after the other. Waits for the lease; a crash leaves complete landings, or none."""
    tasks = [_keys(pipeline, table, delete_extra=delete_extra) for table in tables if not table.is_equal]
    with _journal(pipeline, wait_seconds) as journal:
        run = _Repair(pipeline, source, journal)
        repaired = [run.table(task) for task in tasks]
        why = "; ".join(_why(task.table) for task in tasks)
        journal.record("repaired", [*run.landings, *run.rejected], why)
    return repaired


class _Repair:
    def __init__(self, pipeline: OpenPipeline, source: Verifiable, journal: Journal) -> None:
        self._pipeline, self._source, self._journal = pipeline, source, journal
        self._sinks = {sink.id: sink for sink in pipeline.sinks() if isinstance(sink, LakeSink)}
        self.landings: list[Landing] = []
        self.rejected: list[Landing] = []

    def table(self, task: _TableRepair) -> RepairedTable:
        mark, table = self._journal.mark, task.table
        assert mark is not None  # noqa: S101 - the lease came with one
        keys = pa.concat_tables([task.upserts, task.extra]).select(list(table.key))
        if not keys.num_rows:
            return RepairedTable(table.sink, table.stream, 0, 0, 0)
        with self._source.current_rows(mark, {table.stream: keys}) as streams:
            return (
                self._land(task, streams[0])
                if streams
                else RepairedTable(table.sink, table.stream, 0, 0, keys.num_rows)
            )

    def _land(self, task: _TableRepair, current: CurrentRows) -> RepairedTable:
        table, pipeline = task.table, self._pipeline
        sink = self._sinks[table.sink]
        attempt, rejects = begin_attempt(pipeline, self._journal, self._window(task, "rows"))
        rows = pipeline.transformed(replace(current.rows, rejects=rejects))
        landed = self._hash_keys(rows, table)
        landing = None
        if len(landed):
            pipeline.faults.reach("land.before")
            landing = sink.for_repair().land(attempt, rows)
            rejects.land()
            pipeline.faults.reach("land.after")
            self._record(landing)
            self.rejected += rejects.landings()
        removed = self._remove_extra(task, current, sink)
        # A missing key was deleted since, or comes with a window; unless the transform made it from another key.
        unrepaired = int((~np.isin(task.upserts.column(KEY[0]).to_numpy(), landed)).sum()) if pipeline.transform else 0
        return RepairedTable(table.sink, table.stream, landing.rows if landing else 0, removed, unrepaired)

    def _remove_extra(self, task: _TableRepair, current: CurrentRows, sink: LakeSink) -> int:
        """Remove the extra rows whose keys the source still does not have."""
        if current.absent is None or not task.extra.num_rows:
            return 0
        names = list(task.table.key)
        absent = task.extra.select(names).join(current.absent, keys=names, join_type="left semi")
        if not absent.num_rows:
            return 0
        attempt, _ = begin_attempt(self._pipeline, self._journal, self._window(task, "extra"))
        landing = sink.lake(self._pipeline.spark()).remove_keys(attempt, task.table.stream, absent)
        self._record(landing)
        return int(landing.proof.get("removed") or 0)

    def _hash_keys(self, rows: Rows, table: ComparedTable) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """The hashes of the keys that will land. They are few: reading them twice costs little."""
        key = table.differences.missing.schema
        schema = pa.schema([key.field(name) for name in table.key])
        digests = Digests(table.stream, schema, table.key)
        return digests.keys(rows, self._pipeline.spark, RowCounter(lambda _: None))

    def _record(self, landing: Landing) -> None:
        fields = {"sink": landing.sink, "stream": landing.stream, "rows": landing.rows}
        self._pipeline.log.event(self._pipeline.name, "repaired", run=self._journal.run, **fields)
        self.landings.append(landing)

    def _window(self, task: _TableRepair, what: str) -> Window:
        """The id includes the compared snapshot: only a retry of the same repair has the same id."""
        mark, table = self._journal.mark, task.table
        assert mark is not None  # noqa: S101 - as above
        hashes = pa.concat_tables([task.upserts, task.extra]).column(KEY[0]).to_numpy()
        name = f"{what} {table.snapshot} {hashlib.sha256(np.sort(hashes).tobytes()).hexdigest()}"
        return Window(mark, mark, "repair-" + hashlib.sha256(name.encode()).hexdigest()[:24])


def _keys(pipeline: OpenPipeline, table: ComparedTable, *, delete_extra: bool) -> _TableRepair:
    if not table.key:
        raise InputError(
            f"{pipeline.name}: cannot read rows of {table.stream} again: the stream has no key",
            hint="name one in the source's settings (key:), or rewind the pipeline",
        )
    differences, none = table.differences, table.differences.extra.slice(0, 0)
    upserts, extra = pa.concat_tables([differences.missing, differences.different]), none
    if table.follows_deletes:
        upserts = pa.concat_tables([upserts, differences.extra])  # the source itself reports them as deleted
    elif delete_extra:
        extra = _removable(pipeline, table)
    if upserts.num_rows + extra.num_rows > _MAX_KEYS:
        raise InputError(
            f"{pipeline.name}: {upserts.num_rows + extra.num_rows:,} rows of {table.stream} differ, too many to read one by one",
            hint=f"read everything again: headwater rewind {pipeline.name} --to start",
        )
    return _TableRepair(table, upserts, extra)


def _removable(pipeline: OpenPipeline, table: ComparedTable) -> pa.Table:
    extra = table.differences.extra
    if extra.num_rows and pipeline.transform:
        raise InputError(
            f"{pipeline.name}: a transform may change keys, so extra rows cannot be looked up in the source",
            hint="repair without --delete-extra, and delete them by hand",
        )
    if extra.num_rows and table.is_bag:
        raise InputError(
            f"{pipeline.name}: {table.table} has mode append and keeps earlier versions of rows",
            hint="repair without --delete-extra",
        )
    return extra


@contextmanager
def _journal(pipeline: OpenPipeline, wait_seconds: float) -> Iterator[Journal]:
    """The journal, without an unfinished window."""
    deadline = time.monotonic() + wait_seconds
    while True:
        with ExitStack() as stack:
            try:
                if pipeline.store.load(pipeline.name).intent:
                    _finish(pipeline)
                journal = stack.enter_context(
                    open_journal(pipeline.store, pipeline.name, pipeline.owner, pipeline.lease_seconds)
                )
            except LeaseHeld:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
                continue
            if journal.intent is None:
                yield journal
                return


def _finish(pipeline: OpenPipeline) -> None:
    result = run_cycle(pipeline)
    if result.error:
        raise result.error


def _why(table: ComparedTable) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in table.counts.items() if count)
    return f"verify of {table.table}: {counts}"
