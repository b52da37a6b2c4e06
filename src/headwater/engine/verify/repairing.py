"""What differs, read again and landed, with all that a cycle's landings have: lease, fencing, stamp, rejects, history.

Only keys are taken over from the comparison. Their rows are read anew, under the lease and for the mark as it stands then:
what has moved on since is not turned back.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.engine.attempting import attempt_at
from headwater.engine.cycle import run_cycle
from headwater.engine.lease import HeldLease, held_lease
from headwater.engine.parts import Parts
from headwater.engine.verify.digesting import KEY, Digests
from headwater.engine.verify.report import Compared, Repaired
from headwater.model.comparing import Again, Compares
from headwater.model.errors import InputError, LeaseHeld
from headwater.model.landing import Landing
from headwater.model.progress import HistoryEntry, Progress
from headwater.model.rows import Rows
from headwater.model.window import Window
from headwater.sinks.iceberg.sink import IcebergSink
from headwater.sinks.iceberg.taking_away import take_away
from headwater.sinks.tally import Tally

_PAUSE_SECONDS = 0.1
_MOST_KEYS = 5_000_000


@dataclass(frozen=True)
class _Keys:
    """What is to be repaired in one table."""

    table: Compared
    wanted: pa.Table  # to be landed
    extra: pa.Table  # to be removed


def repair(
    parts: Parts, source: Compares, found: Sequence[Compared], wait_seconds: float, *, delete_extra: bool
) -> list[Repaired]:
    """Every table that differs, one after the other. Waits for the lease; a crash leaves whole landings behind, or none."""
    work = [_keys(parts, one, delete_extra=delete_extra) for one in found if not one.is_equal]
    began = time.monotonic()
    with _lease(parts, wait_seconds) as (lease, progress):
        repairing = _Repair(parts, source, lease, progress)
        done = [repairing.table(one) for one in work]
        entry = HistoryEntry(
            kind="repaired",
            run=repairing.run,
            at=dt.datetime.now(dt.UTC),
            who=parts.owner,
            epoch=lease.lease.epoch,
            start=str(progress.mark),
            end=str(progress.mark),
            why="; ".join(_why(one.table) for one in work),
            rows=sum(one.landed for one in done),
            rejected=sum(landing.rows for landing in repairing.rejected),
            seconds=round(time.monotonic() - began, 3),
            sinks=tuple({"sink": x.sink, "rows": x.rows, "seconds": round(x.seconds, 3)} for x in repairing.landings),
        )
        parts.store.swap(lease.lease, progress, progress, entry)
    return done


class _Repair:
    def __init__(self, parts: Parts, source: Compares, lease: HeldLease, progress: Progress) -> None:
        self._parts, self._source, self._lease, self._progress = parts, source, lease, progress
        self._sinks = {sink.label: sink for sink in parts.sinks() if isinstance(sink, IcebergSink)}
        self.run = uuid.uuid4().hex[:12]
        self.landings: list[Landing] = []
        self.rejected: list[Landing] = []

    def table(self, keys: _Keys) -> Repaired:
        mark, table = self._progress.mark, keys.table
        assert mark is not None  # noqa: S101 - the lease came with one
        asked = pa.concat_tables([keys.wanted, keys.extra]).select(list(table.key))
        if not asked.num_rows:
            return Repaired(table.sink, table.stream, 0, 0, 0)
        with self._source.again(mark, {table.stream: asked}) as found:
            return self._landed(keys, found[0]) if found else Repaired(table.sink, table.stream, 0, 0, asked.num_rows)

    def _landed(self, keys: _Keys, again: Again) -> Repaired:
        table, parts = keys.table, self._parts
        sink = self._sinks[table.sink]
        # What a window promises of its keys (upsert: append) is not true of these.
        settings = sink.settings.model_copy(update={"upsert": "auto"})
        patient = IcebergSink(settings, sink.label)
        attempt = attempt_at(parts, self._lease, self.run, self._window(keys, "rows"))
        rows = parts.transformed(parts.rejects.tray.watching(again.rows))
        there = self._keys_of(rows, table)
        landing = None
        if len(there):
            parts.faults.reach("land.before")
            landing = patient.land(attempt, rows)
            parts.rejects.settle()
            parts.faults.reach("land.after")
            self._note(landing)
        removed = self._removed(keys, again, patient)
        # A key that is not there has gone since, or comes with a window; unless the transform made it of another one.
        unfound = int((~np.isin(keys.wanted.column(KEY[0]).to_numpy(), there)).sum()) if parts.transform else 0
        return Repaired(table.sink, table.stream, landing.rows if landing else 0, removed, unfound)

    def _removed(self, keys: _Keys, again: Again, sink: IcebergSink) -> int:
        """Of the rows that only the table had, those that the source really does not have."""
        if again.absent is None or not keys.extra.num_rows:
            return 0
        names = list(keys.table.key)
        gone = keys.extra.select(names).join(again.absent, keys=names, join_type="left semi")
        if not gone.num_rows:
            return 0
        attempt = attempt_at(self._parts, self._lease, self.run, self._window(keys, "extra"))
        landing = take_away(sink, attempt, keys.table.stream, gone)
        self._note(landing)
        return int(landing.proof.get("removed") or 0)

    def _keys_of(self, rows: Rows, table: Compared) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """The keys that will land, by their hashes. There are few: reading them twice costs little."""
        key = table.found.missing.schema
        schema = pa.schema([key.field(name) for name in table.key])
        digests = Digests(table.stream, schema, table.key)
        return digests.keys(rows, self._parts.spark, Tally(lambda _: None))

    def _note(self, landing: Landing) -> None:
        fields = {"sink": landing.sink, "stream": landing.stream, "rows": landing.rows}
        self._parts.log.event(self._parts.name, "repaired", run=self.run, **fields)
        self.landings.append(landing)
        self.rejected += self._parts.rejects.landings()

    def _window(self, keys: _Keys, what: str) -> Window:
        """Its name holds the snapshot that was compared: a second try at the same repair has the same, another never."""
        mark, table = self._progress.mark, keys.table
        assert mark is not None  # noqa: S101 - as above
        hashes = pa.concat_tables([keys.wanted, keys.extra]).column(KEY[0]).to_numpy()
        name = f"{what} {table.snapshot} {hashlib.sha256(np.sort(hashes).tobytes()).hexdigest()}"
        return Window(mark, mark, "repair-" + hashlib.sha256(name.encode()).hexdigest()[:24])


def _keys(parts: Parts, table: Compared, *, delete_extra: bool) -> _Keys:
    if not table.key:
        raise InputError(
            f"{parts.name}: rows of {table.stream} have no key to be read again by",
            hint="name one in the source's settings (key:), or rewind the pipeline",
        )
    found, none = table.found, table.found.extra.slice(0, 0)
    wanted, extra = pa.concat_tables([found.missing, found.different]), none
    if table.follows_deletes:
        wanted = pa.concat_tables([wanted, found.extra])  # the source says itself that they are gone
    elif delete_extra:
        extra = _removable(parts, table)
    if wanted.num_rows + extra.num_rows > _MOST_KEYS:
        raise InputError(
            f"{parts.name}: {wanted.num_rows + extra.num_rows:,} rows of {table.stream} differ, too many to read one by one",
            hint=f"read everything again: headwater rewind {parts.name} --to start",
        )
    return _Keys(table, wanted, extra)


def _removable(parts: Parts, table: Compared) -> pa.Table:
    extra = table.found.extra
    if extra.num_rows and parts.transform:
        raise InputError(
            f"{parts.name}: with a transform, rows that only the table has cannot be looked up at the source again",
            hint="repair without --delete-extra, and remove them by hand",
        )
    if extra.num_rows and table.is_bag:
        raise InputError(
            f"{parts.name}: {table.table} is appended to, and keeps earlier versions of rows",
            hint="repair without --delete-extra",
        )
    return extra


@contextmanager
def _lease(parts: Parts, wait_seconds: float) -> Iterator[tuple[HeldLease, Progress]]:
    """The lease, with no window unfinished."""
    deadline = time.monotonic() + wait_seconds
    while True:
        with ExitStack() as held:
            try:
                if parts.store.load(parts.name).intent:
                    _finish(parts)
                lease = held.enter_context(held_lease(parts.store, parts.name, parts.owner, parts.lease_seconds))
            except LeaseHeld:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
                continue
            progress = parts.store.load(parts.name)
            if progress.intent is None:
                yield lease, progress
                return


def _finish(parts: Parts) -> None:
    result = run_cycle(parts)
    if result.error:
        raise result.error


def _why(table: Compared) -> str:
    counts = ", ".join(f"{count} {kind}" for kind, count in table.counts.items() if count)
    return f"verify of {table.table}: {counts}"
