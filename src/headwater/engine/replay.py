"""Rejects tried again, under today's settings: what lands now is no reject any more.

A crash in between is repaired by a second replay: sinks recognise it, as they do a window, by the rejects that land. Those
that still fail have no part in its name: mended later, they are another replay, not one that is there already.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headwater.engine.attempting import attempt_at
from headwater.engine.lease import held_lease
from headwater.engine.parts import Parts
from headwater.engine.reject_shelf import KeptReject, take_away
from headwater.engine.rejects import Rejects
from headwater.engine.result import CycleResult
from headwater.model.errors import InputError, RunError
from headwater.model.progress import Progress
from headwater.model.rows import Rows, SplitRows
from headwater.model.source import Replays
from headwater.model.window import Window


@dataclass(frozen=True)
class Replayed:
    """What came of a replay."""

    tried: int
    landed: int  # rows in the first sink
    left: int  # rejects that still cannot be kept


def replay(parts: Parts, kept: Sequence[KeptReject]) -> Replayed:
    """Land the rejects in every sink, in the order of the sinks; those that still fail stay where they are."""
    if not isinstance(parts.source, Replays):
        raise InputError(f"{parts.name}: rejects of {parts.source.address} cannot be replayed", hint="rewind instead")
    began = time.monotonic()
    with held_lease(parts.store, parts.name, parts.owner, parts.lease_seconds) as lease:
        progress = parts.store.load(parts.name)
        run = uuid.uuid4().hex[:12]
        attempt = attempt_at(parts, lease, run, _window(progress, kept))
        with parts.source.replay([one.reject for one in kept]) as streams:
            watched = [parts.rejects.tray.watching(stream) for stream in streams]
            failed = _failing(parts.rejects, watched)
            mended = [one for one in kept if one.reject.id not in failed]
            attempt = replace(attempt, window=_window(progress, mended))
            rows = [parts.transformed(stream) for stream in watched]
            landings = [
                sink.landed(attempt, stream.stream) or sink.land(attempt, stream)
                for sink in (parts.sinks() if mended else ())
                for stream in rows
            ]
        take_away(parts.spark(), mended)
        landed = (*landings, *parts.rejects.landings())
        result = CycleResult(parts.name, run, "landed", (attempt.window,), landed, time.monotonic() - began)
        why = f"replayed {len(kept)} reject{'s' if len(kept) != 1 else ''}"
        parts.store.swap(lease.lease, progress, progress, result.entry(parts.owner, lease.lease.epoch, why=why))
    return Replayed(len(kept), result.rows, len(failed))


def _failing(rejects: Rejects, watched: Sequence[Rows]) -> frozenset[str]:
    """The ids of those that still cannot be kept; they are back in their table before anything lands (G8)."""
    for rows in watched:
        for split in rows.splits if isinstance(rows, SplitRows) else ():
            for _ in split.read():
                pass
    rejects.settle()
    return frozenset(reject.id for reject in rejects.tray.found())


def _window(progress: Progress, kept: Sequence[KeptReject]) -> Window:
    if progress.intent:
        raise RunError(
            f"{progress.pipeline}: a window is unfinished ({progress.intent.window})",
            hint="finish it first: headwater run FILE --once",
        )
    if progress.mark is None:
        raise RunError(f"{progress.pipeline}: there is no mark; its rejects are read again by the next run anyway")
    ids = sorted(one.reject.id for one in kept)
    return Window(progress.mark, progress.mark, "replay-" + hashlib.sha256("".join(ids).encode()).hexdigest()[:24])
