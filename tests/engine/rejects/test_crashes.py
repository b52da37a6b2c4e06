"""G2 and G8 together: whatever a crash interrupts, a row has landed or is a reject, once, and never both."""

from __future__ import annotations

import json
from collections import Counter

import psycopg
import pytest

from headwater.engine.operations.replay import Replayed
from headwater.model.errors import HeadwaterError, SinkUnreachable
from headwater.model.faults import EVERY_CYCLE
from headwater.sinks import tasks as over_rows
from tests.engine.shop import Shop

pytestmark = pytest.mark.spark

PER_SINK = ("land.before", "land.written", "land.published", "land.after")
# Rejects land first, within the first sink's landing, and pass two of its points themselves.
POINTS = (*EVERY_CYCLE, "acknowledge.before", "acknowledge.after")
PASSAGES = [f"{point}:kill:{n}" for point in POINTS for n in ((1, 2, 3) if point in PER_SINK[1:3] else (1,))]


class PickyShop(Shop):
    """Every fifth amount is none."""

    def insert(self, count: int) -> None:
        super().insert(count)
        with psycopg.connect(self.database) as connection:
            connection.execute("UPDATE orders SET amount = 'NaN' WHERE id % 5 = 0")

    def expected(self) -> Counter:
        with psycopg.connect(self.database) as connection:
            return Counter(connection.execute("SELECT id, amount, note FROM orders WHERE amount <> 'NaN'").fetchall())

    def expected_rejects(self) -> Counter:
        with psycopg.connect(self.database) as connection:
            return Counter(id_ for (id_,) in connection.execute("SELECT id FROM orders WHERE amount = 'NaN'"))

    def rejects(self) -> Counter:
        rows = self.select(f"SELECT payload, row FROM {self.table}__rejects")
        by_payload = Counter(int(json.loads(bytes(payload))["id"]) for payload, _ in rows)
        assert by_payload == Counter(json.loads(row)["id"] for _, row in rows)
        return by_payload

    def check(self) -> None:
        assert self.in_lake() == self.expected()
        assert self.in_files() == self.expected()
        assert self.rejects() == self.expected_rejects()


@pytest.fixture
def shop(database, tmp_path, namespace, spark) -> PickyShop:
    return PickyShop(database, tmp_path, spark, f"{namespace}.orders", "append")


@pytest.mark.parametrize("passage", PASSAGES)
def test_a_kill_at_any_point_leaves_rows_and_rejects_to_one_more_run(shop, passage):
    shop.insert(12)
    assert shop.run().outcome == "landed"
    shop.insert(14)
    shop.kill_at(passage, "acknowledged")
    shop.insert(5)
    result = shop.run_after_crash()
    assert result.outcome == "landed", result.error
    shop.check()
    assert shop.run().outcome == "nothing new"


@pytest.fixture(params=["in this process", "in Spark's workers"])
def anywhere(request, monkeypatch) -> None:
    if request.param == "in Spark's workers":
        monkeypatch.setattr(over_rows, "SMALL_WINDOW", -1)


def test_workers_and_many_splits_set_the_same_rows_aside(shop, anywhere):
    shop.configure(source={"splits": 3})
    shop.insert(50)
    assert shop.run().to_json()["rows"] == {"read": 50, "landed": 40, "rejected": 10}
    shop.check()


def test_rows_alike_in_a_table_without_a_key_are_as_many_rejects_over_splits_and_windows(shop):
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
    shop.configure(source={"splits": 3, "late": "scan"})
    assert shop.run().rejected == 4
    shop.check()
    with psycopg.connect(shop.database) as connection:
        connection.execute("INSERT INTO orders OVERRIDING SYSTEM VALUE SELECT * FROM orders WHERE id = 5 LIMIT 1")
    assert shop.run().rejected == 1
    shop.check()


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


def test_a_replay_lands_what_was_mended_and_keeps_the_rest(shop):
    shop.insert(20)
    shop.run()
    assert shop.replay() == Replayed(tried=4, landed=0, left=4)
    mend(shop, 5)
    assert shop.replay() == Replayed(tried=4, landed=1, left=3)
    shop.check()
    mend(shop, 10)
    assert shop.replay() == Replayed(tried=3, landed=1, left=2)
    shop.check()
    with psycopg.connect(shop.database) as connection:
        connection.execute("DELETE FROM orders WHERE id = 15")
    assert shop.replay() == Replayed(tried=2, landed=0, left=1)
    shop.check()


def test_rejects_of_many_windows_are_replayed_together_whatever_one_window_bears(shop):
    shop.configure(max_rejects=1)
    for _ in range(3):
        shop.insert(5)
        assert shop.run().rejected == 1
    mend(shop, 10)
    assert shop.replay() == Replayed(tried=3, landed=1, left=2)
    shop.check()


@pytest.mark.parametrize(("point", "number"), [("land.published", 1), ("land.published", 2), ("land.published", 3)])
def test_a_replay_that_broke_off_loses_nothing_that_still_fails(shop, point, number):
    """What has no place yet must not be taken away because the sinks say that they hold this replay."""
    shop.insert(20)
    shop.run()
    mend(shop, 5)
    with pytest.raises(HeadwaterError):
        shop.replay(FailAt(point, number))
    assert shop.replay().left == 3
    shop.check()


class NotFinite(Shop):
    """A shop whose JSON files have no number for what the lake holds."""

    def __init__(self, database, folder, spark, table) -> None:
        super().__init__(database, folder, spark, table, "append")
        with psycopg.connect(database) as connection:
            connection.execute("ALTER TABLE orders ADD COLUMN share float8")
        self.write_files_as("json")

    def write_files_as(self, kind: str) -> None:
        _, lake = self.settings["sinks"]
        self.configure(sinks=[{"files": {"path": "./files", "format": kind}}, lake])

    def insert(self, count: int) -> None:
        super().insert(count)
        with psycopg.connect(self.database) as connection:
            connection.execute(
                "UPDATE orders SET share = CASE WHEN id % 5 = 0 THEN 'Infinity'::float8 ELSE id END WHERE share IS NULL"
            )

    def ids_in_files(self) -> list[int]:
        ids = []
        for path in (self.folder / "files").rglob("*.*"):
            if path.suffix == ".jsonl" and not any(part.startswith(".") for part in path.parts):
                ids += [json.loads(line)["id"] for line in path.read_text().splitlines()]
            elif path.suffix == ".csv" and not any(part.startswith(".") for part in path.parts):
                ids += [int(line.split(",")[0]) for line in path.read_text().splitlines()[1:]]
        return sorted(ids)


def test_what_one_sink_cannot_keep_lands_in_the_others(database, tmp_path, namespace, spark, anywhere):
    shop = NotFinite(database, tmp_path, spark, f"{namespace}.orders")
    shop.insert(12)
    result = shop.run()
    assert result.outcome == "landed", result.error
    assert result.to_json()["rows"] == {"read": 12, "landed": 10, "rejected": 2}
    assert [(sink["sink"], sink["rows"]) for sink in result.to_json()["sinks"]] == [("1:files", 10), ("2:iceberg", 12)]
    assert shop.ids_in_files() == [n for n in range(1, 13) if n % 5]
    assert shop.in_lake() == shop.expected()
    assert shop.select(f"SELECT sink, row, reason FROM {shop.table}__rejects ORDER BY row") == [
        ("1:files", f'{{"id": {n}}}', "column share contains inf, which JSON cannot represent") for n in (10, 5)
    ]


def test_what_a_sink_set_aside_is_replayed_in_that_sink_alone(database, tmp_path, namespace, spark):
    shop = NotFinite(database, tmp_path, spark, f"{namespace}.orders")
    shop.insert(12)
    shop.run()
    assert shop.replay() == Replayed(tried=2, landed=0, left=2)
    shop.write_files_as("csv")
    assert shop.replay() == Replayed(tried=2, landed=2, left=0)
    assert shop.ids_in_files() == list(range(1, 13))
    assert shop.in_lake() == shop.expected()
    assert shop.replay() == Replayed(tried=0, landed=0, left=0)
