"""Objects that are read again, or are gone: their earlier rows go in the snapshot that adds the new ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.engine.rejects.table import rows_of_sink_rejects
from headwater.engine.spark.transform import apply_transform
from headwater.model.errors import AmbiguousKey, InputError, LeaseLost, SchemaRefused, TransformFailed
from headwater.model.rows import Objects, Reject, Rows
from headwater.testing.memory_rows import MemoryRejects, spark_rows
from tests.sinks.iceberg.catalog.test_publish import Once
from tests.sinks.iceberg.lake_table import IN_TASKS, LakeTable, objects, table_rows, url_of
from tests.sinks.iceberg.test_failures import Crash, CrashAt

pytestmark = pytest.mark.spark

MODE = "replace_object"


def content(lands: LakeTable) -> dict[str, list[str]]:
    """What the table holds of each object: the notes of its rows."""
    content: dict[str, list[str]] = {}
    for row in lands.rows():
        content.setdefault(row["object_url"].removeprefix(url_of("")), []).append(row["note"])
    return content


def files(lands: LakeTable) -> list[tuple[int, int]]:
    """The files of the table's head: kind (0 data, 1 deletes) and rows."""
    rows = lands.spark.sql(f"SELECT content, record_count FROM {lands.table}.files ORDER BY 1, 2").collect()
    return [(row.content, row.record_count) for row in rows]


def landings(lands: LakeTable, number: int) -> int:
    """How often the window is behind the table's head."""
    history = f"{lands.table}.history JOIN {lands.table}.snapshots USING (snapshot_id) WHERE is_current_ancestor"
    return lands.spark.sql(
        f"SELECT 1 FROM {history} AND summary['headwater.window'] = '{lands.attempt(number).window.id}'"
    ).count()


@contextmanager
def out_of_reach(lands: LakeTable, lake_folder: Path, *, but: set[str] = frozenset()) -> Iterator[None]:
    """Makes the present data files unreadable: reading one of them fails."""
    folder = lake_folder / lands.namespace.removeprefix("lake.") / lands.name / "data"
    hidden = [path for path in folder.rglob("*.parquet") if path.name not in but]
    for path in hidden:
        path.rename(path.with_suffix(".hidden"))
    yield
    for path in hidden:
        path.with_suffix(".hidden").rename(path)


@pytest.mark.parametrize("upsert", ["delete-append", "copy-on-write"])
def test_an_object_that_is_read_again_replaces_its_rows_in_one_snapshot(
    lands: LakeTable, lake_folder: Path, upsert: str
) -> None:
    sink = lands.sink(mode=MODE, upsert=upsert)
    first = sink.land(lands.attempt(1), objects({"a": [1, 2], "b": [3], "c": [4, 5]}, text="old"))
    assert (first.rows, first.proof["upsert"], first.proof["removed"]) == (5, "append", 0)
    landing = sink.land(lands.attempt(2), objects({"a": [6], "d": [7]}, earlier=["a"]))
    assert (landing.rows, landing.proof["upsert"], landing.proof["removed"]) == (2, upsert, 2)
    assert landing.proof["why"] == f"1 objects against 5 rows in 1 files; set by upsert: {upsert}"
    assert content(lands) == {"a": ["new 6"], "b": ["old 3"], "c": ["old 4", "old 5"], "d": ["new 7"]}
    assert lands.snapshots()[-1]["headwater.removed"] == "2"
    assert len(lands.snapshots()) == 2
    assert sink.landed(lands.attempt(2), "shop.orders").proof == landing.proof
    assert lands.files(lake_folder) == lands.referenced()


def test_rows_that_went_before_are_not_counted_again(lands: LakeTable) -> None:
    sink = lands.sink(mode=MODE, upsert="delete-append")
    sink.land(lands.attempt(1), objects({"a": [1, 2], "b": [3]}))
    assert sink.land(lands.attempt(2), objects({"a": [4, 5, 6]}, earlier=["a"])).proof["removed"] == 2
    assert sink.land(lands.attempt(3), objects({"a": [7]}, earlier=["a"])).proof["removed"] == 3
    assert content(lands) == {"a": ["new 7"], "b": ["new 3"]}
    assert files(lands) == [(0, 1), (0, 3), (1, 2)]  # the first file with its vector, the third; the second went whole


def test_a_file_of_which_nothing_is_left_goes_whole(lands: LakeTable) -> None:
    sink = lands.sink(mode=MODE, upsert="delete-append")
    sink.land(lands.attempt(1), objects({"a": [1, 2], "b": [3]}))
    sink.land(lands.attempt(2), objects({"b": []}, earlier=["b"]))
    assert files(lands) == [(0, 3), (1, 1)]
    sink.land(lands.attempt(3), objects({}, earlier=["a"]))
    assert files(lands) == []
    assert lands.rows() == []


@pytest.mark.parametrize("upsert", ["delete-append", "copy-on-write", "merge"])
def test_objects_that_are_empty_or_gone_lose_their_rows(lands: LakeTable, upsert: str) -> None:
    sink = lands.sink(mode=MODE, upsert=upsert)
    sink.land(lands.attempt(1), objects({"a": [1, 2], "b": [3], "c": [4]}))
    landing = sink.land(lands.attempt(2), objects({"a": [], "d": [5]}, earlier=["a"]))
    assert (landing.rows, landing.proof["removed"]) == (1, 2)
    empty = Rows(
        "shop.orders",
        pa.schema([("object_url", pa.string())]),
        splits=(),
        objects=Objects("object_url", (url_of("b"),)),
    )
    landing = sink.land(lands.attempt(3), empty)
    assert (landing.rows, landing.proof["removed"]) == (0, 1)
    assert content(lands) == {"c": ["new 4"], "d": ["new 5"]}
    assert lands.spark.table(lands.table).columns == ["id", "note", "object_url"]
    assert sink.land(lands.attempt(3), empty).proof["snapshot"] == landing.proof["snapshot"]


def test_what_changes_nothing_makes_no_snapshot(lands: LakeTable) -> None:
    sink = lands.sink(mode=MODE)
    never = Rows(
        "shop.orders", pa.schema([("object_url", pa.string())]), splits=(), objects=Objects("object_url", ("a",))
    )
    assert sink.land(lands.attempt(1), never).proof["removed"] == 0
    assert not lands.spark.catalog.tableExists(lands.table)
    sink.land(lands.attempt(2), objects({"a": [1]}))
    landing = sink.land(lands.attempt(3), objects({}, earlier=["b"]))
    assert (landing.rows, landing.proof["removed"], landing.proof["why"]) == (0, 0, "no rows")
    sink.land(lands.attempt(4), objects({}))
    assert len(lands.snapshots()) == 1


def test_new_objects_are_appended_without_a_look_at_the_table(lands: LakeTable, lake_folder: Path) -> None:
    sink = lands.sink(mode=MODE)
    sink.land(lands.attempt(1), objects({"a": [1], "c": [2]}))
    lands.spark.sparkContext.setJobGroup(lands.namespace, "a window of new objects")
    with out_of_reach(lands, lake_folder):
        landing = sink.land(lands.attempt(2), objects({"b": [3]}))
        with pytest.raises(Exception, match="parquet"):
            sink.land(lands.attempt(3), objects({"a": [4]}, earlier=["a"]))
    assert (landing.proof["upsert"], landing.proof["why"]) == ("append", "all objects are new")
    sink.land(lands.attempt(3), objects({"a": [4]}, earlier=["a"]))
    assert lands.spark.sparkContext.statusTracker().getJobIdsForGroup(lands.namespace) == []
    assert content(lands) == {"a": ["new 4"], "b": ["new 3"], "c": ["new 2"]}


def test_only_files_that_may_hold_one_of_the_objects_are_read(lands: LakeTable, lake_folder: Path) -> None:
    sink = lands.sink(mode=MODE)
    sink.land(lands.attempt(1), objects({"2024/01": [1], "2024/02": [2]}))
    sink.land(lands.attempt(2), objects({"2024/05": [3], "2024/06": [4]}))
    needed = lands.files(lake_folder)
    sink.land(lands.attempt(3), objects({"2024/03": [5], "2024/04": [6]}))
    with out_of_reach(lands, lake_folder, but=needed):
        landing = sink.land(lands.attempt(4), objects({"2024/01": [7], "2024/06": [8]}, earlier=["2024/01", "2024/06"]))
    assert landing.proof["why"].startswith("2 objects against 4 rows in 2 files")
    assert content(lands) == {f"2024/0{n}": [f"new {row}"] for n, row in enumerate([7, 2, 5, 6, 3, 8], start=1)}


def test_an_object_that_could_not_be_read_keeps_its_rows(lands: LakeTable) -> None:
    sink = lands.sink(mode=MODE)
    sink.land(lands.attempt(1), objects({"a": [1], "b": [2]}, text="old"))
    unread = Reject("orders", {"object": "b"}, "not found", b"", part="b")
    attempt = lands.attempt(2, rejects=MemoryRejects([unread]))
    assert sink.land(attempt, objects({"a": [3]}, earlier=["a", "b"])).proof["removed"] == 1
    assert content(lands) == {"a": ["new 3"], "b": ["old 2"]}


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("partition_by", [[], ["bucket(3, object_url)"], ["truncate(1, note)"]], ids=str)
def test_partitioned_tables_and_older_formats_give_the_same(
    lands: LakeTable, version: str, partition_by: list[str]
) -> None:
    sink = lands.sink(mode=MODE, partition_by=partition_by, properties={"format-version": version})
    sink.land(lands.attempt(1), objects({f"{n}": [n, n + 10] for n in range(6)}, text="old", splits=2))
    landing = sink.land(lands.attempt(2), objects({"1": [20], "3": []}, earlier=["1", "3", "4"]))
    assert (landing.rows, landing.proof["removed"]) == (1, 6)
    assert landing.proof["upsert"] == "copy-on-write"
    assert content(lands) == {"1": ["new 20"]} | {f"{n}": [f"old {n}", f"old {n + 10}"] for n in (0, 2, 5)}
    assert lands.refs() == {"main"}


@pytest.mark.parametrize("upsert", ["delete-append", "copy-on-write", "merge"])
def test_foreign_deletes_are_respected(lands: LakeTable, upsert: str) -> None:
    properties = {"format-version": "2", "write.delete.mode": "merge-on-read"}
    sink = lands.sink(mode=MODE, properties=properties, upsert=upsert)
    sink.land(lands.attempt(1), objects({"a": [1, 2], "b": [3, 4]}))
    lands.spark.sql(f"DELETE FROM {lands.table} WHERE id IN (2, 4)")
    lands.spark.sql(f"ALTER TABLE {lands.table} SET TBLPROPERTIES ('format-version' = '3')")
    landing = sink.land(lands.attempt(2), objects({"a": [5]}, earlier=["a"]))
    assert (landing.proof["upsert"], landing.proof["removed"]) == (upsert, 1)
    lands.spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{lands.table}', options => map('rewrite-all', 'true'))"
    )
    lands.spark.sql(f"DELETE FROM {lands.table} WHERE id = 5")
    landing = sink.land(lands.attempt(3), objects({"a": [6], "b": [7]}, earlier=["a", "b"]))
    assert (landing.proof["upsert"], landing.proof["removed"]) == (upsert, 1)
    assert content(lands) == {"a": ["new 6"], "b": ["new 7"]}


def test_columns_may_come_and_widen_between_versions_of_an_object(lands: LakeTable) -> None:
    sink = lands.sink(mode=MODE)
    narrow = pa.table({"id": pa.array([1, 2], pa.int32()), "object_url": ["a", "b"]})
    wide = pa.table({"more": ["x"], "id": pa.array([2**40], pa.int64()), "object_url": ["a"]})
    sink.land(lands.attempt(1), replace(table_rows(narrow), objects=Objects("object_url")))
    sink.land(lands.attempt(2), replace(table_rows(wide), objects=Objects("object_url", ("a",))))
    rows = [(row["id"], row["object_url"], row["more"]) for row in lands.rows()]
    assert rows == [(2, "b", None), (2**40, "a", "x")]


def test_large_tables_are_searched_by_spark_tasks(lands: LakeTable) -> None:
    sink = lands.sink(mode=MODE, tuning=IN_TASKS)
    sink.land(lands.attempt(1), objects({f"{n}": [n, n + 10] for n in range(10)}, text="old", splits=2))
    landing = sink.land(lands.attempt(2), objects({"3": [3], "7": []}, earlier=["3", "7"]))
    assert landing.proof["removed"] == 4
    assert content(lands) == {"3": ["new 3"]} | {
        f"{n}": [f"old {n}", f"old {n + 10}"] for n in range(10) if n not in {3, 7}
    }


def test_rows_that_only_spark_can_read_and_transforms_replace_too(lands: LakeTable, tmp_path: Path) -> None:
    sink = lands.sink(mode=MODE)
    sink.land(lands.attempt(1), spark_rows(objects({"a": [1], "b": [2]}, text="old")))
    rows = objects({"a": [3, 4]}, earlier=["a"])
    louder = apply_transform(
        rows, "SELECT id, upper(note) AS note, object_url FROM rows WHERE id > 3", tmp_path, lambda: lands.spark
    )
    assert sink.land(lands.attempt(2), louder).proof["removed"] == 1
    assert content(lands) == {"a": ["NEW 4"], "b": ["old 2"]}
    renaming = apply_transform(rows, "SELECT id, object_url AS source FROM rows", tmp_path, lambda: lands.spark)
    with pytest.raises(TransformFailed, match="leaves out or renames 'object_url'"):
        sink.land(lands.attempt(3), renaming)
    assert lands.land(renaming, 3, mode="append").rows == 2  # who replaces nothing needs no such column


def test_other_modes_do_what_they_always_did(lands: LakeTable) -> None:
    rows = objects({"a": [1]}, earlier=["a", "b"])
    for number in (1, 2):
        assert "removed" not in lands.land(rows, number).proof
    assert content(lands) == {"a": ["new 1", "new 1"]}
    merged = LakeTable(lands.spark, lands.namespace, "merged")
    for number in (1, 2):
        merged.land(objects({"a": [1], "b": [2]}, earlier=["a"]), number, mode="merge", key=["id"])
    assert content(merged) == {"a": ["new 1"], "b": ["new 2"]}


class TestRefusals:
    def test_rows_that_name_no_object(self, lands: LakeTable) -> None:
        with pytest.raises(InputError, match="needs the object of each row"):
            lands.land(replace(objects({"a": [1]}), objects=None), 1, mode=MODE)
        numbers = pa.table({"object_url": [1]})
        with pytest.raises(InputError, match="must be text, but is int64"):
            lands.land(replace(table_rows(numbers), objects=Objects("object_url")), 1, mode=MODE)
        assert not lands.spark.catalog.tableExists(lands.table)

    def test_a_row_whose_object_is_null(self, lands: LakeTable, lake_folder: Path) -> None:
        rows = pa.table({"id": [1, 2], "object_url": ["a", None]})
        with pytest.raises(AmbiguousKey, match="name no object can never be replaced: 'object_url' is NULL in 1 rows"):
            lands.land(replace(table_rows(rows), objects=Objects("object_url")), 1, mode=MODE)
        assert lands.snapshots() == []
        assert lands.files(lake_folder) == set()

    def test_a_table_without_the_column(self, lands: LakeTable) -> None:
        without = table_rows(pa.table({"id": [1]}))
        lands.land(table_rows(pa.table({"id": pa.array([], pa.int64())})), 1)
        lands.land(objects({"a": [1]}), 2, mode=MODE)  # a table without rows can still have it
        other = LakeTable(lands.spark, lands.namespace, "filled")
        other.land(without, 1)
        with pytest.raises(SchemaRefused, match="has rows and no column 'object_url'") as refused:
            other.land(objects({"a": [1]}), 2, mode=MODE)
        assert "rewind the pipeline to the start" in refused.value.hint
        assert other.spark.table(other.table).columns == ["id"]

    @pytest.mark.parametrize("noted", ["counts", "nothing"])
    def test_a_table_with_rows_that_name_no_object(self, lands: LakeTable, noted: str) -> None:
        metrics = {"write.metadata.metrics.default": "none"} if noted == "nothing" else {}
        lands.land(table_rows(pa.table({"id": [1, 2]})), 1, properties=metrics)
        lands.land(objects({"a": [3]}), 2)  # appended, with the column that is new
        with pytest.raises(SchemaRefused, match="'object_url' is NULL in 2 rows"):
            lands.land(objects({"a": [4]}, earlier=["a"]), 3, mode=MODE)
        lands.spark.sql(f"UPDATE {lands.table} SET object_url = '{url_of('a')}' WHERE object_url IS NULL")
        assert lands.land(objects({"a": [4]}, earlier=["a"]), 3, mode=MODE).proof["removed"] == 3
        assert content(lands) == {"a": ["new 4"]}


@pytest.mark.parametrize("upsert", ["auto", "merge"])
@pytest.mark.parametrize("point", ["land.written", "land.published"])
def test_what_a_crash_left_is_finished_and_removed(
    lands: LakeTable, lake_folder: Path, point: str, upsert: str
) -> None:
    lands.land(objects({"a": [1], "b": [2]}, text="old"), 99, mode=MODE)
    rows = objects({"a": [3], "c": [4]}, earlier=["a"])
    with pytest.raises(Crash):
        lands.sink(mode=MODE, upsert=upsert).land(lands.attempt(1, faults=CrashAt(point)), rows)
    landing = lands.sink(mode=MODE, upsert=upsert).land(lands.attempt(1, epoch=2), replace(rows))
    assert landing.proof["removed"] == 1
    assert content(lands) == {"a": ["new 3"], "b": ["old 2"], "c": ["new 4"]}
    assert landings(lands, 1) == 1
    assert lands.refs() == {"main"}
    assert not [name for name in lands.files(lake_folder) - lands.referenced() if "run" in name]


def test_a_crash_after_only_removing_is_recognised(lands: LakeTable) -> None:
    lands.land(objects({"a": [1], "b": [2]}), 99, mode=MODE)
    empty = objects({}, earlier=["a"])
    with pytest.raises(Crash):
        lands.sink(mode=MODE).land(lands.attempt(1, faults=CrashAt("land.published")), empty)
    lands.land(objects({"a": [5]}), 2, mode=MODE)  # came back meanwhile; it is new to the table
    landing = lands.land(empty, 1, mode=MODE)
    assert landing.proof["removed"] == 1
    assert content(lands) == {"a": ["new 5"], "b": ["new 2"]}


def test_a_writer_that_lost_its_lease_replaces_nothing(lands: LakeTable, lake_folder: Path) -> None:
    lands.land(objects({"a": [1]}, text="old"), 99, mode=MODE)
    take_over = Once(
        lambda: lands.sink(mode=MODE).land(lands.attempt(2, epoch=2), objects({"a": [2]}, ["a"], "second")),
        "land.written",
    )
    with pytest.raises(LeaseLost):
        lands.sink(mode=MODE).land(lands.attempt(1, faults=take_over), objects({"a": [3]}, ["a"], "first"))
    assert content(lands) == {"a": ["second 2"]}
    assert lands.files(lake_folder) == lands.referenced()


def test_rows_that_others_add_or_compact_in_between_are_found(lands: LakeTable) -> None:
    sink = lands.sink(mode=MODE)
    sink.land(lands.attempt(1), objects({"a": [1], "b": [2]}))
    sink.land(lands.attempt(2), objects({"b": [3]}, earlier=["b"]))
    insert = f"INSERT INTO {lands.table} VALUES (7, 'foreign 7', '{url_of('a')}')"
    compact = f"CALL lake.system.rewrite_data_files(table => '{lands.table}', options => map('rewrite-all', 'true'))"
    meanwhile = Once(lambda: [lands.spark.sql(statement) for statement in (insert, compact)])
    landing = sink.land(lands.attempt(3, ensure_lease=meanwhile), objects({"a": [4]}, earlier=["a"]))
    assert landing.proof["removed"] == 2
    assert content(lands) == {"a": ["new 4"], "b": ["new 3"]}


def test_a_row_that_the_sink_set_aside_comes_back_to_its_object(lands: LakeTable) -> None:
    rejects = MemoryRejects()

    def rows(*nanoseconds: int) -> Rows:
        table = pa.table({"at": pa.array(nanoseconds, pa.timestamp("ns")), "object_url": ["a"] * len(nanoseconds)})
        return replace(table_rows(table), objects=Objects("object_url"))

    attempt = lands.attempt(1, rejects=rejects)
    assert lands.sink(mode=MODE).land(attempt, rows(1_000, 1)).rows == 1
    again = rows_of_sink_rejects(rejects.rejects)
    assert again.objects == Objects("object_url")
    lands.spark.sql(f"ALTER TABLE {lands.table} DROP COLUMN at")  # so that there is a place for the row
    lands.spark.sql(f"ALTER TABLE {lands.table} ADD COLUMN at string")
    text = replace(again, schema=pa.schema([("at", pa.string()), ("object_url", pa.string())]))
    with pytest.raises(InputError, match="needs the object"):
        lands.land(replace(text, objects=None), 2, mode=MODE)
    assert lands.land(text, 2, mode=MODE).rows == 1
    assert [row["object_url"] for row in lands.rows()] == ["a", "a"]
