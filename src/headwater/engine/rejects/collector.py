"""The rejects of a window: collected while its splits are read, landed before the rows they stood among are published.

A worker's rejects come back with its task's result, in an accumulator: those of a task that failed or ran twice are
not counted. A crash leaves both or neither: if the rows are there, their rejects are. The table has one row per
reject, by its id; to land the same one again changes nothing.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.model.errors import TooManyRejects
from headwater.model.landing import Landing
from headwater.model.protocols.sink import Attempt, Sink
from headwater.model.rows import BY_SINK, COPY, SINK, OnReject, Reject, Rows, Split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

# A worker's rejects come back with its task's result, in an accumulator: those of a task that failed or ran
# twice are not counted, and all of them are here before the job is over. So they can land before the rows they
# stood among are published. `max_rejects` limits them per window and stream, so they fit into memory.

_Found = tuple[str, int, Reject]  # the window's id, the number of the split, and its reject


class RejectCollector:
    """One per pipeline. Splits that carry it to a worker take a `_WorkerCollector` with them."""

    def __init__(self, limit: int, spark: Callable[[], SparkSession]) -> None:
        self.limit, self._spark = limit, spark
        self._lock = threading.Lock()
        self._window = ""
        self._found: dict[tuple[int, str], Reject] = {}  # by the split and the reject's id
        self._counts: Counter[str] = Counter()  # by stream, of those collected in this process
        self._from_workers: tuple[SparkSession, Accumulator[list[_Found]]] | None = None

    def begin(self, window: str) -> None:
        """Empty, for the rejects of this window; what tasks of another one still send is ignored."""
        with self._lock:
            self._window, self._found, self._counts = window, {}, Counter()
            if self._from_workers:
                self._from_workers[1].value = []

    def add(self, split: int, reject: Reject) -> None:
        with self._lock:
            self._counts[reject.stream] += (split, reject.id) not in self._found
            self._found[split, reject.id] = reject
            count = self._counts[reject.stream]
        if count > self.limit:
            raise too_many(self.limit, reject)

    def rejects(self) -> Sequence[Reject]:
        """All rejects of this window so far, each once, however many sinks have read it."""
        with self._lock:
            if self._from_workers:
                sent = [(split, one) for window, split, one in self._from_workers[1].value if window == self._window]
                self._found.update({(split, reject.id): reject for split, reject in sent})
            return numbered_copies(self._found, self._window)

    def check(self, stream: str | None = None) -> None:
        """Raise TooManyRejects where a stream, this one if it is named, has more of them than `max_rejects`."""
        found = [reject for reject in self.rejects() if stream in (None, reject.stream)]
        counts = Counter(reject.stream for reject in found)
        for reject in found:
            if counts[reject.stream] > self.limit:
                raise too_many(self.limit, reject)

    def for_sinks(self) -> SinkRejects:
        return SinkRejects(self)

    def collecting(self, rows: Rows) -> Rows:
        """The same rows; their splits reject into this collector."""
        if rows.splits is None:
            return rows
        splits = tuple(_CollectingSplit(split, number, self) for number, split in enumerate(rows.splits))
        return replace(rows, splits=splits)

    def __reduce__(self) -> tuple[Any, ...]:
        return _WorkerCollector, (self._window, self.limit, self._accumulator())

    def _accumulator(self) -> Accumulator[list[_Found]]:
        spark = self._spark()
        if self._from_workers is None or self._from_workers[0] is not spark:
            self._from_workers = (spark, spark.sparkContext.accumulator([], _lists()))
        return self._from_workers[1]


class _WorkerCollector:
    """The collector as a task sees it."""

    def __init__(self, window: str, limit: int, accumulator: Accumulator[list[_Found]]) -> None:
        self._window, self._limit, self._accumulator = window, limit, accumulator
        self._count = 0

    def add(self, split: int, reject: Reject) -> None:
        self._accumulator.add([(self._window, split, reject)])
        self._count += 1
        if self._count > self._limit:
            raise too_many(self._limit, reject)


@dataclass(frozen=True)
class SinkRejects:
    """What sinks call. (The collector's own method, sent to a worker, would look for its attributes there.)"""

    collector: RejectCollector | _WorkerCollector

    def __call__(self, part: int, reject: Reject) -> None:
        self.collector.add(part, reject)


@dataclass(frozen=True)
class _CollectingSplit:
    """A split whose rejects go to a collector."""

    split: Split
    number: int  # among the window's splits
    collector: RejectCollector | _WorkerCollector

    @property
    def rows(self) -> int | None:
        return self.split.rows

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        return self.split.read(on_reject or partial(self.collector.add, self.number))


def numbered_copies(found: Mapping[tuple[int, str], Reject], window: str) -> list[Reject]:
    """One reject per row. Rows that nothing but a count of copies tells apart are counted on through all splits:
    so they have the same ids however the window is cut, and others than their like in another window.
    """
    rejects = {one.id: one for one in found.values() if COPY not in one.place or "window" in one.place}
    copies: Counter[str] = Counter()
    for (_, id_), one in sorted(found.items(), key=lambda item: item[0]):
        if id_ not in rejects:
            alike = replace(one, place={name: value for name, value in one.place.items() if name != COPY})
            copies[alike.id] += 1
            apart = replace(alike, place={**alike.place, "window": window, COPY: copies[alike.id]})
            rejects[apart.id] = apart
    return list(rejects.values())


def too_many(limit: int, reject: Reject) -> TooManyRejects:
    """G8 has a limit: a stream that is mostly rejects is a mistake in the settings, not in the rows."""
    place = ", ".join(f"{name} {value}" for name, value in reject.place.items())
    return TooManyRejects(
        f"{reject.stream}: more than {limit} row{'s' if limit != 1 else ''} of this window cannot be kept exactly, "
        f"among them {place}: {reject.reason}",
        hint="correct the settings (format, schema) or the source; raise max_rejects: to land the others",
    )


def _lists() -> Any:
    """Spark asks for a way to add; made here because an idle poll must not import Spark."""
    from pyspark.accumulators import AccumulatorParam

    class Lists(AccumulatorParam[list[_Found]]):
        def zero(self, value: list[_Found]) -> list[_Found]:  # noqa: ARG002 - Spark's signature
            return []

        def addInPlace(self, value1: list[_Found], value2: list[_Found]) -> list[_Found]:  # noqa: N802 - Spark's name
            value1.extend(value2)
            return value1

    return Lists()


Defer = Callable[[Sequence[Reject]], None]


class Rejects:
    """The rejects of one pipeline's windows."""

    def __init__(self, open_sink: Callable[[], Sink], limit: int, spark: Callable[[], SparkSession]) -> None:
        self.collector = RejectCollector(limit, spark)
        self._open_sink = open_sink  # of their table, when the first is rejected
        self._sink: Sink | None = None
        self._attempt: Attempt | None = None
        self._defer: Defer | None = None
        self._deferred: frozenset[str] = frozenset()
        self._landed: dict[str, tuple[frozenset[str], Landing]] = {}  # by stream
        self._settling = threading.Lock()  # streams that land side by side settle together

    def begin(self, attempt: Attempt, defer: Defer | None = None) -> None:
        """A new window, or another try at one. `defer` receives the parts of it that bring no row at all."""
        self._attempt, self._defer = attempt, defer
        self._deferred = frozenset()
        self.collector.begin(attempt.window.id)
        self._landed.clear()

    def settle(self, stream: str | None = None) -> None:
        """Land the rejects so far, of one stream or of all. Called before any of its rows is published."""
        with self._settling:
            self._settle(stream)

    def _settle(self, only: str | None) -> None:
        self.collector.check(only)
        everything = [reject for reject in self.collector.rejects() if only in (None, reject.stream)]
        for stream, found in _by_stream([reject for reject in everything if not reject.again]).items():
            ids = frozenset(reject.id for reject in found)
            if stream not in self._landed or self._landed[stream][0] != ids:
                self._landed[stream] = (ids, self._land(stream, found))
        # Afterwards: a part that is deferred is not read again by a retry, and its reject would be missed.
        self._settle_parts([reject for reject in everything if reject.part])

    def _settle_parts(self, parts: Sequence[Reject]) -> None:
        names = frozenset(reject.part for reject in parts)
        if names != self._deferred and self._defer:
            self._defer(parts)
            self._deferred = names

    @property
    def deferred(self) -> frozenset[str]:
        """The parts of the window that bring no row to it."""
        return self._deferred

    def landings(self) -> Sequence[Landing]:
        """Of the window so far, one per stream that had rejects."""
        return [landing for _, landing in self._landed.values()]

    def close(self) -> None:
        if self._sink:
            self._sink.close()

    def _land(self, stream: str, rejects: Sequence[Reject]) -> Landing:
        from headwater.engine.rejects.table import reject_rows

        attempt = self._attempt
        if attempt is None:
            raise RuntimeError("rejects of no window")
        self._sink = self._sink or self._open_sink()
        part = hashlib.sha256("".join(sorted(reject.id for reject in rejects)).encode()).hexdigest()[:24]
        own = replace(attempt, window=replace(attempt.window, part=part), progress=lambda _: None)
        landing = self._sink.land(own, reject_rows(stream, rejects, attempt))
        by_sink = Counter(str(reject.place[SINK]) for reject in rejects if SINK in reject.place)
        return replace(landing, window=attempt.window.id, proof={**landing.proof, BY_SINK: dict(by_sink)})


def _by_stream(rejects: Sequence[Reject]) -> dict[str, list[Reject]]:
    found: dict[str, list[Reject]] = {}
    for reject in rejects:
        found.setdefault(reject.stream, []).append(reject)
    return found
