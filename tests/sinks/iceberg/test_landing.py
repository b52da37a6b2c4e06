"""Landing windows in an Iceberg table: append, merge, replace, and the same window again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.model.rows import Rows
from headwater.sinks.iceberg.catalog.catalog import find_table
from headwater.sinks.iceberg.catalog.table import table_for
from headwater.testing.memory_rows import TrickleSplit, spark_rows, tables_of
from tests.sinks.iceberg.lake_table import LakeTable, orders

pytestmark = pytest.mark.spark


def test_the_first_landing_makes_the_table_with_types_and_key(lands: LakeTable) -> None:
    landing = lands.land(orders(range(10), splits=2), mode="merge")
    assert (landing.sink, landing.rows, landing.proof["upsert"], landing.proof["files"]) == (
        "1:iceberg",
        10,
        "append",
        2,
    )
    assert lands.progress == [5, 5]
    columns = {f.name: (f.dataType.simpleString(), f.nullable) for f in lands.spark.table(lands.table).schema.fields}
    assert columns == {"id": ("bigint", False), "note": ("string", True), "seq": ("bigint", True)}
    properties = {row.key: row.value for row in lands.spark.sql(f"SHOW TBLPROPERTIES {lands.table}").collect()}
    assert json.loads(properties["headwater.key"]) == ["id"]
    assert properties["format-version"] == "3"
    assert properties["identifier-fields"] == "[id]"


@pytest.mark.parametrize("offered", ["splits", "a DataFrame"])
def test_rows_are_told_while_tasks_still_write_them(lands: LakeTable, tmp_path: Path, offered: str) -> None:
    """The source gives rows until progress was reported three times, so the landing would never end without."""
    counts: list[int] = []

    def hear(rows: int) -> None:
        counts.append(rows)
        if len(counts) == 3:
            (tmp_path / "enough").touch()

    batch = tables_of(orders(range(100)))[0].to_batches()[0]
    splits = tuple(TrickleSplit(batch, tmp_path / "enough") for _ in range(3))
    rows: Rows = Rows("shop.orders", batch.schema, splits=splits)
    rows = rows if offered == "splits" else spark_rows(rows)
    landing = lands.sink().land(replace(lands.attempt(), progress=hear), rows)
    assert all(count > 0 for count in counts)
    assert sum(counts) == landing.rows == lands.spark.table(lands.table).count()


def test_windows_are_appended_one_snapshot_each(lands: LakeTable, lake_folder: Path) -> None:
    sink = lands.sink()
    for number in (1, 2, 3):
        sink.land(lands.attempt(number), orders(range(number * 10, number * 10 + 10), splits=2, counted=number != 2))
    assert len(lands.rows()) == 30
    stamps = [(s["headwater.window"], s["headwater.rows"], s["headwater.pipeline"]) for s in lands.snapshots()]
    assert stamps == [(lands.attempt(n).window.id, "10", "shop") for n in (1, 2, 3)]
    assert lands.files(lake_folder) == lands.referenced()


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("upsert", ["delete-append", "copy-on-write"])
def test_a_merge_replaces_rows_by_key_and_adds_the_others(
    lands: LakeTable, lake_folder: Path, upsert: str, version: str
) -> None:
    sink = lands.sink(mode="merge", upsert=upsert, properties={"format-version": version})
    sink.land(lands.attempt(1), orders(range(10), "old"))
    landing = sink.land(lands.attempt(2), orders(range(5, 15), "new", 2))
    assert (landing.rows, landing.proof["upsert"], landing.proof["removed"]) == (10, upsert, 5)
    assert [row["note"] for row in lands.rows()] == [f"old {n}" for n in range(5)] + [f"new {n}" for n in range(5, 15)]
    landing = sink.land(lands.attempt(3), orders(range(3, 7), "newer", 3))
    expected = {
        **dict.fromkeys(range(5), "old"),
        **dict.fromkeys(range(5, 15), "new"),
        **dict.fromkeys(range(3, 7), "newer"),
    }
    assert {row["id"]: row["note"].split()[0] for row in lands.rows()} == expected
    assert len(lands.snapshots()) == 3
    assert lands.files(lake_folder) == lands.referenced()


def test_a_merge_of_keys_beyond_all_bounds_only_appends(lands: LakeTable) -> None:
    sink = lands.sink(mode="merge")
    sink.land(lands.attempt(1), orders(range(10)))
    landing = sink.land(lands.attempt(2), orders(range(100, 110)))
    assert landing.proof["upsert"] == "append"
    assert "outside the bounds" in landing.proof["why"]
    assert len(lands.rows()) == 20


@pytest.mark.parametrize("version", ["2", "3"])
def test_sparks_merge_gives_the_same(lands: LakeTable, lake_folder: Path, version: str) -> None:
    sink = lands.sink(mode="merge", upsert="merge", properties={"format-version": version})
    sink.land(lands.attempt(1), orders(range(10), "old"))
    landing = sink.land(lands.attempt(2), orders(range(5, 15), "new", 2))
    assert (landing.rows, landing.proof["upsert"]) == (10, "merge")
    assert {row["id"]: row["note"].split()[0] for row in lands.rows()} == {
        n: "old" if n < 5 else "new" for n in range(15)
    }
    assert lands.refs() == {"main"}
    assert lands.snapshots()[-1]["headwater.window"] == lands.attempt(2).window.id
    assert lands.files(lake_folder) == lands.referenced()
    assert lands.land(orders(range(5, 15), "other"), 2, mode="merge").proof["snapshot"] == landing.proof["snapshot"]


def test_replace_makes_the_window_the_table(lands: LakeTable) -> None:
    sink = lands.sink(mode="replace")
    sink.land(lands.attempt(1), orders(range(10)))
    sink.land(lands.attempt(2), orders([7, 8]))
    assert [row["id"] for row in lands.rows()] == [7, 8]
    sink.land(lands.attempt(3), orders([]))
    assert lands.rows() == []
    assert len(lands.snapshots()) == 3


@pytest.mark.parametrize("mode", ["append", "merge", "replace"])
def test_a_window_that_landed_is_not_landed_again(lands: LakeTable, mode: str) -> None:
    first = lands.land(orders(range(10), "old"), 1, mode=mode)
    lands.land(orders(range(5, 15)), 2, mode=mode)
    before, history = lands.rows(), lands.snapshots()
    sink = lands.sink(mode=mode)
    assert sink.landed(lands.attempt(1), "shop.orders") is not None
    again = sink.land(lands.attempt(1), orders(range(10), "again"))
    assert (again.rows, again.proof["snapshot"]) == (first.rows, first.proof["snapshot"])
    assert (lands.rows(), lands.snapshots()) == (before, history)


def test_a_window_that_never_landed_is_not_claimed(lands: LakeTable) -> None:
    sink = lands.sink()
    assert sink.landed(lands.attempt(1), "shop.orders") is None
    lands.land(orders([1]), 1)
    assert sink.landed(lands.attempt(2), "shop.orders") is None
    assert sink.landed(lands.attempt(1, pipeline="other"), "shop.orders") is None


def test_a_window_is_recognised_behind_many_snapshots_of_others(lands: LakeTable) -> None:
    sink = lands.sink()
    first = sink.land(lands.attempt(1), orders([1]))
    table = find_table(lands.spark, table_for(lands.table, "x"))
    for _ in range(20):
        table.java.newAppend().commit()
    for asked in (sink, lands.sink()):
        landing = asked.landed(lands.attempt(1), "shop.orders")
        assert landing is not None
        assert landing.proof == first.proof
    sink.land(lands.attempt(2), orders([2]))
    lands.spark.sql(f"CALL lake.system.rollback_to_snapshot('{lands.table}', {first.proof['snapshot']})")
    assert sink.landed(lands.attempt(2), "shop.orders") is None
    sink.land(lands.attempt(2), orders([2]))
    assert [row["id"] for row in lands.rows()] == [1, 2]


def test_a_table_that_was_dropped_is_made_again(lands: LakeTable) -> None:
    sink = lands.sink()
    sink.land(lands.attempt(1), orders([1]))
    lands.spark.sql(f"DROP TABLE {lands.table}")
    sink.land(lands.attempt(2), orders([2]))
    assert [row["id"] for row in lands.rows()] == [2]


def test_an_empty_window_changes_nothing(lands: LakeTable) -> None:
    lands.land(orders([1]), 1)
    assert lands.land(orders([]), 2).rows == 0
    assert len(lands.snapshots()) == 1


def test_rows_that_only_spark_can_read_land_the_same_way(lands: LakeTable, lake_folder: Path) -> None:
    sink = lands.sink(mode="merge")
    sink.land(lands.attempt(1), spark_rows(orders(range(10), "old")))
    landing = sink.land(lands.attempt(2), spark_rows(orders(range(5, 15), "new")))
    assert landing.rows == 10
    assert {row["id"]: row["note"].split()[0] for row in lands.rows()} == {
        n: "old" if n < 5 else "new" for n in range(15)
    }
    assert lands.files(lake_folder) == lands.referenced()
