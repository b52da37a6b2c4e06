"""What differs, read again and landed, with all that a cycle's landings have: lease, fencing, stamp, rejects, history.

Only keys are taken over from the comparison. Their rows are read anew, under the lease and for the mark as it stands then:
what has moved on since is not turned back.
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
from headwater.engine.verify.report import Compared, Repaired
from headwater.model.errors import InputError, LeaseHeld
from headwater.model.landing import Landing
from headwater.model.protocols.lake import LakeSink
from headwater.model.protocols.source import CurrentRows, Verifiable
from headwater.model.rows import Rows
from headwater.model.window import Window
from headwater.sinks.tasks import RowCounter

_PAUSE_SECONDS = 0.1
_MOST_KEYS = 5_000_000


@dataclass(frozen=True)
class _Keys:
    """What is to be repaired in one table."""

    table: Compared
    wanted: pa.Table  # to be landed
    extra: pa.Table  # to be removed


def repair(
    pipeline: OpenPipeline, source: Verifiable, found: Sequence[Compared], wait_seconds: float, *, delete_extra: bool
) -> list[Repaired]:
    """Every table that differs, one after the other. Waits for the lease; a crash leaves whole landings behind, or none."""
    work = [_keys(pipeline, one, delete_extra=delete_extra) for one in found if not one.is_equal]
    with _journal(pipeline, wait_seconds) as journal:
        run = _Repair(pipeline, source, journal)
        done = [run.table(keys) for keys in work]
        why = "; ".join(_why(keys.table) for keys in work)
        journal.record("repaired", [*run.landings, *run.rejected], why)
    return done


class _Repair:
    def __init__(self, pipeline: OpenPipeline, source: Verifiable, journal: Journal) -> None:
        self._pipeline, self._source, self._journal = pipeline, source, journal
        self._sinks = {sink.id: sink for sink in pipeline.sinks() if isinstance(sink, LakeSink)}
        self.landings: list[Landing] = []
        self.rejected: list[Landing] = []

    def table(self, keys: _Keys) -> Repaired:
        mark, table = self._journal.mark, keys.table
        assert mark is not None  # noqa: S101 - the lease came with one
        asked = pa.concat_tables([keys.wanted, keys.extra]).select(list(table.key))
        if not asked.num_rows:
            return Repaired(table.sink, table.stream, 0, 0, 0)
        with self._source.again(mark, {table.stream: asked}) as found:
            return self._landed(keys, found[0]) if found else Repaired(table.sink, table.stream, 0, 0, asked.num_rows)

    def _landed(self, keys: _Keys, again: CurrentRows) -> Repaired:
        table, pipeline = keys.table, self._pipeline
        sink = self._sinks[table.sink]
        attempt, rejects = begin_attempt(pipeline, self._journal, self._window(keys, "rows"))
        rows = pipeline.transformed(replace(again.rows, rejects=rejects))
        there = self._keys_of(rows, table)
        landing = None
        if len(there):
            pipeline.faults.reach("land.before")
            landing = sink.for_repair().land(attempt, rows)
            rejects.land()
            pipeline.faults.reach("land.after")
            self._note(landing)
            self.rejected += rejects.landings()
        removed = self._removed(keys, again, sink)
        # A key that is not there has gone since, or comes with a window; unless the transform made it of another one.
        unfound = int((~np.isin(keys.wanted.column(KEY[0]).to_numpy(), there)).sum()) if pipeline.transform else 0
        return Repaired(table.sink, table.stream, landing.rows if landing else 0, removed, unfound)

    def _removed(self, keys: _Keys, again: CurrentRows, sink: LakeSink) -> int:
        """Of the rows that only the table had, those that the source really does not have."""
        if again.absent is None or not keys.extra.num_rows:
            return 0
        names = list(keys.table.key)
        gone = keys.extra.select(names).join(again.absent, keys=names, join_type="left semi")
        if not gone.num_rows:
            return 0
        attempt, _ = begin_attempt(self._pipeline, self._journal, self._window(keys, "extra"))
        landing = sink.lake(self._pipeline.spark()).remove_keys(attempt, keys.table.stream, gone)
        self._note(landing)
        return int(landing.proof.get("removed") or 0)

    def _keys_of(self, rows: Rows, table: Compared) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """The keys that will land, by their hashes. There are few: reading them twice costs little."""
        key = table.found.missing.schema
        schema = pa.schema([key.field(name) for name in table.key])
        digests = Digests(table.stream, schema, table.key)
        return digests.keys(rows, self._pipeline.spark, RowCounter(lambda _: None))

    def _note(self, landing: Landing) -> None:
        fields = {"sink": landing.sink, "stream": landing.stream, "rows": landing.rows}
        self._pipeline.log.event(self._pipeline.name, "repaired", run=self._journal.run, **fields)
        self.landings.append(landing)

    def _window(self, keys: _Keys, what: str) -> Window:
        """Its name holds the snapshot that was compared: a second try at the same repair has the same, another never."""
        mark, table = self._journal.mark, keys.table
        assert mark is not None  # noqa: S101 - as above
        hashes = pa.concat_tables([keys.wanted, keys.extra]).column(KEY[0]).to_numpy()
        name = f"{what} {table.snapshot} {hashlib.sha256(np.sort(hashes).tobytes()).hexdigest()}"
        return Window(mark, mark, "repair-" + hashlib.sha256(name.encode()).hexdigest()[:24])


def _keys(pipeline: OpenPipeline, table: Compared, *, delete_extra: bool) -> _Keys:
    if not table.key:
        raise InputError(
            f"{pipeline.name}: rows of {table.stream} have no key to be read again by",
            hint="name one in the source's settings (key:), or rewind the pipeline",
        )
    found, none = table.found, table.found.extra.slice(0, 0)
    wanted, extra = pa.concat_tables([found.missing, found.different]), none
    if table.follows_deletes:
        wanted = pa.concat_tables([wanted, found.extra])  # the source says itself that they are gone
    elif delete_extra:
        extra = _removable(pipeline, table)
    if wanted.num_rows + extra.num_rows > _MOST_KEYS:
        raise InputError(
            f"{pipeline.name}: {wanted.num_rows + extra.num_rows:,} rows of {table.stream} differ, too many to read one by one",
            hint=f"read everything again: headwater rewind {pipeline.name} --to start",
        )
    return _Keys(table, wanted, extra)


def _removable(pipeline: OpenPipeline, table: Compared) -> pa.Table:
    extra = table.found.extra
    if extra.num_rows and pipeline.transform:
        raise InputError(
            f"{pipeline.name}: with a transform, rows that only the table has cannot be looked up at the source again",
            hint="repair without --delete-extra, and remove them by hand",
        )
    if extra.num_rows and table.is_bag:
        raise InputError(
            f"{pipeline.name}: {table.table} is appended to, and keeps earlier versions of rows",
            hint="repair without --delete-extra",
        )
    return extra


@contextmanager
def _journal(pipeline: OpenPipeline, wait_seconds: float) -> Iterator[Journal]:
    """The journal, with no window unfinished."""
    deadline = time.monotonic() + wait_seconds
    while True:
        with ExitStack() as held:
            try:
                if pipeline.store.load(pipeline.name).intent:
                    _finish(pipeline)
                journal = held.enter_context(
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


def _why(table: Compared) -> str:
    counts = ", ".join(f"{count} {kind}" for kind, count in table.counts.items() if count)
    return f"verify of {table.table}: {counts}"
