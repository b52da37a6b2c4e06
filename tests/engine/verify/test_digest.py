"""Spark and Arrow read a table's rows to the same hashes, deleted rows and younger columns included."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pytest

from headwater.config.sinks.iceberg import IcebergSinkSettings
from headwater.engine.verify.digest import KEY, ROW, Digests
from headwater.model.rows import Rows
from headwater.sinks.iceberg.sink import IcebergSink
from headwater.sinks.iceberg.snapshot_reader import read_by_spark
from headwater.sinks.tasks import RowCounter
from headwater.testing.memory_rows import attempt_at, memory_rows, window_up_to

pytestmark = pytest.mark.spark
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.int16()),
        ("yes", pa.bool_()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("price", pa.decimal128(38, 10)),
        ("day", pa.date32()),
        ("wall", pa.timestamp("us")),
        ("at", pa.timestamp("us", "UTC")),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("who", pa.uuid()),
    ]
)
WALL = dt.datetime(1, 1, 1)  # noqa: DTZ001 - a clock without a zone
EDGES = [
    {"id": 1, "small": -32768, "yes": True, "single": 0.1, "double": -0.0, "price": Decimal("-1e-10"), "day": dt.date(1, 1, 1),
     "wall": WALL, "at": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC), "text": "üñ🚀\0x", "raw": b"\0", "who": uuid.UUID(int=7)},
    {"id": 2, "small": 32767, "yes": False, "single": float("nan"), "double": float("inf"), "price": Decimal(10**27), "day": dt.date(9999, 12, 31),
     "wall": WALL + dt.timedelta(days=700_000, microseconds=1), "at": dt.datetime(1582, 10, 10, tzinfo=dt.UTC), "text": "", "raw": b"", "who": uuid.UUID(int=2**128 - 1)},
    {"id": 3},
    {"id": 4, "text": "a" * 300, "raw": b"b" * 257},
]  # fmt: skip


def rows_of(rows: list[dict], schema: pa.Schema = SCHEMA) -> Rows:
    arrays = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if isinstance(field.type, pa.UuidType):
            storage = pa.array([None if value is None else value.bytes for value in values], pa.binary(16))
            arrays.append(pa.ExtensionArray.from_storage(field.type, storage))
        else:
            arrays.append(pa.array(values, field.type))
    return memory_rows("s", (pa.Table.from_arrays(arrays, schema=schema),), ("id",), ("id",))


def test_rows_at_the_edges_of_their_types(spark, namespace):
    sink = IcebergSink(IcebergSinkSettings(table=f"{namespace}.t", mode="merge"), "1:iceberg")

    def land(window, rows) -> None:
        sink.land(attempt_at(window, spark=lambda: spark), rows)

    older = pa.schema([field for field in SCHEMA if field.name not in {"text", "price"}])
    land(window_up_to(1), rows_of([{"id": 5, "small": 1}, {"id": 6}, {"id": 7, "double": 1.5}], older))
    land(window_up_to(2, 1), rows_of(EDGES))
    land(window_up_to(3, 2), rows_of([{"id": 6, "text": "again"}]))
    spark.sql(f"DELETE FROM {namespace}.t WHERE id = 7")
    lake = sink.lake(spark)
    snapshot = lake.history("shop", "s").before(lambda _: False)
    kinds = pa.schema(
        [field.with_nullable(nullable=True) for field in SCHEMA] + [pa.field("later", pa.decimal128(9, 2))]
    )
    kinds = kinds.set(1, pa.field("small", pa.int32()))
    digests = Digests("s", kinds, ("id",))
    arrow = snapshot.rows(rows_of(EDGES), kinds)
    assert arrow.splits
    frame = partial(read_by_spark, lake.table("s").quoted, snapshot.snapshot, arrow.splits[0].columns)
    by_spark = Rows("s", kinds, frame=frame)
    tables = [
        digests.list_keys(rows, lambda: spark, RowCounter(lambda _: None)).sort_by("id") for rows in (arrow, by_spark)
    ]
    assert tables[0].column("id").to_pylist() == [1, 2, 3, 4, 5, 6]
    assert tables[0].equals(tables[1])
    here = digests.list_keys(
        rows_of([*EDGES, {"id": 5, "small": 1}, {"id": 6, "text": "again"}]), lambda: spark, RowCounter(lambda _: None)
    )
    assert here.sort_by("id").select([*KEY, *ROW]).equals(tables[0].select([*KEY, *ROW]))


def test_a_landing_beyond_the_mark_is_not_seen(spark, namespace):
    sink = IcebergSink(IcebergSinkSettings(table=f"{namespace}.t", mode="merge"), "1:iceberg")
    for number in (1, 2, 3):
        window = window_up_to(number, number - 1 or None)
        sink.land(attempt_at(window, spark=lambda: spark), rows_of([{"id": number}]))
    history = sink.lake(spark).history("shop", "s")

    def ids(beyond) -> list[int]:
        rows = history.before(beyond).rows(rows_of([]), pa.schema([("id", pa.int64())]))
        batches = [batch for split in rows.splits for batch in split.read()]
        return sorted(value for batch in batches for value in batch.column("id").to_pylist())

    third, second = window_up_to(3, 2).id, window_up_to(2, 1).id
    assert ids(lambda _: False) == [1, 2, 3]
    assert ids(lambda landing: landing.window == third) == [1, 2]
    assert ids(lambda landing: landing.window in {second, third}) == [1]
    assert ids(lambda _: True) == []
