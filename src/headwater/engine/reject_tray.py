"""Where splits put what they set aside, whether they are read in this process or by Spark's workers.

A worker's rejects come back with its task's result, in an accumulator: those of a task that failed or ran
twice are not counted, and all of them are here before the job is over. So they can land before the rows they
stood among are published. A pipeline bears `max_rejects` of them in a window of a stream, so they fit into memory.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.model.errors import TooManyRejects
from headwater.model.rejects import COPY, Reject
from headwater.model.rows import RejectingSplit, Rows
from headwater.sources.split_rows import ArrowRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

_Found = tuple[str, int, Reject]  # the window's id, the number of the split, and what was set aside in it


class RejectTray:
    """One per pipeline. Splits that carry it to a worker take a `_WorkersTray` with them."""

    def __init__(self, limit: int, spark: Callable[[], SparkSession]) -> None:
        self.limit, self._spark = limit, spark
        self._lock = threading.Lock()
        self._window = ""
        self._found: dict[tuple[int, str], Reject] = {}  # by the split and the reject's id
        self._counts: Counter[str] = Counter()  # by stream, of those that were set aside in this process
        self._from_workers: tuple[SparkSession, Accumulator[list[_Found]]] | None = None

    def begin(self, window: str) -> None:
        """Empty, for the rejects of this window; what tasks of another one still send is not taken."""
        with self._lock:
            self._window, self._found, self._counts = window, {}, Counter()
            if self._from_workers:
                self._from_workers[1].value = []

    def set_aside(self, split: int, reject: Reject) -> None:
        with self._lock:
            self._counts[reject.stream] += (split, reject.id) not in self._found
            self._found[split, reject.id] = reject
            count = self._counts[reject.stream]
        if count > self.limit:
            raise too_many(self.limit, reject)

    def found(self) -> Sequence[Reject]:
        """Everything set aside in this window so far, each once, however many sinks have read it."""
        with self._lock:
            if self._from_workers:
                sent = [(split, one) for window, split, one in self._from_workers[1].value if window == self._window]
                self._found.update({(split, reject.id): reject for split, reject in sent})
            return told_apart(self._found, self._window)

    def check(self, stream: str | None = None) -> None:
        """Raise TooManyRejects where a stream, this one if it is named, has more of them than the pipeline bears."""
        found = [reject for reject in self.found() if stream in (None, reject.stream)]
        counts = Counter(reject.stream for reject in found)
        for reject in found:
            if counts[reject.stream] > self.limit:
                raise too_many(self.limit, reject)

    def for_sinks(self) -> SinksAside:
        return SinksAside(self)

    def watching(self, rows: Rows) -> Rows:
        """The same rows; what their splits set aside is found here."""
        if not isinstance(rows, ArrowRows) or not any(isinstance(split, RejectingSplit) for split in rows.splits):
            return rows
        splits = tuple(
            _Watched(split, number, self) if isinstance(split, RejectingSplit) else split
            for number, split in enumerate(rows.splits)
        )
        return replace(rows, splits=splits)

    def __reduce__(self) -> tuple[Any, ...]:
        return _WorkersTray, (self._window, self.limit, self._accumulator())

    def _accumulator(self) -> Accumulator[list[_Found]]:
        spark = self._spark()
        if self._from_workers is None or self._from_workers[0] is not spark:
            self._from_workers = (spark, spark.sparkContext.accumulator([], _lists()))
        return self._from_workers[1]


class _WorkersTray:
    """The tray as a task sees it."""

    def __init__(self, window: str, limit: int, accumulator: Accumulator[list[_Found]]) -> None:
        self._window, self._limit, self._accumulator = window, limit, accumulator
        self._count = 0

    def set_aside(self, split: int, reject: Reject) -> None:
        self._accumulator.add([(self._window, split, reject)])
        self._count += 1
        if self._count > self._limit:
            raise too_many(self._limit, reject)


@dataclass(frozen=True)
class SinksAside:
    """What sinks are given. (The tray's own method, sent to a worker, would look for the tray's insides there.)"""

    tray: RejectTray | _WorkersTray

    def __call__(self, part: int, reject: Reject) -> None:
        self.tray.set_aside(part, reject)


@dataclass(frozen=True)
class _Watched:
    """A split whose rejects go to a tray."""

    split: RejectingSplit
    number: int  # among the window's splits
    tray: RejectTray | _WorkersTray

    @property
    def rows(self) -> int | None:
        return self.split.rows

    def read(self) -> Iterator[pa.RecordBatch]:
        return self.split.read_setting_aside(partial(self.tray.set_aside, self.number))


def told_apart(found: Mapping[tuple[int, str], Reject], window: str) -> list[Reject]:
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
        f"{reject.stream}: more than {limit} row{'s' if limit != 1 else ''} of this window cannot be kept, "
        f"among them {place}: {reject.reason}",
        hint="correct the settings (format, schema) or the source; max_rejects: says how many are set aside and gone past",
    )


def _lists() -> Any:
    """Spark asks for a way to add; made here because an idle poll must not import Spark."""
    from pyspark.accumulators import AccumulatorParam  # noqa: PLC0415

    class Lists(AccumulatorParam[list[_Found]]):
        def zero(self, value: list[_Found]) -> list[_Found]:  # noqa: ARG002 - Spark's signature
            return []

        def addInPlace(self, value1: list[_Found], value2: list[_Found]) -> list[_Found]:  # noqa: N802 - Spark's name
            value1.extend(value2)
            return value1

    return Lists()
