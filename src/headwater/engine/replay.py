"""Rejects tried again, under today's settings: what lands now is no reject any more.

What the source set aside is read anew from it and lands in every sink; what a sink set aside is tried in that sink alone,
since the others hold it. A crash in between is repaired by a second replay: sinks recognise it, as they do a window, by
the rejects that land. Those that still fail have no part in its name: mended later, they are another replay.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from headwater.engine.attempting import attempt_at
from headwater.engine.lease import HeldLease, held_lease
from headwater.engine.parts import Parts
from headwater.engine.reject_rows import rows_of_sink_rejects, sink_schema
from headwater.engine.reject_shelf import KeptReject, take_away
from headwater.engine.rejects import Rejects
from headwater.engine.result import CycleResult
from headwater.model.errors import InputError, RunError
from headwater.model.landing import Landing
from headwater.model.marks import Mark
from headwater.model.progress import Progress
from headwater.model.rejects import SINK, Reject
from headwater.model.rows import Rows, SplitRows
from headwater.model.source import Postpones, Replays
from headwater.model.window import Window


@dataclass(frozen=True)
class Replayed:
    """What came of a replay."""

    tried: int
    landed: int  # rows in the first sink that took any
    left: int  # rejects that still cannot be kept
    queued: int = 0  # parts (objects) that the next cycle reads again


def replay(parts: Parts, kept: Sequence[KeptReject]) -> Replayed:
    """Land the rejects, in the order of the sinks; those that still fail stay where they are."""
    began = time.monotonic()
    with held_lease(parts.store, parts.name, parts.owner, parts.lease_seconds) as lease:
        progress = parts.store.load(parts.name)
        window = _window(progress, kept)
        done = _Replay(parts, lease, progress)
        whole = [one for one in kept if one.reject.part]
        if whole:
            done.bring_again(whole)
        for some in _groups([one for one in kept if not one.reject.part]):
            done.replay(some)
        result = CycleResult(parts.name, done.run, "landed", (window,), tuple(done.landings), time.monotonic() - began)
        why = f"replayed {len(kept)} reject{'s' if len(kept) != 1 else ''}"
        parts.store.swap(lease.lease, progress, progress, result.entry(parts.owner, lease.lease.epoch, why=why))
    return Replayed(len(kept), done.rows, done.left, done.queued)


class _Replay:
    def __init__(self, parts: Parts, lease: HeldLease, progress: Progress) -> None:
        self._parts, self._lease, self._progress = parts, lease, progress
        self.run = uuid.uuid4().hex[:12]
        self.landings: list[Landing] = []
        self.rows, self.left, self.queued = 0, 0, 0

    def bring_again(self, kept: Sequence[KeptReject]) -> None:
        """Rejects that stand for a whole part: a window brings it, and sets it aside again if it must."""
        source = self._parts.source
        if not isinstance(source, Postpones):
            raise InputError(f"{self._parts.name}: {source.address} cannot bring parts again", hint="rewind instead")
        self.queued += source.bring_again([one.reject for one in kept], self._lease.lease)
        take_away(self._parts.spark(), kept)

    def replay(self, kept: Sequence[KeptReject]) -> None:
        """Rejects that one landing in each of their sinks can take."""
        parts, label = self._parts, kept[0].reject.place.get(SINK)
        sinks = [sink for sink in parts.sinks() if label in (None, sink.label)]
        if not sinks:
            raise InputError(f"{parts.name}: there is no sink {label}, which set rows aside", hint="rewind instead")
        attempt = attempt_at(parts, self._lease, self.run, _window(self._progress, kept))
        rejects = parts.rejects
        rejects.tray.limit = max(rejects.tray.limit, len(kept))  # they were borne once, in many windows
        with _rows(parts, label, [one.reject for one in kept], attempt.window.end) as streams:
            watched = [rejects.tray.watching(stream) for stream in streams]
            failed = _failing(rejects, watched)
            mended = [one for one in kept if one.reject.id not in failed]
            attempt = replace(attempt, window=_window(self._progress, mended))
            rows = [parts.transformed(stream) if label is None else stream for stream in watched]
            landings = [
                sink.landed(attempt, stream.stream) or sink.land(attempt, stream)
                for sink in (sinks if mended else ())
                for stream in rows
            ]
        failed = frozenset(reject.id for reject in rejects.tray.found())  # by a sink, too
        take_away(parts.spark(), [one for one in mended if one.reject.id not in failed])
        self.landings += (*landings, *rejects.landings())
        self.rows += sum(landing.rows for landing in landings if landing.sink == sinks[0].label)
        self.left += len(failed)


@contextmanager
def _rows(parts: Parts, label: str | int | None, rejects: Sequence[Reject], mark: Mark) -> Iterator[Sequence[Rows]]:
    if label is not None:
        yield [rows_of_sink_rejects(rejects)]
        return
    if not isinstance(parts.source, Replays):
        raise InputError(
            f"{parts.name}: rejects of {parts.source.address} cannot be replayed: the log has gone on since",
            hint="correct the rows in the source, which brings them again; or copy their tables again: "
            f"headwater rewind {parts.name} TABLE… --to snapshot --why TEXT",
        )
    with parts.source.replay(rejects, mark) as streams:
        yield streams


def _groups(kept: Sequence[KeptReject]) -> list[list[KeptReject]]:
    """Those of the source together; those of a sink by stream and columns."""
    groups: dict[tuple[object, ...], list[KeptReject]] = {}
    for one in kept:
        label = one.reject.place.get(SINK)
        group = () if label is None else (label, one.reject.stream, sink_schema(one.reject))
        groups.setdefault(group, []).append(one)
    return list(groups.values())


def _failing(rejects: Rejects, watched: Sequence[Rows]) -> frozenset[str]:
    """The ids of those that still cannot be kept; they are back in their table before anything lands (G8)."""
    for rows in watched:
        for split in rows.splits if isinstance(rows, SplitRows) else ():
            for _ in split.read():
                pass
    rejects.settle()
    return frozenset(reject.id for reject in rejects.tray.found())


def _window(progress: Progress, kept: Sequence[KeptReject]) -> Window:
    """Its name holds the runs that set them aside: what failed once more has another, and is tried anew."""
    if progress.intent:
        raise RunError(
            f"{progress.pipeline}: a window is unfinished ({progress.intent.window})",
            hint="finish it first: headwater run FILE --once",
        )
    if progress.mark is None:
        raise RunError(f"{progress.pipeline}: there is no mark; its rejects are read again by the next run anyway")
    names = sorted(f"{one.reject.id} {one.run}" for one in kept)
    return Window(progress.mark, progress.mark, "replay-" + hashlib.sha256("".join(names).encode()).hexdigest()[:24])
