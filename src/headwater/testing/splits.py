"""Rows out of Arrow tables, for tests of sinks: picklable, so that workers can read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.model.errors import HeadwaterError
from headwater.model.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class TableSplit:
    """A part of a window that is there already; with `error` it fails after its rows, as a lost source does."""

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
class TableRows:
    """The rows of one stream in one window, in splits."""

    stream: str
    splits: tuple[TableSplit, ...]
    schema: pa.Schema
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """All splits as a DataFrame."""
        return spark.createDataFrame(pa.concat_tables([split.table for split in self.splits]))


@dataclass(frozen=True)
class FrameRows:
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

    def dataframe(self, spark: SparkSession) -> DataFrame:
        return self.rows.dataframe(spark)


def table_rows(
    table: pa.Table,
    *,
    stream: str = "shop.orders",
    key: Sequence[str] = (),
    order: Sequence[str] = (),
    splits: int = 1,
    counted: bool = True,
) -> TableRows:
    """A table as the rows of a window, cut into splits of similar size."""
    size = -(-table.num_rows // splits) or 1
    parts = tuple(
        TableSplit(table.slice(start, size), None, counted) for start in range(0, max(table.num_rows, 1), size)
    )
    return TableRows(stream, parts, table.schema, tuple(key), tuple(order))


def failing_rows(rows: TableRows, error: HeadwaterError | Exception) -> TableRows:
    """The same rows, whose last split fails at its end."""
    *others, last = rows.splits
    return TableRows(
        rows.stream, (*others, TableSplit(last.table, error, last.counted)), rows.schema, rows.key, rows.order
    )
