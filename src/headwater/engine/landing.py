"""A window into every sink of a pipeline: read, transformed, landed stream by stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from headwater.engine.journal import Journal
from headwater.engine.labels import labelled, tag_tables
from headwater.engine.pipeline import OpenPipeline
from headwater.engine.rejects.landing import AttemptRejects
from headwater.engine.result import CycleReport
from headwater.engine.split_cache import cached_splits
from headwater.model.errors import HeadwaterError, is_of_one_stream
from headwater.model.landing import Landing
from headwater.model.position.window import Window
from headwater.model.progress import Intent, PausedStream
from headwater.model.protocols.sink import Attempt, LandsSideBySide, Sink
from headwater.model.protocols.source import DefersParts, IsolatesStreams, Source
from headwater.model.rows import Rows

T = TypeVar("T")

_MAX_NAMES = 5


@dataclass(frozen=True)
class LandedWindow:
    """What came of landing a window."""

    landings: tuple[Landing, ...]
    failed: Mapping[str, HeadwaterError]  # streams that failed on their own, while the others landed

    @property
    def complete(self) -> tuple[Landing, ...]:
        """Those of streams that landed in every sink."""
        return tuple(landing for landing in self.landings if landing.stream not in self.failed)


def land_window(pipeline: OpenPipeline, journal: Journal, report: CycleReport, intent: Intent) -> LandedWindow:
    """Read the intent's window and land it in every sink, then tag the tables where it ends at a label."""
    window, is_first_try = intent.window, intent.run == journal.run
    lander = _Lander(pipeline, journal, report, window, None if is_first_try else intent.landed)
    landed = lander.land(window, journal.note_landings)
    if labelled(window.end).labels:
        journal.note_landings(landed.landings)  # a crash between the tags repeats no landing
        lander.tag()
    return landed


def land_stream(
    pipeline: OpenPipeline, journal: Journal, report: CycleReport, paused: PausedStream, window: Window, *, own: Window
) -> LandedWindow:
    """Land a paused stream. `own` is its part of the window, the rest of which has landed; sinks know the whole (G2)."""
    lander = _Lander(pipeline, journal, report, window, paused.landed)
    return lander.land(own, partial(journal.note_paused_landings, paused))


class _Lander:
    """The sinks of one pipeline, for one try at one window."""

    def __init__(
        self,
        pipeline: OpenPipeline,
        journal: Journal,
        report: CycleReport,
        window: Window,
        earlier: tuple[Landing, ...] | None,
    ) -> None:
        """`earlier`: what an earlier try has landed; sinks are asked about the rest. None: this is the first."""
        self._pipeline, self._report, self._earlier = pipeline, report, earlier
        self._attempt, self._rejects = begin_attempt(pipeline, journal, window)
        self._failures = StreamFailures(pipeline.source, window)
        self._transformed: dict[str, Rows] = {}

    def land(self, window: Window, save: Callable[[tuple[Landing, ...]], None]) -> LandedWindow:
        """Land what `window` brings. `save` receives the landings so far, as long as more may come."""
        pipeline, failures = self._pipeline, self._failures
        landings = self._earlier or ()
        pipeline.faults.reach("read.before")
        sinks = pipeline.sinks()
        with ExitStack() as open_rows:
            streams = open_rows.enter_context(pipeline.source.read(window))
            collected = [replace(stream, rejects=self._rejects) for stream in streams]
            rows = open_rows.enter_context(cached_splits(len(sinks), collected))
            pipeline.faults.reach("read.after")
            left = len(sinks) * len(rows)
            for sink in sinks:
                healthy = [stream for stream in rows if stream.stream not in failures.errors]
                left -= len(rows) - len(healthy)
                for landing in land_streams(sink, healthy, partial(self._land_or_note, sink)):
                    left -= 1
                    if landing is not None:
                        landings = with_landings(landings, landing, *self._rejects.landings())
                        if left:
                            save(landings)
        self._warn_of_unreadable()
        return LandedWindow(landings, failures.errors)

    def tag(self) -> None:
        """Tag the tables with the labels that the window ends at."""
        labels = tag_tables(self._pipeline, self._attempt)
        names = ", ".join(labels.labels)
        self._report.event("labelled", labels=names, tables=len(labels.streams))
        self._report.warn(*(f"label {names}: no tag for {stream}" for stream in labels.left_out))

    def _warn_of_unreadable(self) -> None:
        deferred = sorted(self._rejects.deferred)
        if deferred:
            names = ", ".join(deferred[:_MAX_NAMES]) + (", …" if len(deferred) > _MAX_NAMES else "")
            objects = f"{len(deferred):,} unreadable object{'s' if len(deferred) != 1 else ''}"
            self._report.warn(f"skipped {objects}: {names} (will retry)")

    def _land_or_note(self, sink: Sink, rows: Rows) -> Landing | None:
        return self._failures.noting(rows.stream, partial(self._land, sink, rows))

    def _land(self, sink: Sink, rows: Rows) -> Landing:
        """One stream in one sink."""
        pipeline = self._pipeline
        attempt = replace(self._attempt, stream=rows.stream)
        landing = self._landed_before(sink, rows, attempt)
        if landing is None:
            pipeline.faults.reach("land.before")
            landing = sink.land(attempt, self._transform(rows))
            self._rejects.land(rows.stream)  # again, for a sink that publishes while it reads
            pipeline.faults.reach("land.after")
            self._log_landing(landing)
        return landing

    def _transform(self, rows: Rows) -> Rows:
        """Once per window, for all sinks; not before a sink lands the stream: a transform needs a session."""
        if rows.stream not in self._transformed:
            self._transformed[rows.stream] = self._pipeline.transformed(rows)
        return self._transformed[rows.stream]

    def _landed_before(self, sink: Sink, rows: Rows, attempt: Attempt) -> Landing | None:
        if self._earlier is None:
            return None
        for landing in self._earlier:
            if (landing.sink, landing.stream) == (sink.id, rows.stream):
                return landing
        proven = sink.landed(attempt, rows.stream)
        if proven:
            self._report.event("already landed", sink=sink.id, stream=rows.stream, rows=proven.rows)
        return proven

    def _log_landing(self, landing: Landing) -> None:
        rejected = sum(one.rows for one in self._rejects.landings() if one.stream == landing.stream)
        removed = landing.proof.get("removed")
        self._report.event(
            "landed",
            sink=landing.sink,
            stream=landing.stream,
            rows=landing.rows,
            **({"removed": removed} if removed else {}),
            **({"rejected": rejected} if rejected else {}),
            seconds=f"{landing.seconds:.2f}",
        )


class StreamFailures:
    """Errors of single streams of one window, while the others land. Streams may come from several threads."""

    def __init__(self, source: Source, window: Window) -> None:
        self._isolates = isinstance(source, IsolatesStreams) and source.apart(window, frozenset()) is not None
        self._lock = threading.Lock()
        self.errors: dict[str, HeadwaterError] = {}

    def noting(self, stream: str, work: Callable[[], T]) -> T | None:
        """The work's result; None if it failed with an error that concerns this stream only."""
        try:
            return work()
        except HeadwaterError as error:
            if not (self._isolates and is_of_one_stream(error)):
                raise
            with self._lock:
                self.errors[stream] = error
            return None


def with_landings(landed: tuple[Landing, ...], *more: Landing) -> tuple[Landing, ...]:
    newer = {(landing.sink, landing.stream) for landing in more}
    return (*(old for old in landed if (old.sink, old.stream) not in newer), *more)


def begin_attempt(
    pipeline: OpenPipeline, journal: Journal, window: Window, *, rejects_at_least: int = 0
) -> tuple[Attempt, AttemptRejects]:
    """One try of all sinks at a window, and its rejects: they publish only under the lease, and behind the rejects."""
    attempt = Attempt(
        pipeline=pipeline.name,
        run=journal.run,
        window=window,
        epoch=journal.lease.epoch,
        faults=pipeline.faults,
        ensure_lease=journal.ensure_lease,
        spark=pipeline.spark,
        progress=lambda count: pipeline.log.rows(pipeline.name, count),
    )
    source = pipeline.source
    defer = partial(source.postpone, window, lease=journal.lease) if isinstance(source, DefersParts) else None
    rejects = pipeline.rejects.begin(attempt, defer, rejects_at_least)
    return replace(attempt, rejects=rejects), rejects


def land_streams(sink: Sink, streams: Sequence[Rows], land: Callable[[Rows], T]) -> Iterator[T]:
    """The landings as they come, several at a time where the sink can.

    A stream that fails ends the window when those beside it are done; no other is begun.
    """
    at_once = min(sink.streams_at_once if isinstance(sink, LandsSideBySide) else 1, len(streams))
    if at_once <= 1:
        yield from map(land, streams)
        return
    with ThreadPoolExecutor(at_once) as threads:
        futures = [threads.submit(land, stream) for stream in streams]
        try:
            for done in as_completed(futures):
                yield done.result()
        finally:
            for future in futures:
                future.cancel()
