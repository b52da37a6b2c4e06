"""Failed and crashed landings leave the table, and its folder, as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.model.errors import InputError, RunError, SinkUnreachable, SourceUnreachable, UnknownName
from headwater.testing.memory_rows import failing
from tests.sinks.iceberg.lake_table import LakeTable, orders
from tests.support.wait import wait_until

pytestmark = pytest.mark.spark


class Crash(BaseException):
    """The end of the process: nothing after it runs."""


class CrashAt:
    def __init__(self, point: str) -> None:
        self._point = point

    def reach(self, point: str) -> None:
        if point == self._point:
            raise Crash


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (SourceUnreachable("the database went away", hint="start it"), SourceUnreachable, "the database went away"),
        (
            ValueError("odd bytes at https://me:secret@host/x"),
            RunError,
            "ValueError: odd bytes at https://me:****@host/x",
        ),
    ],
)
@pytest.mark.parametrize("counted", [True, False], ids=["in this process", "in a task"])
def test_a_failing_split_leaves_no_file_and_no_snapshot(
    lands: LakeTable, lake_folder: Path, error, kind, text, counted
) -> None:
    lands.land(orders([1]), 99)
    with pytest.raises(kind) as failed:
        lands.land(failing(orders(range(20), counted=counted), error), 1)
    assert text in failed.value.message
    assert "secret" not in str(failed.value)
    assert len(lands.snapshots()) == 1
    assert lands.files(lake_folder) == lands.referenced()


def test_what_other_tasks_of_a_failed_job_still_write_goes_with_the_next_try(
    lands: LakeTable, lake_folder: Path
) -> None:
    rows = orders(range(20), splits=4, counted=False)
    with pytest.raises(SourceUnreachable):
        lands.land(failing(rows, SourceUnreachable("gone")), 1)
    lands.land(rows, 1)
    assert len(lands.rows()) == 20
    wait_until(lambda: lands.files(lake_folder) == lands.referenced())


@pytest.mark.parametrize("upsert", ["delete-append", "copy-on-write", "merge"])
@pytest.mark.parametrize("point", ["land.written", "land.published"])
def test_what_a_crash_left_is_finished_and_removed(
    lands: LakeTable, lake_folder: Path, point: str, upsert: str
) -> None:
    lands.land(orders(range(5), "old"), 99, mode="merge")
    with pytest.raises(Crash):
        lands.sink(mode="merge", upsert=upsert).land(lands.attempt(1, faults=CrashAt(point)), orders([3, 7], "first"))
    assert lands.files(lake_folder) - lands.referenced() or point == "land.published"
    lands.sink(mode="merge", upsert=upsert).land(lands.attempt(1, epoch=2), orders([3, 7], "second"))
    notes = {row["id"]: row["note"] for row in lands.rows()}
    assert len(lands.rows()) == 6
    assert {notes[3], notes[7]} == ({"first 3", "first 7"} if point == "land.published" else {"second 3", "second 7"})
    assert lands.refs() == {"main"}
    left = lands.files(lake_folder) - lands.referenced()
    assert not [name for name in left if "run" in name]


def test_files_that_another_snapshot_refers_to_are_kept(lands: LakeTable) -> None:
    first = lands.land(orders([1]), 1)
    lands.land(orders([2], "tagged"), 2)
    lands.spark.sql(f"ALTER TABLE {lands.table} CREATE TAG kept")
    table = lands.table.removeprefix("lake.")
    lands.spark.sql(f"CALL lake.system.rollback_to_snapshot('{table}', {first.proof['snapshot']})")
    lands.land(orders([2], "again"), 2)
    assert [row["note"] for row in lands.rows()] == ["new 1", "again 2"]
    tagged = lands.spark.sql(f"SELECT note FROM {lands.table} VERSION AS OF 'kept' ORDER BY note").collect()
    assert [row.note for row in tagged] == ["new 1", "tagged 2"]


def test_a_lake_that_cannot_be_written_is_named(lands: LakeTable, lake_folder: Path) -> None:
    lands.land(orders([1]), 99)
    folder = lake_folder / lands.namespace.removeprefix("lake.") / lands.name
    (folder / "data").rename(folder / "elsewhere")
    (folder / "data").write_text("in the way")
    with pytest.raises(SinkUnreachable, match=lands.namespace.removeprefix("lake.")):
        lands.land(orders([2]), 1)
    (folder / "data").unlink()
    (folder / "elsewhere").rename(folder / "data")
    for metadata in (folder / "metadata").glob("*.metadata.json"):
        metadata.unlink()
    with pytest.raises(SinkUnreachable, match=lands.table):
        lands.land(orders([2]), 1)


def test_a_catalog_that_is_not_there_is_named(lands: LakeTable) -> None:
    with pytest.raises(UnknownName, match="no catalog 'laek'"):
        lands.land(orders([2]), 1, table="laek.shop.orders")
    with pytest.raises(InputError, match="is not an Iceberg catalog"):
        lands.land(orders([2]), 1, table="spark_catalog.shop.orders")


def test_two_streams_in_one_table_are_refused_in_different_cycles_too(lands: LakeTable) -> None:
    lands.land(orders([1], stream="a.orders"), 1)
    with pytest.raises(InputError, match=r"'a.orders' and 'b.orders' would both land in"):
        lands.land(orders([1], stream="b.orders"), 2)
    assert len(lands.rows()) == 1
