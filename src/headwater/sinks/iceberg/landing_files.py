"""The Parquet files of one landing: written by tasks before anybody can see them, removed if nobody ever will."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.model.errors import AmbiguousKey
from headwater.model.rows import Rows
from headwater.sinks.iceberg.leftovers import folder_of
from headwater.sinks.iceberg.storage import list_files, remove_files
from headwater.sinks.iceberg.table import LakeTable
from headwater.sinks.iceberg.writing import WriteOrder, WrittenFile, write_files
from headwater.sinks.over_rows import run_over_rows
from headwater.sinks.setting_aside import RowsAside
from headwater.sinks.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    def is_empty(self) -> bool:
        """Whether the window brings nothing that could change the table."""
        return not self.written

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.written or ())

    @property
    def locations(self) -> list[str]:
        return [file.location for file in self.written or ()]

    def write(self, spark: SparkSession, rows: Rows, key: tuple[str, ...], tally: Tally, aside: RowsAside) -> None:
        """Read and write every row. Nothing is left behind when it fails."""
        order = self._ordered(rows.stream, key, aside)
        doing = f"{rows.stream}: writing to {self._table.name}"
        results = run_over_rows(rows, partial(_write_part, order), lambda: spark, doing, tally)
        self.written = tuple(WrittenFile.from_bytes(result) for result in results)
        tally.at_least(self.rows)

    def _ordered(self, stream: str, key: tuple[str, ...], aside: RowsAside) -> WriteOrder:
        """What tasks need to know, for the table as it is now."""
        schema = self._table.schema
        self.spec = self._table.java.spec()
        partition = self._table.partition(schema)
        return WriteOrder(stream, self.folder, self.prefix, schema.to_arrow(), partition, key, aside)

    def order_of_copies(self, schema: pa.Schema) -> WriteOrder:
        """How files of the table are written anew, for the table as it is now. Their rows stop at nothing: they were kept before."""
        aside = RowsAside("", "", (), (), None)
        partition = self._table.partition(self._table.schema)
        return WriteOrder(str(self._table.name), self.folder, self.prefix, schema, partition, (), aside)

    def check_keys(self, stream: str, mode: str) -> None:
        """G12: a row without a key cannot be merged, nor one without an object be replaced."""
        nulls: Counter[str] = Counter()
        for file in self.written or ():
            nulls.update(file.null_keys)
        if nulls:
            counted = ", ".join(f"{column!r} is NULL in {count} rows" for column, count in sorted(nulls.items()))
            if mode == "replace_object":
                raise AmbiguousKey(
                    f"{stream}: rows that name no object can never be replaced: {counted}",
                    hint="let the transform leave the column as it is, or use mode: append",
                )
            raise AmbiguousKey(
                f"{stream}: rows without a key cannot be merged: {counted}",
                hint="choose a key that is never NULL (key:), leave such rows out (where:), or use mode: append",
            )

    def data_files(self) -> list[Any]:
        """The files as Iceberg's values; made once, used by every try to publish."""
        if self._data_files is None:
            self._data_files = self._table.data_files(self.written or (), self.spec)
        return self._data_files

    def discard(self) -> None:
        """Remove everything that this try wrote; only where it is certain that it was not published."""
        remove_files(list_files(self.folder, self.prefix))


def _write_part(order: WriteOrder, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    return (file.to_bytes() for file in write_files(order, number, batches))
