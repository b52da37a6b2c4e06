"""One writer: a process that lost the lease, or meets other writers, lands nothing twice and reverts nothing (G2, G4)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.model.errors import LeaseLost, PublishConflict
from headwater.model.rows import Rows
from headwater.sinks.iceberg.catalog.catalog import find_table
from headwater.sinks.iceberg.catalog.jvm import HeadMoved
from headwater.sinks.iceberg.catalog.publish import Stamp, prepare_update
from headwater.sinks.iceberg.catalog.table import table_for
from tests.sinks.iceberg.lake_table import LakeTable, orders

pytestmark = pytest.mark.spark


class Once:
    """Does something the first time it is called; a fault point or the check of a lease."""

    def __init__(self, action: Callable[[], object], point: str = "") -> None:
        self._action, self._point, self._done = action, point, False

    def __call__(self) -> None:
        if not self._done:
            self._done = True
            self._action()

    def reach(self, point: str) -> None:
        if point == self._point:
            self()


def meanwhile_rows(rows: Rows, action: Callable[[], object]) -> Rows:
    """Rows during whose reading something else happens."""

    def frame(spark):
        action()
        return rows.dataframe(spark)

    return replace(rows, splits=None, frame=frame)


def frozen_at(step: str, lands: LakeTable, rows: Rows, meanwhile: Callable[[], object], mode: str):
    """Land window 1 as epoch 1; at one step, something else happens first."""
    sink = lands.sink(mode=mode)
    if step == "reading":
        return sink.land(lands.attempt(1), meanwhile_rows(rows, meanwhile))
    if step == "written":
        return sink.land(lands.attempt(1, faults=Once(meanwhile, "land.written")), rows)
    return sink.land(lands.attempt(1, ensure_lease=Once(meanwhile)), rows)


@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize("step", ["reading", "written", "leased"])
def test_a_frozen_writer_wakes_up_after_its_window_was_landed(
    lands: LakeTable, lake_folder: Path, step: str, mode: str
) -> None:
    lands.land(orders(range(5), "old"), 99, mode=mode)
    taken_over = []

    def take_over() -> None:
        taken_over.append(lands.sink(mode=mode).land(lands.attempt(1, epoch=2), orders(range(3, 8), "second", 2)))

    landing = frozen_at(step, lands, orders(range(3, 8), "first", 2), take_over, mode)
    assert landing.proof["snapshot"] == taken_over[0].proof["snapshot"]
    assert not any("first" in row["note"] for row in lands.rows())
    assert len(lands.snapshots()) == 2
    assert lands.files(lake_folder) == lands.referenced()


@pytest.mark.parametrize("step", ["reading", "written", "leased"])
def test_a_frozen_writer_wakes_up_after_later_windows_were_landed(
    lands: LakeTable, lake_folder: Path, step: str
) -> None:
    lands.land(orders([1], "old"), 99, mode="merge")
    with pytest.raises(LeaseLost, match=r"another process took over \(epoch 2, ours is 1\)"):
        frozen_at(
            step,
            lands,
            orders([1, 2], "first"),
            lambda: lands.sink(mode="merge").land(lands.attempt(2, epoch=2), orders([1], "second")),
            "merge",
        )
    assert [row["note"] for row in lands.rows()] == ["second 1"]
    assert lands.files(lake_folder) == lands.referenced()


def test_a_lost_lease_stops_the_publishing(lands: LakeTable, lake_folder: Path) -> None:
    lands.land(orders([1]), 99)

    def lost() -> None:
        raise LeaseLost("gone")

    with pytest.raises(LeaseLost):
        lands.sink().land(lands.attempt(1, ensure_lease=lost), orders([2]))
    assert len(lands.snapshots()) == 1
    assert lands.files(lake_folder) == lands.referenced()


def test_an_earlier_epoch_writes_nothing(lands: LakeTable, lake_folder: Path) -> None:
    lands.sink().land(lands.attempt(1, epoch=5), orders([1]))
    with pytest.raises(LeaseLost):
        lands.sink().land(lands.attempt(2, epoch=4), orders([2]))
    lands.sink().land(lands.attempt(2, epoch=4, pipeline="another"), orders([3]))
    assert len(lands.snapshots()) == 2
    assert lands.files(lake_folder) == lands.referenced()


def test_a_foreign_insert_in_between_is_merged_over(lands: LakeTable, lake_folder: Path) -> None:
    lands.land(orders(range(5), "old"), 99, mode="merge")
    insert = Once(
        lambda: lands.spark.sql(f"INSERT INTO {lands.table} VALUES (7, 'foreign 7', 1), (50, 'foreign 50', 1)")
    )
    lands.sink(mode="merge").land(lands.attempt(1, ensure_lease=insert), orders([3, 7], "new"))
    notes = {row["id"]: row["note"] for row in lands.rows()}
    assert (len(lands.rows()), notes[3], notes[7], notes[50]) == (7, "new 3", "new 7", "foreign 50")
    assert lands.files(lake_folder) >= lands.referenced()
    assert not [name for name in lands.files(lake_folder) - lands.referenced() if "run" in name]


def test_a_compaction_in_between_is_merged_over(lands: LakeTable) -> None:
    sink = lands.sink(mode="merge")
    sink.land(lands.attempt(98), orders(range(5), "old"))
    sink.land(lands.attempt(99), orders(range(2, 8), "newer"))
    table = lands.table.removeprefix("lake.")
    compact = Once(
        lambda: lands.spark.sql(
            f"CALL lake.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
        )
    )
    sink.land(lands.attempt(1, ensure_lease=compact), orders([0, 3], "new"))
    assert {row["id"]: row["note"].split()[0] for row in lands.rows()} == {
        0: "new", 1: "old", 2: "newer", 3: "new", 4: "newer", 5: "newer", 6: "newer", 7: "newer",
    }  # fmt: skip
    assert len(lands.rows()) == 8


def test_a_table_that_never_rests_is_given_up(lands: LakeTable, lake_folder: Path) -> None:
    lands.land(orders([1]), 99)
    table = find_table(lands.spark, table_for(lands.table, "x"))
    values = itertools.count()
    with pytest.raises(PublishConflict, match="5 times"):
        lands.sink().land(
            lands.attempt(1, ensure_lease=lambda: table.java.updateProperties().set("n", str(next(values))).commit()),
            orders([2]),
        )
    assert len(lands.snapshots()) == 1
    assert lands.files(lake_folder) == lands.referenced()


def test_of_two_writers_with_the_same_base_exactly_one_publishes(lands: LakeTable) -> None:
    lands.land(orders([1]), 99)
    rounds = 4
    for number in range(rounds):
        together = threading.Barrier(2)
        outcomes: list[str] = []

        def publish(
            number: int = number, together: threading.Barrier = together, outcomes: list[str] = outcomes
        ) -> None:
            table = find_table(lands.spark, table_for(lands.table, "x"))
            attempt = lands.attempt(number, ensure_lease=lambda: together.wait(60) and None)
            stamp = Stamp.of(attempt, "1:iceberg", "shop.orders", rows=0, files=0, upsert="append", why="")
            try:
                prepare_update(table, table.head, table.java.newAppend(), stamp=stamp).publish(attempt)
                outcomes.append("published")
            except HeadMoved:
                outcomes.append("head moved")

        threads = [threading.Thread(target=publish) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["head moved", "published"]
    assert len(lands.snapshots()) == 1 + rounds


def test_two_pipelines_land_in_one_table_at_the_same_time(lands: LakeTable) -> None:
    lands.land(orders([0]), 99)

    def run(pipeline: str, first: int) -> None:
        sink = lands.sink(mode="merge")
        for number in (1, 2):
            sink.land(
                lands.attempt(number, pipeline=pipeline), orders(range(first, first + 10), f"{pipeline} {number}")
            )

    threads = [threading.Thread(target=run, args=parts) for parts in (("one", 100), ("two", 105))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [row["id"] for row in lands.rows()]
    assert ids == [0, *range(100, 115)]
    assert len(lands.snapshots()) == 5
