"""The rejects of an attempt, landed in a table of their own before the rows they stood among are published (G8).

A crash leaves both or neither: if the rows are there, their rejects are. The table has one row per reject, by its id;
to land the same one again changes nothing.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.engine.rejects.collector import RejectAccumulator, RejectCollector
from headwater.model.landing import Landing
from headwater.model.protocols.sink import Attempt, Sink
from headwater.model.rows import BY_SINK, SINK, Reject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Defer = Callable[[Sequence[Reject]], None]


class PipelineRejects:
    """What the attempts of a pipeline share: the limit, the sink of the rejects' table, the accumulator."""

    def __init__(self, open_sink: Callable[[], Sink], limit: int, spark: Callable[[], SparkSession]) -> None:
        self._open_sink, self._limit = open_sink, limit
        self._accumulator = RejectAccumulator(spark)
        self._sink: Sink | None = None

    def begin(self, attempt: Attempt, defer: Defer | None, at_least: int) -> AttemptRejects:
        """For one attempt, with room for so many rejects. `defer` receives the parts that bring no row at all."""
        return AttemptRejects(attempt, self.sink, max(self._limit, at_least), self._accumulator, defer)

    def sink(self) -> Sink:
        """Opened when the first reject lands."""
        self._sink = self._sink or self._open_sink()
        return self._sink

    def close(self) -> None:
        if self._sink:
            self._sink.close()


class AttemptRejects(RejectCollector):
    """The rejects of one attempt, and their landings."""

    def __init__(
        self,
        attempt: Attempt,
        sink: Callable[[], Sink],
        limit: int,
        accumulator: RejectAccumulator,
        defer: Defer | None,
    ) -> None:
        super().__init__(limit, attempt.window.id, accumulator)
        self._attempt, self._sink, self._defer = attempt, sink, defer
        self._landed: dict[str, tuple[frozenset[str], Landing]] = {}  # by stream
        self._landing = threading.Lock()  # streams that land side by side take turns
        self.deferred: frozenset[str] = frozenset()  # the parts of the window that bring no row to it

    def land(self, stream: str | None = None) -> None:
        """Land the rejects so far, of one stream or of all. Called before any of its rows is published."""
        with self._landing:
            self.check(stream)
            rejects = self.rejects(stream)
            for name, some in _by_stream([reject for reject in rejects if not reject.again]).items():
                ids = frozenset(reject.id for reject in some)
                if name not in self._landed or self._landed[name][0] != ids:
                    self._landed[name] = (ids, self._land(name, some))
            # Afterwards: a part that is deferred is not read again by a retry, and its reject would be missed.
            self._defer_parts([reject for reject in rejects if reject.part])

    def landings(self) -> Sequence[Landing]:
        """So far, one per stream that had rejects."""
        return [landing for _, landing in self._landed.values()]

    def unread_parts(self) -> frozenset[str]:
        """What replaces the earlier rows of these parts comes later, or never."""
        return frozenset(reject.part for reject in self.rejects() if reject.part)

    def _defer_parts(self, rejects: Sequence[Reject]) -> None:
        parts = frozenset(reject.part for reject in rejects)
        if parts != self.deferred and self._defer:
            self._defer(rejects)
            self.deferred = parts

    def _land(self, stream: str, rejects: Sequence[Reject]) -> Landing:
        from headwater.engine.rejects.table import reject_rows

        attempt = self._attempt
        part = hashlib.sha256("".join(sorted(reject.id for reject in rejects)).encode()).hexdigest()[:24]
        own = replace(attempt, window=replace(attempt.window, part=part), progress=lambda _: None)
        landing = self._sink().land(own, reject_rows(stream, rejects, attempt))
        by_sink = Counter(str(reject.location[SINK]) for reject in rejects if SINK in reject.location)
        return replace(landing, window=attempt.window.id, proof={**landing.proof, BY_SINK: dict(by_sink)})


def _by_stream(rejects: Sequence[Reject]) -> dict[str, list[Reject]]:
    streams: dict[str, list[Reject]] = {}
    for reject in rejects:
        streams.setdefault(reject.stream, []).append(reject)
    return streams
