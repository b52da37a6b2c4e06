"""Many windows of several pipelines in one table, all at once: every snapshot stays whole."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.model.errors import PublishConflict
from tests.sinks.iceberg.lake_table import LakeTable, orders

pytestmark = [pytest.mark.spark, pytest.mark.soak]

WINDOWS = 40


def test_every_snapshot_of_a_busy_table_can_be_read(lands: LakeTable, lake_folder: Path) -> None:
    lands.land(orders([0]), 999, mode="merge")
    conflicts: list[PublishConflict] = []

    def run(pipeline: str, first: int) -> None:
        sink, number = lands.sink(mode="merge"), 1
        while number <= WINDOWS:
            keys = range(first + number, first + number + 20)
            try:
                sink.land(lands.attempt(number, pipeline=pipeline), orders(keys, f"{pipeline} {number}"))
                number += 1
            except PublishConflict as conflict:  # the engine would try the same window again, as this does
                conflicts.append(conflict)

    threads = [threading.Thread(target=run, args=parts) for parts in (("one", 0), ("two", 1000), ("three", 2000))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lands.snapshots()) == 1 + 3 * WINDOWS
    assert [row["id"] for row in lands.rows()] == sorted(
        {0} | {first + n for first in (0, 1000, 2000) for n in range(1, WINDOWS + 20)}
    )
    for row in lands.spark.sql(f"SELECT snapshot_id, summary FROM {lands.table}.snapshots").collect():
        version = lands.spark.sql(f"SELECT count(*) AS n FROM {lands.table} VERSION AS OF {row.snapshot_id}").collect()
        assert version[0].n == int(row.summary["total-records"]) - int(row.summary.get("total-position-deletes", 0))
    assert lands.files(lake_folder) == lands.referenced()
