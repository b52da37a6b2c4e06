"""Rows held in memory, and an attempt to land them: what a test of a sink starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.model.cursor import CursorType
from headwater.model.faults import Faults, NoFaults
from headwater.model.marks import ColumnMark
from headwater.model.rows import ReplacingRows, Rows
from headwater.model.sink import Attempt
from headwater.model.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class MemorySplit:
    """A table that travels with the split; with `error` it fails after its rows, as a lost source does."""

    table: pa.Table = field(repr=False)
    error: Exception | None = None
    counted: bool = True  # False: its number of rows is not known beforehand

    @property
    def rows(self) -> int | None:
        return int(self.table.num_rows) if self.counted else None

    def read(self) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches(max_chunksize=1 << 16)
        if self.error is not None:
            raise self.error


@dataclass(frozen=True)
class MemoryRows:
    """SplitRows over tables in memory: one split per table."""

    stream: str
    tables: tuple[pa.Table, ...]
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    counted: bool = True
    error: Exception | None = None  # of the last split, at its end
    part_column: str = ""
    earlier: tuple[str, ...] = ()
    part_prefix: str = ""

    @property
    def schema(self) -> pa.Schema:
        return self.tables[0].schema

    @property
    def splits(self) -> tuple[MemorySplit, ...]:
        *others, last = self.tables
        return (
            *(MemorySplit(table, None, self.counted) for table in others),
            MemorySplit(last, self.error, self.counted),
        )

    def dataframe(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame(pa.concat_tables(self.tables))


@dataclass(frozen=True)
class DataFrameRows:
    """The same rows for a sink that must take them from Spark: no splits are offered."""

    rows: Rows

    @property
    def stream(self) -> str:
        return self.rows.stream

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self.rows.key

    @property
    def order(self) -> tuple[str, ...]:
        return self.rows.order

    @property
    def part_column(self) -> str:
        return self.rows.part_column if isinstance(self.rows, ReplacingRows) else ""

    @property
    def earlier(self) -> tuple[str, ...]:
        return self.rows.earlier if isinstance(self.rows, ReplacingRows) else ()

    @property
    def part_prefix(self) -> str:
        return self.rows.part_prefix if isinstance(self.rows, ReplacingRows) else ""

    def dataframe(self, spark: SparkSession) -> DataFrame:
        return self.rows.dataframe(spark)


def window_up_to(end: int, start: int | None = None) -> Window:
    """A window on an integer column `id`."""

    def mark(value: int) -> ColumnMark:
        return ColumnMark("id", CursorType.INTEGER, value)

    return Window(None if start is None else mark(start), mark(end))


def attempt_at(
    window: Window,
    *,
    pipeline: str = "shop",
    run: str = "run-1",
    epoch: int = 1,
    faults: Faults | None = None,
    clear_to_publish: Callable[[], None] = lambda: None,
    spark: Callable[[], SparkSession] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Attempt:
    """One try at a window, with the lease held; without `spark`, to ask for a session is an error."""
    return Attempt(pipeline, run, window, epoch, faults or NoFaults(), clear_to_publish, spark or _no_spark, progress)


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
