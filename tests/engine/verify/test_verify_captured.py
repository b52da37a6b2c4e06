"""Captured tables compared at one place in the log, while writers and another process's cycles go on."""

from __future__ import annotations

import signal
import threading

import psycopg
import pytest

from headwater.api import Project
from headwater.config.load import load_project
from headwater.engine.verify.report import VerifyReport
from headwater.engine.verify.verify import VerifyRequest
from tests.engine.verify.yard import found
from tests.flows.postgres.captured_yard import KEYS, Load, Yard

pytestmark = pytest.mark.spark


class OftenRead(Load):
    """A truncate takes what snapshots see away from them: tables that lose their rows so all the time cannot be compared."""

    def _statement(self) -> str:
        statement = super()._statement()
        rarely = self._chance.random() < 0.1
        return statement if rarely else statement.replace("TRUNCATE", "DELETE FROM")


@pytest.fixture
def yard(database, tmp_path, namespace):
    built = Yard.build(database, tmp_path, namespace)
    yield built
    built.drop_slot()


def verify(yard: Yard, spark, *, repair: bool = False, **order) -> VerifyReport:
    with Project(load_project(yard.folder), yard.folder, spark=spark) as project:
        pipeline = project.pipelines([yard.folder / "yard.yaml"])[0]
        return pipeline.verify(VerifyRequest(**order), repair=(lambda _: True) if repair else None)


def differing(verified: VerifyReport) -> dict[tuple[str, str], dict]:
    tables = enumerate(verified.tables)
    return {(one.sink, one.stream): found(verified, number) for number, one in tables if not one.is_equal}


def test_captured_tables_and_their_history_are_compared_at_one_place_in_the_log(yard, spark):
    yard.catch_up(spark)
    Load(yard.database, 3).work(30)
    verified = verify(yard, spark)  # brings the mark on by itself
    assert not differing(verified)
    assert {(one.sink, one.stream) for one in verified.tables} == {
        (sink, f"public.{name}") for sink in ("2:iceberg", "3:iceberg") for name in KEYS
    }
    assert {one.sink for one in verified.skipped} == {"1:iceberg"}


def test_damage_of_every_kind_is_found_and_repaired_without_being_asked_for_extra_rows(yard, spark):
    yard.catch_up(spark)
    name = yard.namespace
    spark.sql(f"DELETE FROM {name}.accounts WHERE id = 5")
    spark.sql(f"UPDATE {name}.accounts SET notes = 'wrong' WHERE id = 6")
    spark.sql(f"INSERT INTO {name}.pairs SELECT 900, b, value, _position FROM {name}.pairs WHERE a = 7")
    spark.sql(f"DELETE FROM {name}.parts WHERE id IN (8, 9)")
    spark.sql(f"UPDATE {name}.whole_history SET t = 'wrong' WHERE id = 10")
    expected = {
        ("2:iceberg", "public.accounts"): {"missing": [(5,)], "different": [(6,)]},
        ("2:iceberg", "public.pairs"): {"extra": [(900, "b1")]},
        ("2:iceberg", "public.parts"): {"missing": [(8, "2026-01-09"), (9, "2026-01-10")]},
        ("3:iceberg", "public.whole"): {"different": [(10,)]},
    }
    assert differing(verify(yard, spark)) == expected
    verify(yard, spark, repair=True)
    assert not differing(verify(yard, spark))
    Load(yard.database, 4).work(20)
    assert not differing(verify(yard, spark))


def test_no_difference_is_seen_that_is_none_while_another_process_follows_a_nasty_load(yard, spark):
    yard.catch_up(spark)
    child, over = yard.start_child(spark), threading.Event()

    def write() -> None:
        load = OftenRead(yard.database, 10)
        while not over.wait(0.1):
            load.work(5)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            verified = verify(yard, spark, wait_seconds=120)
            assert not differing(verified)
            assert len(verified.tables) == 2 * len(KEYS)
    finally:
        over.set()
        writer.join()
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=60)
    yard.catch_up(spark)
    yard.check(spark)


def test_a_repair_loses_against_what_came_after_it(yard, spark):
    yard.catch_up(spark)
    spark.sql(f"DELETE FROM {yard.namespace}.accounts WHERE id <= 10")

    def meanwhile(_) -> bool:
        with psycopg.connect(yard.database) as connection:
            connection.execute("UPDATE accounts SET owner = 'newest' WHERE id = 1")
            connection.execute("DELETE FROM accounts WHERE id = 2")
        return True

    with Project(load_project(yard.folder), yard.folder, spark=spark) as project:
        project.pipelines([yard.folder / "yard.yaml"])[0].verify(VerifyRequest(sink="2"), repair=meanwhile)
    with psycopg.connect(yard.database) as connection:
        connection.execute("UPDATE accounts SET owner = 'newer still' WHERE id IN (1, 3)")
    assert not differing(verify(yard, spark))
    yard.check(spark)
