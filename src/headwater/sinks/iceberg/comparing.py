"""A table's rows, to be compared with their source's: read by Arrow, by Spark where only Spark can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.sinks.iceberg.conform import exact_cast
from headwater.sinks.iceberg.deletion_vectors import read_vector
from headwater.sinks.iceberg.keyscan import KeyColumn, place_of
from headwater.sinks.iceberg.naming import quote
from headwater.sinks.iceberg.storage import resolve
from headwater.sinks.iceberg.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS = 1 << 16
_NOT_THERE = -1  # the id of a column that the table does not have
Vector = tuple[str, int, int]  # a Puffin file, and the bytes of it that are the vector


@dataclass(frozen=True)
class TableColumns:
    """What is read of a table: columns in certain types, and which rows count."""

    columns: tuple[KeyColumn, ...]  # one that the table does not have is NULL
    visible: tuple[KeyColumn, bool] | None = None  # rows count where this column has this value; None: all of them

    @classmethod
    def of(cls, table: LakeTable, schema: pa.Schema, visible: tuple[str, bool] | None) -> TableColumns:
        ids = {column.name: column.id for column in table.schema.columns}
        columns = [KeyColumn(ids.get(one.name, _NOT_THERE), one.name, one.type) for one in schema]
        marked = None if visible is None else (KeyColumn(ids[visible[0]], visible[0], pa.bool_()), visible[1])
        return cls(tuple(columns), marked)


@dataclass(frozen=True)
class DataFile:
    """A data file of a snapshot."""

    location: str
    rows: int
    vector: Vector | None  # of the rows that were deleted
    bounds: tuple[int, int] | None = None  # of the column that was asked about, if they are known


@dataclass(frozen=True)
class DataFileSplit:
    """Every `shares`th row group of a file, from number `share` on, without the rows that were deleted."""

    file: DataFile
    share: int
    shares: int
    wanted: TableColumns = field(repr=False)

    @property
    def rows(self) -> int:
        return self.file.rows // self.shares

    def read(self) -> Iterator[pa.RecordBatch]:
        filesystem, path = resolve(self.file.location)
        gone = _positions(self.file.vector)
        with filesystem.open_input_file(path) as source, pq.ParquetFile(source) as file:
            first = 0
            for group in range(file.num_row_groups):
                if group % self.shares == self.share:
                    yield from self._group(file, group, first, gone)
                first += file.metadata.row_group(group).num_rows

    def _group(
        self, file: pq.ParquetFile, group: int, first: int, gone: npt.NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        visible, columns = self.wanted.visible, list(self.wanted.columns)
        asked = columns if visible is None else [*columns, visible[0]]
        places = [place_of(file.schema_arrow, column) if column.id != _NOT_THERE else None for column in asked]
        names = [file.schema_arrow.field(place).name for place in places if place is not None]
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=names, use_threads=False):
            alive = np.ones(batch.num_rows, np.bool_)
            begin, end = np.searchsorted(gone, (first, first + batch.num_rows))
            alive[gone[begin:end] - first] = False
            first += batch.num_rows
            found = [
                pa.nulls(batch.num_rows, column.type)
                if place is None
                else _cast(batch.column(file.schema_arrow.field(place).name), column.type)
                for place, column in zip(places, asked, strict=True)
            ]
            if visible is not None:
                shown = found.pop().fill_null(not visible[1])
                alive &= np.asarray(shown) == visible[1]
            made = pa.RecordBatch.from_arrays(found, names=[column.name for column in columns])
            yield made if alive.all() else made.filter(pa.array(alive))


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else exact_cast(values, kind)


def _positions(vector: Vector | None) -> npt.NDArray[np.int64]:
    if vector is None:
        return np.empty(0, np.int64)
    gone = read_vector(*vector)
    return np.fromiter(gone, np.int64, len(gone))


@dataclass(frozen=True)
class TableRows:
    """Rows of data files."""

    stream: str
    schema: pa.Schema
    splits: tuple[DataFileSplit, ...]
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    def dataframe(self, spark: SparkSession) -> DataFrame:
        raise NotImplementedError("rows of a table's files are read in splits")


@dataclass(frozen=True)
class SparkTableRows:
    """The same rows, read by Spark."""

    stream: str
    schema: pa.Schema
    table: str
    snapshot: int
    wanted: TableColumns
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    def dataframe(self, spark: SparkSession) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415 - an idle poll must not import Spark

        found = {one.name: one.dataType.simpleString() for one in spark.table(self.table).schema}
        shown = []
        for column in self.wanted.columns:
            name, is_uuid = quote(column.name), isinstance(column.type, pa.UuidType)
            if column.id == _NOT_THERE:
                kind = from_arrow_type(column.type, prefer_timestamp_ntz=True).simpleString()
                shown.append(f"CAST(NULL AS {kind}) AS {name}")
            elif is_uuid and found[column.name] == "string":
                shown.append(f"unhex(replace({name}, '-', '')) AS {name}")
            else:
                shown.append(name)
        visible = self.wanted.visible
        where = "true" if visible is None else f"{quote(visible[0].name)} = {str(visible[1]).lower()}"
        return spark.sql(f"SELECT {', '.join(shown)} FROM {self.table} VERSION AS OF {self.snapshot} WHERE {where}")  # noqa: S608 - quoted
