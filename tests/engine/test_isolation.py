"""A stream that fails by itself stops no other: they land and go on, and it catches up, once, when it is mended (G1, G2)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from headwater.model.faults import EVERY_CYCLE
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PER_LANDING = ("land.before", "land.written", "land.published", "land.after")
# Six landings: three streams in the files, then three in the lake, of which one fails.
PASSAGES = [f"{point}:kill:{n}" for point in EVERY_CYCLE for n in ((1, 3, 5) if point in PER_LANDING else (1,))]

TABLES = ("apples", "bread", "cheese")
POISONED = "bread"


class Market(World):
    """Three tables in one pipeline. Rows are only added; each has to land once in the files and once in the lake."""

    def __init__(self, database: str, folder: Path, spark: SparkSession, namespace: str) -> None:
        self.database, self.namespace = database, namespace
        with psycopg.connect(database) as connection:
            for table in TABLES:
                connection.execute(
                    f"CREATE TABLE {table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text)"
                )
        super().__init__(
            folder,
            {"sql": {"url": database, "tables": TABLES, "cursor": "id"}},
            [{"files": {"path": "./files"}}, {"iceberg": {"table": f"{namespace}.{{table}}"}}],
            spark=spark,
        )

    def insert(self, count: int) -> None:
        with psycopg.connect(self.database) as connection:
            for table in TABLES:
                connection.execute(f"INSERT INTO {table} (note) SELECT n::text FROM generate_series(1, %s) n", [count])

    def poison(self) -> None:
        """Files take any column; a table of numbers takes no texts."""
        self._alter("RENAME COLUMN note TO text", "ADD COLUMN note bigint")

    def mend(self) -> None:
        self._alter("DROP COLUMN note", "RENAME COLUMN text TO note")

    def _alter(self, *steps: str) -> None:
        for step in steps:
            self.select(f"ALTER TABLE {self.namespace}.{POISONED} {step}")

    def expected(self, table: str) -> Counter:
        with psycopg.connect(self.database) as connection:
            return Counter(connection.execute(f"SELECT id, note::text FROM {table}").fetchall())

    def in_lake(self, table: str) -> Counter:
        return self.count(f"SELECT id, string(note) FROM {self.namespace}.{table}")

    def in_files(self, table: str) -> Counter:
        return Counter((row["id"], str(row["note"])) for row in self.published(stream=table))


@pytest.fixture
def market(database, tmp_path, namespace, spark) -> Market:
    market = Market(database, tmp_path, spark, namespace)
    market.insert(10)
    assert market.run().outcome == "landed"
    return market


def check_everything(market: Market) -> None:
    for table in TABLES:
        expected = market.expected(table)
        assert market.in_lake(table) == expected, table
        assert market.in_files(table) == expected, table


def test_the_others_land_and_go_on_and_the_stream_catches_up(market: Market):
    market.poison()
    market.insert(5)
    result = market.run()
    assert (result.outcome, result.failed_streams, result.continues) == ("failed", (POISONED,), True)
    assert result.error.code == "schema-refused"
    assert result.rows == 10  # of the two that landed
    assert market.in_lake("apples") == market.expected("apples")
    progress = market.progress()
    assert progress.intent is None
    assert [(one.stream, one.code, bool(one.window)) for one in progress.paused] == [(POISONED, "schema-refused", True)]
    assert [landing.sink for landing in progress.paused[0].landed] == ["1:files"]

    market.insert(5)
    again = market.run()
    assert (again.outcome, again.failed_streams, again.rows) == ("failed", (POISONED,), 10)
    assert market.in_lake("cheese") == market.expected("cheese")
    kinds = [(entry.kind, entry.rows) for entry in market.history()]
    assert kinds == [("landed", 10), ("failed", 0), ("landed", 10), ("landed", 30)], "the same failure is recorded once"
    assert market.history()[2].why == f"without {POISONED}"

    market.mend()
    mended = market.run()
    assert (mended.outcome, mended.error) == ("landed", None)
    assert market.progress().paused == ()
    assert "was paused since" in market.history()[1].why
    check_everything(market)
    assert market.run().outcome == "nothing new"


def test_a_rewind_makes_all_streams_equal_again(market: Market):
    market.poison()
    market.insert(5)
    market.run()
    market.mend()
    after = market.rewind("start")
    assert (after.mark, after.paused) == (None, ())
    assert market.run().outcome == "landed"


@pytest.mark.parametrize("passage", PASSAGES)
def test_a_kill_at_any_point_beside_a_stream_that_fails_loses_nothing_and_doubles_nothing(market: Market, passage: str):
    market.poison()
    market.insert(5)
    market.kill_at(passage, "acknowledged")
    market.insert(3)
    result = market.run_after_crash()
    while result.outcome != "failed" or not result.failed_streams:  # killed before the failure: it comes now
        assert result.outcome == "landed", result.error
        result = market.run_after_crash()
    market.run_after_crash()
    for table in ("apples", "cheese"):
        assert market.in_lake(table) == market.expected(table) == market.in_files(table)
    market.mend()
    market.insert(2)
    market.start("acknowledged", passage).wait()  # while it catches up, too; the point may not be passed so often
    result = market.run_after_crash()
    while result.outcome != "nothing new":
        assert result.outcome == "landed", result.error
        result = market.run_after_crash()
    check_everything(market)
    assert market.progress().paused == ()
