"""Rows held in memory, a split that trickles, and an attempt to land them: what a test of a sink starts from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.model.faults import Faults, NoFaults
from headwater.model.position.marks import ColumnMark
from headwater.model.position.window import Window
from headwater.model.protocols.sink import Attempt, LandsRejects
from headwater.model.rows import MemorySplit, Objects, OnReject, Reject, Rows, Split
from headwater.model.types import CursorType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_ROWS = 1 << 16


def memory_rows(
    stream: str,
    tables: Sequence[pa.Table],
    key: tuple[str, ...] = (),
    order: tuple[str, ...] = (),
    *,
    counted: bool = True,
    error: Exception | None = None,
    objects: Objects | None = None,
) -> Rows:
    """One split per table. `counted`: their numbers of rows are known. `error`: of the last split, at its end."""
    rows = with_tables(Rows(stream, tables[0].schema, key, order, objects=objects), tables)
    if not counted:
        rows = replace(rows, splits=tuple(FaultySplit(split, None) for split in rows.splits or ()))
    return rows if error is None else failing(rows, error)


def with_tables(rows: Rows, tables: Sequence[pa.Table]) -> Rows:
    """The same with other content."""
    splits = tuple(MemorySplit(tuple(table.to_batches(max_chunksize=_BATCH_ROWS))) for table in tables)
    return replace(rows, schema=tables[0].schema, splits=splits)


def failing(rows: Rows, error: Exception) -> Rows:
    """The same; their last split fails after its rows, as a lost source does."""
    *others, last = rows.splits or ()
    return replace(rows, splits=(*others, FaultySplit(last, last.rows, error)))


@dataclass(frozen=True)
class FaultySplit:
    """A split whose number of rows is unknown, or that fails after its rows."""

    split: Split
    rows: int | None
    error: Exception | None = None

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        yield from self.split.read(on_reject)
        if self.error is not None:
            raise self.error


def spark_rows(rows: Rows) -> Rows:
    """The same rows for a sink that must take them from Spark: no splits are offered."""
    return replace(rows, splits=None, frame=rows.dataframe)


def tables_of(rows: Rows) -> tuple[pa.Table, ...]:
    """What `memory_rows` was made of."""
    return tuple(pa.Table.from_batches(split.read(), rows.schema) for split in rows.splits or ())


def window_up_to(end: int, start: int | None = None) -> Window:
    """A window on an integer column `id`."""

    def mark(value: int) -> ColumnMark:
        return ColumnMark("id", CursorType.INTEGER, value)

    return Window(None if start is None else mark(start), mark(end))


@dataclass
class MemoryRejects:
    """The rejects of an attempt, in the memory of this process; they land nowhere."""

    rejects: list[Reject] = field(default_factory=list)
    splits: list[int] = field(default_factory=list)  # the number of each one's split

    def add(self, split: int, reject: Reject) -> None:
        self.rejects.append(reject)
        self.splits.append(split)

    def land(self, stream: str | None) -> None:
        """Nothing to do."""

    def unread_parts(self) -> frozenset[str]:
        return frozenset(reject.part for reject in self.rejects if reject.part)


def attempt_at(
    window: Window,
    *,
    pipeline: str = "shop",
    run: str = "run-1",
    epoch: int = 1,
    faults: Faults | None = None,
    ensure_lease: Callable[[], None] = lambda: None,
    spark: Callable[[], SparkSession] | None = None,
    progress: Callable[[int], None] = lambda _: None,
    rejects: LandsRejects | None = None,
) -> Attempt:
    """One try at a window, with the lease held; without `spark`, to ask for a session is an error."""
    return Attempt(
        pipeline, run, window, epoch, faults or NoFaults(), ensure_lease, spark or _no_spark, progress, rejects
    )


def table_of(ids: Sequence[int]) -> pa.Table:
    """A small table with a number, a text and an instant per id."""
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([f"name {i}" for i in ids], pa.string()),
            "at": pa.array([1_700_000_000_000_000 + i for i in ids], pa.timestamp("us", tz="UTC")),
        }
    )


def _no_spark() -> SparkSession:
    raise AssertionError("this window must land without a Spark session")


_PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class TrickleSplit:
    """A batch now and then, until a file appears. Its number of rows is known only afterwards."""

    batch: pa.RecordBatch
    until: Path
    patience_seconds: float = 60.0
    rows: int | None = None

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - rejects nothing
        deadline = time.monotonic() + self.patience_seconds
        while not self.until.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.until} did not appear within {self.patience_seconds:.0f} s")
            yield self.batch
            time.sleep(_PAUSE_SECONDS)
        yield self.batch
