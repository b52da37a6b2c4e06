"""The Parquet files of one landing: written by tasks before anybody can see them, removed if nobody ever will."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.model.errors import AmbiguousKey
from headwater.model.rows import Rows, Split, SplitRows
from headwater.sinks.iceberg.leftovers import folder_of
from headwater.sinks.iceberg.storage import list_files, remove_files
from headwater.sinks.iceberg.table import LakeTable
from headwater.sinks.iceberg.tasks import run_here, run_over_frame, run_tasks
from headwater.sinks.iceberg.writing import WriteOrder, WrittenFile, write_files
from headwater.sinks.tally import Report, Tally, counted, listening

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_WINDOW = 50_000


class LandingFiles:
    """What one try at a landing has put into the table's folder."""

    def __init__(self, table: LakeTable, landing: str, run: str) -> None:
        self._table = table
        self.folder = folder_of(table, landing)
        self.prefix = f"{landing}-{run}"
        self.written: tuple[WrittenFile, ...] | None = None  # None: not yet
        self.published: tuple[str, ...] = ()  # what a snapshot refers to, or is about to
        self.spec: Any = None
        self._data_files: list[Any] | None = None

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.written or ())

    @property
    def locations(self) -> list[str]:
        return [file.location for file in self.written or ()]

    def write(self, spark: SparkSession, rows: Rows, key: tuple[str, ...], tally: Tally) -> None:
        """Read and write every row. Nothing is left behind when it fails."""
        schema = self._table.schema
        self.spec = self._table.java.spec()
        order = WriteOrder(rows.stream, self.folder, self.prefix, schema.to_arrow(), self._table.partition(schema), key)
        doing = f"{rows.stream}: writing to {self._table.name}"
        if isinstance(rows, SplitRows) and _is_small(rows.splits):
            results = run_here(partial(_write_split, order, tally.part), list(enumerate(rows.splits)), doing)
        else:
            with listening(spark, tally) as report:
                results = _run_in_spark(spark, rows, order, report, doing)
        self.written = tuple(WrittenFile.from_bytes(result) for result in results)
        tally.at_least(self.rows)

    def check_keys(self, stream: str) -> None:
        """G12: a row without a key cannot be merged."""
        nulls: Counter[str] = Counter()
        for file in self.written or ():
            nulls.update(file.null_keys)
        if nulls:
            counted = ", ".join(f"{column!r} is NULL in {count} rows" for column, count in sorted(nulls.items()))
            raise AmbiguousKey(
                f"{stream}: rows without a key cannot be merged: {counted}",
                hint="choose a key that is never NULL (key:), leave such rows out (where:), or use mode: append",
            )

    def data_files(self) -> list[Any]:
        """The files as Iceberg's values; made once, used by every try to publish."""
        if self._data_files is None:
            self._data_files = [self._table.data_file(file, self.spec) for file in self.written or ()]
        return self._data_files

    def discard(self) -> None:
        """Remove everything that this try wrote; only where it is certain that it was not published."""
        remove_files(list_files(self.folder, self.prefix))


def _is_small(splits: Sequence[Split]) -> bool:
    """Whether the window is known to be read and written sooner than a Spark job with Python workers starts."""
    counts = [split.rows for split in splits]
    return all(count is not None for count in counts) and sum(count or 0 for count in counts) <= SMALL_WINDOW


def _run_in_spark(spark: SparkSession, rows: Rows, order: WriteOrder, report: Report, doing: str) -> list[bytes]:
    if isinstance(rows, SplitRows):
        return run_tasks(spark, partial(_write_split, order, report), list(enumerate(rows.splits)), doing)
    return run_over_frame(rows.dataframe(spark), partial(_write_batches, order, report), doing)


def _write_split(order: WriteOrder, report: Report, numbered: tuple[int, Split]) -> Iterator[bytes]:
    number, split = numbered
    return (file.to_bytes() for file in write_files(order, counted(split.read(), number, report)))


def _write_batches(order: WriteOrder, report: Report, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    from pyspark import TaskContext  # noqa: PLC0415 - only where Spark runs

    context = TaskContext.get()
    assert context is not None  # noqa: S101 - Spark calls this inside a task
    return (file.to_bytes() for file in write_files(order, counted(batches, context.partitionId(), report)))
