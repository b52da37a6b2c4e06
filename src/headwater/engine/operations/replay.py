"""Replay of rejects under today's settings: what lands is removed from the rejects.

Rejects of the source are read anew from it and land in every sink; rejects of a sink are tried in that sink alone,
since the others hold the row. A second replay repairs a crash: sinks recognise it, as they do a window, by the rejects
that land. Those that still fail are not part of its name: fixed later, they are another replay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from headwater.engine.journal import Journal, open_journal
from headwater.engine.landing import begin_attempt
from headwater.engine.pipeline import OpenPipeline
from headwater.engine.rejects.landing import AttemptRejects
from headwater.engine.rejects.table import StoredReject, remove, rows_of_sink_rejects, sink_schema
from headwater.model.errors import InputError, RunError
from headwater.model.landing import Landing
from headwater.model.position.marks import Mark
from headwater.model.position.window import Window
from headwater.model.protocols.source import DefersParts, Replays
from headwater.model.rows import SINK, Reject, Rows


@dataclass(frozen=True)
class Replayed:
    """What came of a replay."""

    tried: int
    landed: int  # rows in the first sink that took any
    left: int  # rejects that still cannot be stored
    queued: int = 0  # objects that the next cycle reads again


def replay(pipeline: OpenPipeline, stored: Sequence[StoredReject]) -> Replayed:
    """Land the rejects, in the order of the sinks; those that still fail stay where they are."""
    with open_journal(pipeline.store, pipeline.name, pipeline.owner, pipeline.lease_seconds) as journal:
        _window(journal, stored)  # raises before anything is read
        done = _Replay(pipeline, journal)
        objects = [one for one in stored if one.reject.part]
        if objects:
            done.bring_again(objects)
        for group in _groups([one for one in stored if not one.reject.part]):
            done.replay(group)
        journal.record("landed", done.landings, f"replayed {len(stored)} reject{'s' if len(stored) != 1 else ''}")
    return Replayed(len(stored), done.rows, done.left, done.queued)


class _Replay:
    def __init__(self, pipeline: OpenPipeline, journal: Journal) -> None:
        self._pipeline, self._journal = pipeline, journal
        self.landings: list[Landing] = []
        self.rows, self.left, self.queued = 0, 0, 0

    def bring_again(self, stored: Sequence[StoredReject]) -> None:
        """Rejects that stand for a whole object: the next window reads it, and rejects it again if it must."""
        source = self._pipeline.source
        if not isinstance(source, DefersParts):
            raise InputError(
                f"{self._pipeline.name}: {source.address} cannot read rejected objects again", hint="rewind instead"
            )
        self.queued += source.bring_again([one.reject for one in stored], self._journal.lease)
        remove(self._pipeline.spark(), stored)

    def replay(self, stored: Sequence[StoredReject]) -> None:
        """Rejects that one landing in each of their sinks can take."""
        pipeline, sink_id = self._pipeline, stored[0].reject.location.get(SINK)
        sinks = [sink for sink in pipeline.sinks() if sink_id in (None, sink.id)]
        if not sinks:
            raise InputError(
                f"{pipeline.name}: the sink {sink_id} that rejected rows no longer exists", hint="rewind instead"
            )
        attempt, rejects = begin_attempt(
            pipeline,
            self._journal,
            _window(self._journal, stored),
            rejects_at_least=len(stored),  # they were accepted once, in many windows
        )
        with _rows(pipeline, sink_id, [one.reject for one in stored], attempt.window.end) as streams:
            collected = [replace(stream, rejects=rejects) for stream in streams]
            failed = _failing(rejects, collected)
            fixed = [one for one in stored if one.reject.id not in failed]
            attempt = replace(attempt, window=_window(self._journal, fixed))
            transformed = sink_id is None and fixed
            rows = [pipeline.transformed(stream) if transformed else stream for stream in collected]
            landings = [
                sink.landed(attempt, stream.stream) or sink.land(attempt, stream)
                for sink in (sinks if fixed else ())
                for stream in rows
            ]
        failed = frozenset(reject.id for reject in rejects.rejects())  # by a sink, too
        remove(pipeline.spark(), [one for one in fixed if one.reject.id not in failed])
        self.landings += (*landings, *rejects.landings())
        self.rows += sum(landing.rows for landing in landings if landing.sink == sinks[0].id)
        self.left += len(failed)


@contextmanager
def _rows(
    pipeline: OpenPipeline, sink_id: str | int | None, rejects: Sequence[Reject], mark: Mark
) -> Iterator[Sequence[Rows]]:
    if sink_id is not None:
        yield [rows_of_sink_rejects(rejects)]
        return
    if not isinstance(pipeline.source, Replays):
        raise InputError(
            f"{pipeline.name}: rejects of {pipeline.source.address} cannot be replayed: the WAL behind them is gone",
            hint="correct the rows in the source, which captures them again; or copy their tables again: "
            f"headwater rewind {pipeline.name} TABLE… --to snapshot --why TEXT",
        )
    with pipeline.source.replay(rejects, mark) as streams:
        yield streams


def _groups(stored: Sequence[StoredReject]) -> list[list[StoredReject]]:
    """Those of the source together; those of a sink by stream and columns."""
    groups: dict[tuple[object, ...], list[StoredReject]] = {}
    for one in stored:
        sink_id = one.reject.location.get(SINK)
        group = () if sink_id is None else (sink_id, one.reject.stream, sink_schema(one.reject))
        groups.setdefault(group, []).append(one)
    return list(groups.values())


def _failing(rejects: AttemptRejects, collected: Sequence[Rows]) -> frozenset[str]:
    """The ids of those that still cannot be stored; they are back in their table before anything lands (G8)."""
    for rows in collected:
        for batches in rows.read_splits():
            for _ in batches:
                pass
    rejects.land()
    return frozenset(reject.id for reject in rejects.rejects())


def _window(journal: Journal, stored: Sequence[StoredReject]) -> Window:
    """Its name holds the runs that rejected them: what fails once more has another name, and is tried anew."""
    journal.require_finished()
    if journal.mark is None:
        raise RunError(f"{journal.pipeline}: there is no mark; the next run reads its rejects again anyway")
    names = sorted(f"{one.reject.id} {one.run}" for one in stored)
    return Window(journal.mark, journal.mark, "replay-" + hashlib.sha256("".join(names).encode()).hexdigest()[:24])
