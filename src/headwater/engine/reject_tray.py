"""Where splits put what they set aside, whether they are read in this process or by Spark's workers.

A worker's rejects come back with its task's result, in an accumulator: those of a task that failed or ran
twice are not counted, and all of them are here before the job is over. So they can land before the rows they
stood among are published. A pipeline bears `max_rejects` of them in a window, so they fit into memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.model.errors import TooManyRejects
from headwater.model.rejects import Reject
from headwater.model.rows import RejectingSplit, Rows
from headwater.sources.split_rows import ArrowRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

_Found = tuple[str, Reject]  # the window's id, and what was set aside in it


class RejectTray:
    """One per pipeline. Splits that carry it to a worker take a `_WorkersTray` with them."""

    def __init__(self, limit: int, spark: Callable[[], SparkSession]) -> None:
        self.limit, self._spark = limit, spark
        self._lock = threading.Lock()
        self._window = ""
        self._found: dict[str, Reject] = {}
        self._from_workers: tuple[SparkSession, Accumulator[list[_Found]]] | None = None

    def begin(self, window: str) -> None:
        """Empty, for the rejects of this window; what tasks of another one still send is not taken."""
        with self._lock:
            self._window, self._found = window, {}
            if self._from_workers:
                self._from_workers[1].value = []

    def set_aside(self, reject: Reject) -> None:
        with self._lock:
            self._found[reject.id] = reject
            count = len(self._found)
        if count > self.limit:
            raise too_many(self.limit, reject)

    def found(self) -> Sequence[Reject]:
        """Everything set aside in this window so far, each once."""
        with self._lock:
            if self._from_workers:
                sent = list(self._from_workers[1].value)
                self._found.update({reject.id: reject for window, reject in sent if window == self._window})
            found = list(self._found.values())
        if len(found) > self.limit:
            raise too_many(self.limit, found[0])
        return found

    def watching(self, rows: Rows) -> Rows:
        """The same rows; what their splits set aside is found here."""
        if not isinstance(rows, ArrowRows) or not any(isinstance(split, RejectingSplit) for split in rows.splits):
            return rows
        splits = (_Watched(split, self) if isinstance(split, RejectingSplit) else split for split in rows.splits)
        return replace(rows, splits=tuple(splits))

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

    def set_aside(self, reject: Reject) -> None:
        self._accumulator.add([(self._window, reject)])
        self._count += 1
        if self._count > self._limit:
            raise too_many(self._limit, reject)


@dataclass(frozen=True)
class _Watched:
    """A split whose rejects go to a tray."""

    split: RejectingSplit
    tray: RejectTray | _WorkersTray

    @property
    def rows(self) -> int | None:
        return self.split.rows

    def read(self) -> Iterator[pa.RecordBatch]:
        return self.split.read_setting_aside(self.tray.set_aside)


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
