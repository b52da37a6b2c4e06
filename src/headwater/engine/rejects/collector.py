"""The rejects of an attempt, collected in this process and in Spark's tasks.

Those of a task come back with its result, in an accumulator: a task that failed or ran twice does not count, and all of
them are here before the job is over. `max_rejects` limits them per window and stream, so they fit into memory.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from headwater.model.errors import TooManyRejects
from headwater.model.rows import COPY, Reject

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator, AccumulatorParam
    from pyspark.sql import SparkSession

_Entry = tuple[str, int, Reject]  # the collector, the number of the split, and its reject


class RejectCollector:
    """The rejects of one attempt, each once, however many sinks read it. Sent to a worker, it is a `_TaskRejects`."""

    def __init__(self, limit: int, window: str, accumulator: RejectAccumulator) -> None:
        self._limit, self._window, self._accumulator = limit, window, accumulator
        self._id = accumulator.begin()
        self._lock = threading.Lock()
        self._collected: dict[tuple[int, str], Reject] = {}  # by the split and the reject's id
        self._counts: Counter[str] = Counter()  # by stream, of those collected in this process

    def add(self, split: int, reject: Reject) -> None:
        with self._lock:
            self._counts[reject.stream] += (split, reject.id) not in self._collected
            self._collected[split, reject.id] = reject
            count = self._counts[reject.stream]
        if count > self._limit:
            raise too_many(self._limit, reject)

    def rejects(self, stream: str | None = None) -> Sequence[Reject]:
        """The rejects so far, of one stream or of all."""
        with self._lock:
            self._collected.update(self._accumulator.rejects(self._id))
            collected = numbered_copies(self._collected, self._window)
        return [reject for reject in collected if stream in (None, reject.stream)]

    def check(self, stream: str | None = None) -> None:
        """Raise TooManyRejects where a stream, this one if it is named, has more of them than `max_rejects`."""
        rejects = self.rejects(stream)
        counts = Counter(reject.stream for reject in rejects)
        for reject in rejects:
            if counts[reject.stream] > self._limit:
                raise too_many(self._limit, reject)

    def __reduce__(self) -> tuple[Any, ...]:
        return _TaskRejects, (self._id, self._limit, self._accumulator.of_session())


class _TaskRejects:
    """The collector as a task sees it."""

    def __init__(self, collector: str, limit: int, accumulator: Accumulator[list[_Entry]]) -> None:
        self._collector, self._limit, self._accumulator = collector, limit, accumulator
        self._count = 0

    def add(self, split: int, reject: Reject) -> None:
        self._accumulator.add([(self._collector, split, reject)])
        self._count += 1
        if self._count > self._limit:
            raise too_many(self._limit, reject)


class RejectAccumulator:
    """Rejects on their way from tasks to this process.

    One for all collectors of a pipeline, since Spark keeps an accumulator as long as its session.
    """

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        self._spark = spark
        self._accumulator: tuple[SparkSession, Accumulator[list[_Entry]]] | None = None

    def begin(self) -> str:
        """An id for a new collector. What tasks of an earlier one still send is not its."""
        if self._accumulator:
            self._accumulator[1].value = []
        return uuid.uuid4().hex

    def rejects(self, collector: str) -> Mapping[tuple[int, str], Reject]:
        """By the split and the reject's id: a part that several tasks read sends each of them once."""
        entries = list(self._accumulator[1].value) if self._accumulator else []
        return {(split, reject.id): reject for sender, split, reject in entries if sender == collector}

    def of_session(self) -> Accumulator[list[_Entry]]:
        spark = self._spark()
        if self._accumulator is None or self._accumulator[0] is not spark:
            # Not a subclass of Spark's: an idle poll must not import Spark.
            lists = cast("AccumulatorParam[list[_Entry]]", _Lists())
            self._accumulator = (spark, spark.sparkContext.accumulator([], lists))
        return self._accumulator[1]


class _Lists:
    """How Spark adds the entries of a task to those that are here."""

    def zero(self, value: list[_Entry]) -> list[_Entry]:  # noqa: ARG002 - Spark's signature
        return []

    def addInPlace(self, value1: list[_Entry], value2: list[_Entry]) -> list[_Entry]:  # noqa: N802 - Spark's name
        value1.extend(value2)
        return value1


def numbered_copies(collected: Mapping[tuple[int, str], Reject], window: str) -> list[Reject]:
    """One reject per row. Rows that nothing but a count of copies tells apart are counted on through all splits:
    so they have the same ids however the window is cut, and others than their like in another window.
    """
    rejects = {one.id: one for one in collected.values() if COPY not in one.location or "window" in one.location}
    copies: Counter[str] = Counter()
    for (_, id_), one in sorted(collected.items(), key=lambda item: item[0]):
        if id_ not in rejects:
            alike = replace(one, location={name: value for name, value in one.location.items() if name != COPY})
            copies[alike.id] += 1
            apart = replace(alike, location={**alike.location, "window": window, COPY: copies[alike.id]})
            rejects[apart.id] = apart
    return list(rejects.values())


def too_many(limit: int, reject: Reject) -> TooManyRejects:
    """G8 has a limit: a stream that is mostly rejects is a mistake in the settings, not in the rows."""
    location = ", ".join(f"{name} {value}" for name, value in reject.location.items())
    return TooManyRejects(
        f"{reject.stream}: more than {limit} row{'s' if limit != 1 else ''} of this window cannot be kept exactly, "
        f"among them {location}: {reject.reason}",
        hint="correct the settings (format, schema) or the source; raise max_rejects: to land the others",
    )
