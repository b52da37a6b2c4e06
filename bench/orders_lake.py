"""A lake with a table of orders, for the benchmarks of upserts and of cycles."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.project import LakeSettings, ProjectSettings, SparkSettings
from headwater.config.sinks.iceberg import IcebergSinkSettings
from headwater.engine.spark.session import start_session
from headwater.model.faults import NoFaults
from headwater.model.landing import Landing
from headwater.model.position.marks import ColumnMark
from headwater.model.position.window import Window
from headwater.model.protocols.sink import Attempt
from headwater.model.rows import Rows
from headwater.model.types import CursorType
from headwater.services.jars import ensure_jars
from headwater.sinks.iceberg.sink import IcebergSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("customer", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("updated_at", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
        ("note", pa.string()),
        ("payload", pa.string()),
        ("pos", pa.int64()),
    ]
)
_WINDOWS = itertools.count(1)
_BATCH = 1 << 16


@dataclass(frozen=True)
class OrdersSplit:
    """Rows made where they are read: ids from `start`, every `step`, `rows` of them."""

    start: int
    step: int
    rows: int
    pos: int = 0

    def read(self, on_reject=None) -> Iterator[pa.RecordBatch]:
        for first in range(0, self.rows, _BATCH):
            count = min(_BATCH, self.rows - first)
            yield batch_of(self.start + self.step * np.arange(first, first + count, dtype=np.int64), self.pos)


def batch_of(ids: np.ndarray, pos: int) -> pa.RecordBatch:
    texts = pc.cast(pa.array(ids), pa.string())
    cents = pa.array(ids % 1_000_000).cast(pa.decimal128(19, 0))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(ids),
            pc.binary_join_element_wise("cust-", pc.cast(pa.array(ids % 999_983), pa.string()), ""),
            pc.multiply(cents, pa.scalar(1, pa.decimal128(3, 2))).cast(pa.decimal128(12, 2)),
            pa.array(1_767_225_600_000_000 + ids * 1_000_000).cast(pa.timestamp("us", "UTC")),
            pa.array(ids % 2 == 0),
            pc.binary_join_element_wise("note for row ", texts, " lorem ipsum dolo", ""),
            pc.binary_join_element_wise('{"k":', texts, "}", ""),
            pa.array(np.full(len(ids), pos, dtype=np.int64)),
        ],
        schema=SCHEMA,
    )


def orders_rows(splits: tuple[OrdersSplit, ...]) -> Rows:
    """The rows of a window."""
    return Rows("orders", SCHEMA, ("id",), ("pos",), splits)


@contextmanager
def lake(folder: Path) -> Iterator[SparkSession]:
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # workers must find this module
    settings = ProjectSettings(
        lake=LakeSettings(warehouse=str(folder)), spark=SparkSettings(master="local[2]", memory="3g")
    )
    session = start_session(settings, folder, ensure_jars(print))
    try:
        yield session
    finally:
        session.stop()


def sink(table: str, mode: str) -> IcebergSink:
    return IcebergSink(IcebergSinkSettings(table=table, mode=mode), "1:iceberg")


def land(spark: SparkSession, target: IcebergSink, rows: Rows) -> Landing:
    number = next(_WINDOWS)
    mark = ColumnMark("pos", CursorType.INTEGER, number)
    attempt = Attempt(
        pipeline="bench",
        run=f"run{number}",
        window=Window(None, mark),
        epoch=1,
        faults=NoFaults(),
        ensure_lease=lambda: None,
        spark=lambda: spark,
        progress=lambda _: None,
    )
    return target.land(attempt, rows)


def filled(spark: SparkSession, table: str, rows: int, splits: int = 4) -> None:
    """A new table with even ids from 0 on, so that there is room between them."""
    size = -(-rows // splits)
    parts = tuple(OrdersSplit(2 * first, 2, min(size, rows - first)) for first in range(0, rows, size))
    land(spark, sink(table, "append"), orders_rows(parts))
