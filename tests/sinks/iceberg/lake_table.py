"""What the tests of the Iceberg sink share: a sink on a table of its own, windows by number, the table's rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.config.sinks.iceberg import IcebergSinkSettings
from headwater.model.landing import Landing
from headwater.model.position.marks import ColumnMark
from headwater.model.position.window import Window
from headwater.model.protocols.sink import Attempt
from headwater.model.rows import Objects, Rows
from headwater.model.types import CursorType
from headwater.sinks.iceberg.merge.strategy import DEFAULT_TUNING, Tuning
from headwater.sinks.iceberg.sink import IcebergSink
from headwater.testing.memory_rows import attempt_at, memory_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RUNS = itertools.count(1)
IN_TASKS = Tuning(driver_rows=0, unit_rows=5)
"""Even small tables are searched and copied by Spark's tasks."""


def window(number: int) -> Window:
    marks = [ColumnMark("seq", CursorType.INTEGER, n) for n in (number - 1, number)]
    return Window(marks[0], marks[1])


@dataclass
class LakeTable:
    """A table of the test's own, and sinks that land in it."""

    spark: SparkSession
    namespace: str
    name: str = "orders"
    progress: list[int] = field(default_factory=list)

    @property
    def table(self) -> str:
        return f"{self.namespace}.{self.name}"

    def sink(self, *, tuning: Tuning = DEFAULT_TUNING, **settings: Any) -> IcebergSink:
        return IcebergSink(IcebergSinkSettings(**{"table": self.table, **settings}), "1:iceberg", tuning=tuning)

    def attempt(self, number: int = 1, **options: Any) -> Attempt:
        """A try at a window, by its number; a run of its own each time."""
        return attempt_at(
            window(number),
            run=f"run{next(_RUNS)}",
            spark=lambda: self.spark,
            progress=self.progress.append,
            **options,
        )

    def land(self, rows: Rows, number: int = 1, **settings: Any) -> Landing:
        return self.sink(**settings).land(self.attempt(number), rows)

    def rows(self) -> list[dict[str, Any]]:
        rows = [row.asDict() for row in self.spark.sql(f"SELECT * FROM {self.table}").collect()]
        return sorted(rows, key=lambda row: (row.get("id") or 0, repr(row)))

    def snapshots(self) -> list[dict[str, str]]:
        """The summaries of main's history, oldest first."""
        snapshots = self.spark.sql(f"SELECT summary FROM {self.table}.snapshots ORDER BY committed_at").collect()
        return [dict(row.summary) for row in snapshots]

    def refs(self) -> set[str]:
        return {row.name for row in self.spark.sql(f"SELECT name FROM {self.table}.refs").collect()}

    def files(self, lake_folder: Path) -> set[str]:
        """Every data and delete file in the table's folder, referenced or not."""
        folder = lake_folder / self.namespace.removeprefix("lake.") / self.name / "data"
        return {path.name for path in folder.rglob("*") if path.suffix in {".parquet", ".puffin"}}

    def referenced(self) -> set[str]:
        files = self.spark.sql(f"SELECT file_path FROM {self.table}.all_files").collect()
        return {row.file_path.rsplit("/", 1)[1] for row in files}


def orders(ids: Iterable[int], text: str = "new", seq: int = 1, **options: Any) -> Rows:
    """Rows of an orders table: id, note, seq."""
    ids = list(ids)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("note", pa.string()), ("seq", pa.int64())])
    table = pa.table([pa.array(ids, pa.int64()), [f"{text} {n}" for n in ids], [seq] * len(ids)], schema=schema)
    return table_rows(table, **{"key": ["id"], "order": ["seq"], **options})


def table_rows(
    table: pa.Table,
    *,
    stream: str = "shop.orders",
    key: Sequence[str] = (),
    order: Sequence[str] = (),
    splits: int = 1,
    counted: bool = True,
) -> Rows:
    """A table as the rows of a window, cut into splits of similar size."""
    size = -(-table.num_rows // splits) or 1
    parts = tuple(table.slice(start, size) for start in range(0, max(table.num_rows, 1), size))
    return memory_rows(stream, parts, tuple(key), tuple(order), counted=counted)


def objects(
    contents: Mapping[str, Iterable[int]], earlier: Iterable[str] = (), text: str = "new", **options: Any
) -> Rows:
    """Rows of objects, by their names: id, note, object_url. Those in `earlier` were landed before."""
    rows = [(n, f"{text} {n}", url_of(name)) for name, ids in contents.items() for n in ids]
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    schema = pa.schema([("id", pa.int64()), ("note", pa.string()), ("object_url", pa.string())])
    table = pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )
    return replace(
        table_rows(table, **options),
        objects=Objects("object_url", tuple(url_of(name) for name in earlier), url_of("")),
    )


def url_of(name: str) -> str:
    """As long as urls are: what tells two apart comes late."""
    return f"s3://bucket/a/prefix/that/all/objects/have/in/common/and/that/is/longer/than/bounds/{name}"
