"""A window on its way into every sink of a pipeline: read, transformed, landed stream by stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from headwater.engine.attempting import attempt_at, for_stream
from headwater.engine.going_on import OwnFailures
from headwater.engine.kept_splits import kept_for
from headwater.engine.lease import HeldLease
from headwater.engine.parts import Parts
from headwater.engine.side_by_side import side_by_side
from headwater.model.errors import HeadwaterError
from headwater.model.landing import Landing
from headwater.model.rows import Rows
from headwater.model.sink import Attempt, Sink
from headwater.model.window import Window

Landings = tuple[Landing, ...]


class Lander:
    """The sinks of one pipeline, for one cycle."""

    def __init__(self, parts: Parts, lease: HeldLease, run: str) -> None:
        self._parts, self._lease, self._run = parts, lease, run
        self._failures: OwnFailures | None = None

    @property
    def failed(self) -> Mapping[str, HeadwaterError]:
        """Streams that failed by themselves, and why."""
        return self._failures.found if self._failures else {}

    def attempt_at(self, window: Window) -> Attempt:
        self._failures = OwnFailures(self._parts.source, window)
        return attempt_at(self._parts, self._lease, self._run, window)

    def land(
        self,
        attempt: Attempt,
        window: Window,
        known: Landings | None,
        save: Callable[[Landings, int], None],
    ) -> Landings:
        """Land what is read of `window` everywhere; streams that failed by themselves are in `failed`.

        `known` is what has landed by an earlier process, which sinks are asked about too; None: this is the first try.
        `save` is told of every landing, and how many may still come.
        """
        parts, failures = self._parts, self._failures
        assert failures is not None  # noqa: S101 - there is an attempt
        landed = known or ()
        parts.faults.reach("read.before")
        sinks = parts.sinks()
        with ExitStack() as reading:
            streams = reading.enter_context(parts.source.read(window))
            watched = [parts.rejects.tray.watching(stream) for stream in streams]
            kept = reading.enter_context(kept_for(len(sinks), watched))
            made = [failures.noting(rows.stream, partial(parts.transformed, rows)) for rows in kept]
            rows = [one for one in made if one is not None]
            parts.faults.reach("read.after")
            left = len(sinks) * len(rows)
            for sink in sinks:
                going = [one for one in rows if one.stream not in failures.found]
                left -= len(rows) - len(going)
                for landing in side_by_side(sink, going, partial(self._landing, failures, sink, attempt, known)):
                    left -= 1
                    if landing is not None:
                        landed = with_landings(landed, landing, *parts.rejects.landings())
                        save(landed, left)
        return landed

    def _landing(
        self, failures: OwnFailures, sink: Sink, attempt: Attempt, known: Landings | None, stream: Rows
    ) -> Landing | None:
        return failures.noting(stream.stream, partial(self._land, sink, attempt, known, stream))

    def _land(self, sink: Sink, attempt: Attempt, known: Landings | None, stream: Rows) -> Landing:
        """One stream in one sink."""
        parts = self._parts
        own = for_stream(parts, self._lease, attempt, stream.stream)
        landing = None if known is None else self._known(sink, stream, own, known)
        if landing is None:
            parts.faults.reach("land.before")
            landing = sink.land(own, stream)
            parts.rejects.settle(stream.stream)  # again, for a sink that publishes while it reads
            parts.faults.reach("land.after")
            self._tell(landing)
        return landing

    def _known(self, sink: Sink, rows: Rows, attempt: Attempt, known: Sequence[Landing]) -> Landing | None:
        for landing in known:
            if (landing.sink, landing.stream) == (sink.label, rows.stream):
                return landing
        proven = sink.landed(attempt, rows.stream)
        if proven:
            self._log("already landed", sink=sink.label, stream=rows.stream, rows=proven.rows)
        return proven

    def _tell(self, landing: Landing) -> None:
        aside = sum(found.rows for found in self._parts.rejects.landings() if found.stream == landing.stream)
        removed = landing.proof.get("removed")
        self._log(
            "landed",
            sink=landing.sink,
            stream=landing.stream,
            rows=landing.rows,
            **({"removed": removed} if removed else {}),
            **({"rejected": aside} if aside else {}),
            seconds=f"{landing.seconds:.2f}",
        )

    def _log(self, event: str, **fields: object) -> None:
        self._parts.log.event(self._parts.name, event, run=self._run, **fields)


def with_landings(landed: Landings, *more: Landing) -> Landings:
    newer = {(landing.sink, landing.stream) for landing in more}
    return (*(x for x in landed if (x.sink, x.stream) not in newer), *more)
