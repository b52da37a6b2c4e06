"""G2 and G8 together: whatever a crash interrupts, a row has landed or is a reject, once, and never both."""

from __future__ import annotations

import json
import signal
from collections import Counter

import psycopg
import pytest

from headwater.api import Project
from headwater.config.loading import load_project
from headwater.engine.replay import Replayed
from headwater.model.errors import HeadwaterError, SinkUnreachable
from headwater.model.faults import FAULT_POINTS
from headwater.sinks import over_rows
from tests.engine.shop import Shop

pytestmark = pytest.mark.spark

PER_SINK = ("land.before", "land.written", "land.published", "land.after")
# Rejects land first, within the first sink's landing, and pass two of its points themselves.
PASSAGES = [f"{point}:kill:{n}" for point in FAULT_POINTS for n in ((1, 2, 3) if point in PER_SINK[1:3] else (1,))]


class PickyShop(Shop):
    """Every fifth amount is none."""

    def insert(self, count: int) -> None:
        super().insert(count)
        with psycopg.connect(self.database) as connection:
            connection.execute("UPDATE orders SET amount = 'NaN' WHERE id % 5 = 0")

    def expected(self) -> Counter:
        with psycopg.connect(self.database) as connection:
            return Counter(connection.execute("SELECT id, amount, note FROM orders WHERE amount <> 'NaN'").fetchall())

    def expected_aside(self) -> Counter:
        with psycopg.connect(self.database) as connection:
            return Counter(id_ for (id_,) in connection.execute("SELECT id FROM orders WHERE amount = 'NaN'"))

    def aside(self, spark) -> Counter:
        rows = spark.sql(f"SELECT payload, row FROM {self.table}__rejects").collect()
        found = Counter(int(json.loads(bytes(row.payload))["id"]) for row in rows)
        assert found == Counter(json.loads(row.row)["id"] for row in rows)
        return found

    def replay(self, spark, faults=None) -> Replayed:
        with Project(load_project(self.folder), self.folder, spark=spark, faults=faults) as project:
            pipeline = project.pipelines([self.folder / "orders.yaml"])[0]
            return pipeline.replay(pipeline.rejects())

    def check(self, spark) -> None:
        assert self.in_lake(spark) == self.expected()
        assert self.in_files() == self.expected()
        assert self.aside(spark) == self.expected_aside()


@pytest.fixture
def shop(database, tmp_path, namespace) -> PickyShop:
    return PickyShop.build(database, tmp_path, f"{namespace}.orders", "append")


@pytest.mark.parametrize("passage", PASSAGES)
def test_a_kill_at_any_point_leaves_rows_and_rejects_to_one_more_run(shop, passage, spark):
    shop.insert(12)
    assert shop.run(spark).outcome == "landed"
    shop.insert(14)
    child = shop.start_child(spark, passage)
    _, errors = child.communicate(timeout=180)
    assert child.returncode == -signal.SIGKILL, f"the point was not reached: {errors}"
    shop.insert(5)
    result = shop.run_until_leased(spark)
    assert result.outcome == "landed", result.error
    shop.check(spark)
    assert shop.run(spark).outcome == "nothing new"


def test_workers_and_many_splits_set_the_same_rows_aside(shop, spark, monkeypatch):
    monkeypatch.setattr(over_rows, "SMALL_WINDOW", -1)
    path = shop.folder / "orders.yaml"
    path.write_text(path.read_text().replace("cursor: id", "cursor: id, splits: 3"))
    shop.insert(50)
    assert shop.run(spark).to_json()["rows"] == {"read": 50, "landed": 40, "rejected": 10}
    shop.check(spark)


def test_rows_alike_in_a_table_without_a_key_are_as_many_rejects_over_splits_and_windows(shop, spark):
    shop.insert(10)
    with psycopg.connect(shop.database) as connection:
        connection.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
        for _ in range(2):
            # On pages far apart, so that the copies are in different splits.
            connection.execute("INSERT INTO orders OVERRIDING SYSTEM VALUE SELECT * FROM orders WHERE id = 5 LIMIT 1")
            connection.execute(
                "INSERT INTO orders (amount, note) SELECT 1, repeat('x', 100) FROM generate_series(1, 300)"
            )
        connection.execute("ANALYZE orders")
    path = shop.folder / "orders.yaml"
    path.write_text(path.read_text().replace("cursor: id", "cursor: id, splits: 3, late: scan"))
    assert shop.run(spark).rejected == 4
    shop.check(spark)
    with psycopg.connect(shop.database) as connection:
        connection.execute("INSERT INTO orders OVERRIDING SYSTEM VALUE SELECT * FROM orders WHERE id = 5 LIMIT 1")
    assert shop.run(spark).rejected == 1
    shop.check(spark)


class FailAt:
    """Lets the lake fail when a point is passed for the nth time."""

    def __init__(self, point: str, number: int) -> None:
        self._point, self._left = point, number

    def reach(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                raise SinkUnreachable(f"rehearsed at {point}")


def mend(shop: PickyShop, *ids: int) -> None:
    with psycopg.connect(shop.database) as connection:
        connection.execute("UPDATE orders SET amount = 1 WHERE id = ANY(%s)", [list(ids)])


def test_a_replay_lands_what_was_mended_and_keeps_the_rest(shop, spark):
    shop.insert(20)
    shop.run(spark)
    assert shop.replay(spark) == Replayed(tried=4, landed=0, left=4)
    mend(shop, 5)
    assert shop.replay(spark) == Replayed(tried=4, landed=1, left=3)
    shop.check(spark)
    mend(shop, 10)
    assert shop.replay(spark) == Replayed(tried=3, landed=1, left=2)
    shop.check(spark)
    with psycopg.connect(shop.database) as connection:
        connection.execute("DELETE FROM orders WHERE id = 15")
    assert shop.replay(spark) == Replayed(tried=2, landed=0, left=1)
    shop.check(spark)


@pytest.mark.parametrize(("point", "number"), [("land.published", 1), ("land.published", 2), ("land.published", 3)])
def test_a_replay_that_broke_off_loses_nothing_that_still_fails(shop, spark, point, number):
    """What has no place yet must not be taken away because the sinks say that they hold this replay."""
    shop.insert(20)
    shop.run(spark)
    mend(shop, 5)
    with pytest.raises(HeadwaterError):
        shop.replay(spark, FailAt(point, number))
    assert shop.replay(spark).left == 3
    shop.check(spark)
