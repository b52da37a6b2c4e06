"""A table's rows at one snapshot, read by Arrow; by Spark where only Spark can."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.model.protocols.lake import Range
from headwater.model.rows import OnReject, Rows
from headwater.model.spark.schema import spark_type
from headwater.sinks.iceberg.catalog.jvm import reaching
from headwater.sinks.iceberg.catalog.table import LakeTable, TableName, quote
from headwater.sinks.iceberg.data_files import NO_ID, ArrowColumn, ColumnReader, RowGroup, open_columns, read_vector
from headwater.sinks.iceberg.schema import digits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS = 1 << 16
Vector = tuple[str, int, int]  # a Puffin file, the offset and the length of the vector in it


@dataclass(frozen=True)
class TableColumns:
    """The columns to read of a table, in their types, and which rows count."""

    columns: tuple[ArrowColumn, ...]  # a column that the table does not have is NULL
    visible: tuple[ArrowColumn, bool] | None = None  # rows count where this column has this value; None: all rows

    @classmethod
    def of(cls, table: LakeTable, schema: pa.Schema, visible: tuple[str, bool] | None) -> TableColumns:
        ids = {column.name: column.id for column in table.schema.columns}
        columns = [ArrowColumn(ids.get(f.name, NO_ID), f.name, f.type) for f in schema]
        mark = None if visible is None else (ArrowColumn(ids[visible[0]], visible[0], pa.bool_()), visible[1])
        return cls(tuple(columns), mark)


@dataclass(frozen=True)
class DataFile:
    """A data file of a snapshot."""

    location: str
    rows: int
    vector: Vector | None  # of the deleted rows
    bounds: Range | None = None  # of the column whose statistics were requested; None: unknown


@dataclass(frozen=True)
class DataFileSplit:
    """Every `shares`th row group of a file, from number `share` on, without deleted rows."""

    file: DataFile
    share: int
    shares: int
    columns: TableColumns = field(repr=False)

    @property
    def rows(self) -> int:
        return self.file.rows // self.shares

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - what landed is exact
        visible = self.columns.visible
        columns = [*self.columns.columns, *([] if visible is None else [visible[0]])]
        deleted = _positions(self.file.vector)
        with open_columns(self.file.location, columns) as reader:
            for group in reader.row_groups(self.share, self.shares):
                yield from self._live_rows(reader, group, deleted)

    def _live_rows(
        self, reader: ColumnReader, group: RowGroup, deleted: npt.NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        visible, first = self.columns.visible, group.first_row
        for batch in reader.batches(group, _BATCH_ROWS):
            live = np.ones(batch.num_rows, np.bool_)
            begin, end = np.searchsorted(deleted, (first, first + batch.num_rows))
            live[deleted[begin:end] - first] = False
            first += batch.num_rows
            rows = batch
            if visible is not None:
                live &= np.asarray(batch.columns[-1].fill_null(not visible[1])) == visible[1]
                rows = batch.select(range(batch.num_columns - 1))
            yield rows if live.all() else rows.filter(pa.array(live))


def _positions(vector: Vector | None) -> npt.NDArray[np.int64]:
    if vector is None:
        return np.empty(0, np.int64)
    deleted = read_vector(*vector)
    return np.fromiter(deleted, np.int64, len(deleted))


def read_by_spark(table: str, snapshot: int, columns: TableColumns, spark: SparkSession) -> DataFrame:
    """The same rows, where data files alone do not say them."""
    types = {field.name: field.dataType.simpleString() for field in spark.table(table).schema}
    selected = []
    for column in columns.columns:
        name, is_uuid = quote(column.name), isinstance(column.type, pa.UuidType)
        if column.id == NO_ID:
            selected.append(f"CAST(NULL AS {spark_type(column.type).simpleString()}) AS {name}")
        elif is_uuid and types[column.name] == "string":
            selected.append(f"unhex(replace({name}, '-', '')) AS {name}")
        else:
            selected.append(name)
    visible = columns.visible
    where = "true" if visible is None else f"{quote(visible[0].name)} = {str(visible[1]).lower()}"
    return spark.sql(f"SELECT {', '.join(selected)} FROM {table} VERSION AS OF {snapshot} WHERE {where}")  # noqa: S608 - quoted


_UNIT_ROWS = 1 << 20


class PinnedTable:
    """A table at one of its snapshots; None: before the first. `stats_of` is a column whose bounds are read."""

    def __init__(self, table: LakeTable, snapshot: int | None, stats_of: str = "") -> None:
        self.table, self.snapshot, self._stats_of = table, snapshot, stats_of

    @property
    def name(self) -> TableName:
        return self.table.name

    def rows(self, stream: str, columns: TableColumns, within: Sequence[Range] | None = None) -> Rows:
        """All rows; or at least those within ranges of the column whose bounds are read."""
        schema = pa.schema([pa.field(column.name, column.type) for column in columns.columns])
        if self.snapshot is not None and not self._is_readable(columns):
            return Rows(stream, schema, frame=partial(read_by_spark, self.name.quoted, self.snapshot, columns))
        splits = [
            DataFileSplit(file, share, shares, columns)
            for file in self.files
            if within is None or _overlaps(file, within)
            for shares in [max(1, file.rows // _UNIT_ROWS)]
            for share in range(shares)
        ]
        return Rows(stream, schema, splits=tuple(splits))

    @cached_property
    def files(self) -> list[DataFile]:
        """The data files; complete only if `_is_readable`."""
        column = self.table.schema.column(self._stats_of)
        return [
            DataFile(
                task["data-file"]["file-path"],
                task["data-file"]["record-count"],
                _vector(task),
                None if column is None else _bounds(task["data-file"], column.id, big_endian=bool(digits(column.type))),
            )
            for task in self._tasks
        ]

    def _is_readable(self, columns: TableColumns) -> bool:
        """False where Arrow alone cannot read: other formats and deletes, default values, nested columns."""
        nested = any(pa.types.is_nested(column.type) for column in columns.columns)
        return not nested and "initial-default" not in self._schema_text and all(map(_has_vectors_only, self._tasks))

    @cached_property
    def _schema_text(self) -> str:
        return str(self.table.jvm.org.apache.iceberg.SchemaParser.toJson(self.table.java.schema()))

    @cached_property
    def _tasks(self) -> list[dict[str, Any]]:
        """The scan's tasks, in Iceberg's JSON."""
        if self.snapshot is None:
            return []
        with reaching(self.name):
            scan = self.table.java.newScan().useSnapshot(self.snapshot)
            if self._stats_of:
                names = self.table.jvm.java.util.ArrayList()
                names.add(self._stats_of)
                scan = scan.includeColumnStats(names)
            planned = scan.planFiles()
            tasks, iterator = [], planned.iterator()
            parser = self.table.jvm.org.apache.iceberg.ScanTaskParser
            while iterator.hasNext():
                tasks.append(json.loads(parser.toJson(iterator.next())))
            planned.close()
        return tasks


def _overlaps(file: DataFile, ranges: Sequence[Range]) -> bool:
    bounds = file.bounds
    return bounds is None or any(bounds[0] <= high and low <= bounds[1] for low, high in ranges)


def _has_vectors_only(task: Mapping[str, Any]) -> bool:
    deletes = task.get("delete-files") or []
    vectors = all(delete["file-format"].lower() == "puffin" for delete in deletes)
    return task["data-file"]["file-format"].lower() == "parquet" and vectors and len(deletes) <= 1


def _vector(task: Mapping[str, Any]) -> tuple[str, int, int] | None:
    for delete in task.get("delete-files") or []:
        return delete["file-path"], delete.get("content-offset", 0), delete.get("content-size-in-bytes", 0)
    return None


def _bounds(file: Mapping[str, Any], column: int, *, big_endian: bool) -> tuple[int, int] | None:
    """Of an integer, a decimal or a time, in its smallest units."""
    bounds = []
    for end in ("lower", "upper"):
        values = file.get(f"{end}-bounds") or {"keys": [], "values": []}
        text = dict(zip(values["keys"], values["values"], strict=True)).get(column)
        if text is None:
            return None
        bounds.append(int.from_bytes(bytes.fromhex(text), "big" if big_endian else "little", signed=True))
    return bounds[0], bounds[1]
