"""What tables look like: types, evolution, partitions, names, and that other engines read them."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from headwater.model.errors import SchemaRefused, UnknownName
from tests.sinks.iceberg.lake_table import LakeTable, orders, table_rows

pytestmark = pytest.mark.spark

EVERYTHING = {
    "id": pa.array([1, 2], pa.int64()),
    "yes": pa.array([True, None]),
    "small": pa.array([-5, None], pa.int16()),
    "big": pa.array([2**64 - 1, None], pa.uint64()),
    "real": pa.array([1.5, None], pa.float32()),
    "price": pa.array([decimal.Decimal("12345678901234567890.12"), None], pa.decimal128(25, 2)),
    "cheap": pa.array([decimal.Decimal("-1.23"), None], pa.decimal128(5, 2)),
    "day": pa.array([dt.date(1900, 1, 1), None]),
    "wall": pa.array([dt.datetime(2024, 1, 1, 2, 3, 4, 567890), None], pa.timestamp("us")),  # noqa: DTZ001
    "at": pa.array([dt.datetime(2024, 1, 1, 2, 3, 4, 567890, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
    "clock": pa.array([dt.time(1, 2, 3, 4), None], pa.time64("us")),
    "name": pa.array(["ünïcode", None]),
    "uid": pa.array([uuid.UUID(int=7).bytes, None], pa.uuid()),
    "raw": pa.array([b"\x00\xff", None]),
    "four": pa.array([b"1234", None], pa.binary(4)),
    "tags": pa.array([["a", None], None], pa.list_(pa.string())),
    "deep": pa.array([{"x": 1, "y": [{"z": 2}]}, None], pa.struct([("x", pa.int64()), ("y", pa.list_(pa.struct([("z", pa.int32())])))])),
    "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
}  # fmt: skip


def scanned(lands: LakeTable) -> pa.Table:
    """The table as pyiceberg reads it, without Spark."""
    located = lands.spark.sql(f"SELECT file FROM {lands.table}.metadata_log_entries ORDER BY timestamp DESC LIMIT 1")
    return StaticTable.from_metadata(located.collect()[0].file).scan().to_arrow()


@pytest.mark.parametrize("upsert", ["delete-append", "copy-on-write"])
def test_every_type_is_kept_exactly_and_read_by_other_engines(lands: LakeTable, upsert: str) -> None:
    table = pa.table(EVERYTHING)
    sink = lands.sink(mode="merge", upsert=upsert)
    sink.land(lands.attempt(1), table_rows(table, key=["id"]))
    sink.land(lands.attempt(2), table_rows(table.slice(1), key=["id"], counted=False))
    row = lands.rows()[0]
    assert row["big"] == 2**64 - 1
    assert row["price"] == decimal.Decimal("12345678901234567890.12")
    assert row["wall"] == dt.datetime(2024, 1, 1, 2, 3, 4, 567890)  # noqa: DTZ001
    assert (row["clock"], row["uid"], bytes(row["raw"])) == ("01:02:03.000004", str(uuid.UUID(int=7)), b"\x00\xff")
    assert (row["tags"], row["deep"].y[0].z, row["map"]) == (["a", None], 2, {"k": 1})
    assert all(value is None for name, value in lands.rows()[1].items() if name != "id")
    theirs = scanned(lands).sort_by("id")
    assert theirs.column("id").to_pylist() == [1, 2]
    assert theirs.column("at").to_pylist() == EVERYTHING["at"].to_pylist()
    assert theirs.column("deep").to_pylist() == EVERYTHING["deep"].to_pylist()
    counted = duckdb.sql("SELECT count(*), sum(cheap)::VARCHAR FROM theirs").fetchall()
    assert counted == [(2, "-1.23")]


@pytest.mark.parametrize("upsert", ["delete-append", "copy-on-write"])
def test_a_table_follows_its_source(lands: LakeTable, upsert: str) -> None:
    lands.land(
        table_rows(
            pa.table(
                {"id": pa.array([1, 2], pa.int32()), "gone": ["a", "b"], "price": pa.array([1.5, 2], pa.float32())}
            )
        ),
        1,
    )
    wider = pa.schema([("id", pa.int64()), ("price", pa.float64()), pa.field("dot.ted", pa.string(), nullable=False)])
    rows = table_rows(pa.table([pa.array([2, 2**40]), pa.array([0.1, 0.2]), ["x", "y"]], schema=wider))
    landing = lands.land(rows, 2, mode="merge", key=["id"], upsert=upsert)
    assert landing.proof["upsert"] == upsert
    assert lands.rows() == [
        {"id": 1, "gone": "a", "price": 1.5, "dot.ted": None},
        {"id": 2, "gone": None, "price": 0.1, "dot.ted": "x"},
        {"id": 2**40, "gone": None, "price": 0.2, "dot.ted": "y"},
    ]
    assert scanned(lands).num_rows == 3


def test_an_identifier_that_may_be_null_now_is_none_any_more(lands: LakeTable) -> None:
    lands.land(orders([1]), 1)
    lands.land(table_rows(pa.table({"note": ["x"]})), 2)
    assert sorted((row["id"] or 0, row["note"]) for row in lands.rows()) == [(0, "x"), (1, "new 1")]


def test_what_cannot_follow_is_refused_before_anything_is_written(lands: LakeTable, lake_folder: Path) -> None:
    lands.land(orders([1]), 1)
    with pytest.raises(SchemaRefused, match="'note' is string in the table and long in the source"):
        lands.land(table_rows(pa.table({"id": [1], "note": [5], "more": [1]})), 2)
    assert lands.spark.table(lands.table).columns == ["id", "note", "seq"]
    assert lands.files(lake_folder) == lands.referenced()


def partitioned_rows() -> pa.Table:
    count = 40
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "country": [None if n % 7 == 0 else f"c/{n % 3} =&" for n in range(count)],
            "at": pa.array([dt.datetime(1969, 12, 30, tzinfo=dt.UTC) + dt.timedelta(hours=5 * n) for n in range(count)], pa.timestamp("us", "UTC")),
            "wall": pa.array([dt.datetime(2024, 1, 1 + n % 2) for n in range(count)], pa.timestamp("us")),  # noqa: DTZ001
            "day": pa.array([dt.date(2024, 1 + n % 2, 1) for n in range(count)]),
            "price": pa.array([decimal.Decimal(n % 3) / 10 for n in range(count)], pa.decimal128(9, 2)),
            "uid": pa.array([uuid.UUID(int=n % 2).bytes for n in range(count)], pa.uuid()),
            "flag": [n % 2 == 0 for n in range(count)],
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        ["day(at)", "bucket(4, id)", "truncate(3, country)"],
        ["country", "flag", "price", "day", "wall"],
        ["uid", "truncate(10, id)"],
        ["bucket(3, uid)", "month(day)", "hour(wall)", "year(at)"],
    ],
)
def test_partitions_hold_their_rows(lands: LakeTable, fields: list[str]) -> None:
    table = partitioned_rows()
    sink = lands.sink(mode="merge", partition_by=fields)
    sink.land(lands.attempt(1), table_rows(table, key=["id"], splits=2, counted=False))
    sink.land(lands.attempt(2), table_rows(table.slice(10, 10), key=["id"]))
    spark, name = lands.spark, lands.table
    assert spark.table(name).count() == 40
    assert spark.sql(f"SELECT count(*) AS n FROM {name}.files").collect()[0].n > 2
    # Iceberg leaves out partitions by these conditions: with a wrong value in the metadata rows would be missing.
    conditions = ["country = 'c/1 =&'", "country IS NULL", "at < TIMESTAMP '1970-01-01 00:00:00Z'", "id = 17", "flag",
                  "wall = TIMESTAMP_NTZ '2024-01-02 00:00:00'", "day = DATE '2024-02-01'", "price = 0.10",
                  "uid = '00000000-0000-0000-0000-000000000001'"]  # fmt: skip
    counts = ", ".join(f"(SELECT count(*) FROM {name} WHERE {condition})" for condition in conditions)
    unpruned = ", ".join(f"count_if({condition})" for condition in conditions)
    assert spark.sql(f"SELECT {counts}").collect()[0][:] == spark.sql(f"SELECT {unpruned} FROM {name}").collect()[0][:]


def test_an_unknown_partition_column_is_named_with_the_nearest(lands: LakeTable) -> None:
    with pytest.raises(UnknownName, match="'nots'") as unknown:
        lands.land(orders([1]), 1, partition_by=["nots"])
    assert "did you mean 'note'" in str(unknown.value)


HOSTILE = [
    "a b",
    'quo"te',
    "back`tick",
    "dot.ted",
    "select",
    "日本",
    "it's",
    "semi;colon",
    "tab\there",
    "a",
    "a%20b",
    "{x}",
    "k0",
]


@pytest.mark.parametrize("upsert", ["delete-append", "copy-on-write", "merge"])
def test_hostile_column_names_are_only_names(lands: LakeTable, upsert: str) -> None:
    def rows(ids: range, text: str) -> pa.Table:
        columns = {name: [f"{text} {n}" for n in ids] for name in HOSTILE}
        return pa.table({**columns, "dot.ted": list(ids), "back`tick": [str(n) for n in ids], "id": list(ids)})

    sink = lands.sink(
        mode="merge", key=["dot.ted", "back`tick"], upsert=upsert, partition_by=["bucket(2, dot.ted)", "select"]
    )
    sink.land(lands.attempt(1), table_rows(rows(range(6), "old")))
    landing = sink.land(lands.attempt(2), table_rows(rows(range(3, 9), "new")))
    assert landing.proof["upsert"] == upsert
    by_id = {row["id"]: row for row in lands.rows()}
    assert len(lands.rows()) == 9
    assert [by_id[n]["it's"].split()[0] for n in range(9)] == ["old"] * 3 + ["new"] * 6
    assert set(lands.spark.table(lands.table).columns) == {*HOSTILE, "id"}
