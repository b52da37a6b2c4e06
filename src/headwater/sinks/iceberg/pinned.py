"""A table as it was when a pipeline's mark stood somewhere: no landing beyond it is seen, whoever goes on meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.model.rows import Rows
from headwater.sinks.iceberg.ancestry import Ancestry, Stamped
from headwater.sinks.iceberg.catalog import find_table
from headwater.sinks.iceberg.comparing import DataFile, DataFileSplit, SparkTableRows, TableColumns, TableRows
from headwater.sinks.iceberg.java_errors import reaching
from headwater.sinks.iceberg.naming import TableName
from headwater.sinks.iceberg.sink import IcebergSink
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.table import LakeTable
from headwater.sinks.iceberg.types import digits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNIT_ROWS = 1 << 20
Range = tuple[int, int]


class TableHistory:
    """One table, as it is now, and the landings behind it."""

    def __init__(self, table: LakeTable, landings: Sequence[Stamped]) -> None:
        self._table, self._landings, self._head = table, landings, table.head

    @classmethod
    def of(cls, spark: SparkSession, sink: IcebergSink, pipeline: str, stream: str) -> TableHistory | None:
        """None: the table is not there."""
        name, own = sink.table_of(stream), (pipeline, sink.label, stream)
        with reaching(name):
            table = find_table(spark, name)
            landings = [] if table is None else Ancestry().follow(table)
        mine = [x for x in landings if (x.stamp.pipeline, x.stamp.sink, x.stamp.stream) == own]
        return None if table is None else cls(table, mine)

    def before(self, beyond: Callable[[Stamp], bool]) -> PinnedTable:
        """The snapshot that the first landing beyond was put upon."""
        later = [one for one in self._landings if beyond(one.stamp)]
        snapshot = self._head
        if later:
            parent = self._table.metadata.snapshot(later[-1].snapshot).parentId()
            snapshot = None if parent is None else int(parent)
        return PinnedTable(self._table, snapshot)


class PinnedTable:
    """A table at one of its snapshots; None: before the first. `known_of` is a column whose bounds are asked for."""

    def __init__(self, table: LakeTable, snapshot: int | None, known_of: str = "") -> None:
        self.table, self.snapshot, self._known_of = table, snapshot, known_of

    def knowing(self, column: str) -> PinnedTable:
        return PinnedTable(self.table, self.snapshot, column)

    @property
    def name(self) -> TableName:
        return self.table.name

    def rows(self, stream: str, read: TableColumns, within: Sequence[Range] | None = None) -> Rows:
        """All rows; or at least those within ranges of the column that is known."""
        schema = pa.schema([pa.field(column.name, column.type) for column in read.columns])
        if self.snapshot is not None and not self._by_arrow(read):
            return SparkTableRows(stream, schema, self.name.quoted, self.snapshot, read)
        splits = [
            DataFileSplit(file, share, shares, read)
            for file in self.files
            if within is None or _meets(file, within)
            for shares in [max(1, file.rows // _UNIT_ROWS)]
            for share in range(shares)
        ]
        return TableRows(stream, schema, tuple(splits))

    @cached_property
    def files(self) -> list[DataFile]:
        """With what Arrow needs to know of them; right only where `_by_arrow`."""
        column = self.table.schema.column(self._known_of)
        return [
            DataFile(
                task["data-file"]["file-path"],
                task["data-file"]["record-count"],
                _vector(task),
                None if column is None else _bounds(task["data-file"], column.id, big_endian=bool(digits(column.type))),
            )
            for task in self._tasks
        ]

    def _by_arrow(self, read: TableColumns) -> bool:
        """Other formats and deletes, values of columns that are younger than a file, nested ones: Spark knows how."""
        nested = any(pa.types.is_nested(column.type) for column in read.columns)
        return not nested and "initial-default" not in self._schema_text and all(map(_is_readable, self._tasks))

    @cached_property
    def _schema_text(self) -> str:
        return str(self.table.jvm.org.apache.iceberg.SchemaParser.toJson(self.table.java.schema()))

    @cached_property
    def _tasks(self) -> list[dict[str, Any]]:
        """Iceberg's own description of what a scan reads."""
        if self.snapshot is None:
            return []
        with reaching(self.name):
            scan = self.table.java.newScan().useSnapshot(self.snapshot)
            if self._known_of:
                names = self.table.jvm.java.util.ArrayList()
                names.add(self._known_of)
                scan = scan.includeColumnStats(names)
            tasks = scan.planFiles()
            found, files = [], tasks.iterator()
            parser = self.table.jvm.org.apache.iceberg.ScanTaskParser
            while files.hasNext():
                found.append(json.loads(parser.toJson(files.next())))
            tasks.close()
        return found


def _meets(file: DataFile, ranges: Sequence[Range]) -> bool:
    known = file.bounds
    return known is None or any(known[0] <= high and low <= known[1] for low, high in ranges)


def _is_readable(task: Mapping[str, Any]) -> bool:
    deletes = task.get("delete-files") or []
    vectors = all(delete["file-format"].lower() == "puffin" for delete in deletes)
    return task["data-file"]["file-format"].lower() == "parquet" and vectors and len(deletes) <= 1


def _vector(task: Mapping[str, Any]) -> tuple[str, int, int] | None:
    for delete in task.get("delete-files") or []:
        return delete["file-path"], delete.get("content-offset", 0), delete.get("content-size-in-bytes", 0)
    return None


def _bounds(file: Mapping[str, Any], column: int, *, big_endian: bool) -> tuple[int, int] | None:
    """Of a whole number, a decimal or a time, in its smallest units."""
    found = []
    for end in ("lower", "upper"):
        some = file.get(f"{end}-bounds") or {"keys": [], "values": []}
        text = dict(zip(some["keys"], some["values"], strict=True)).get(column)
        if text is None:
            return None
        found.append(int.from_bytes(bytes.fromhex(text), "big" if big_endian else "little", signed=True))
    return found[0], found[1]
