"""Captured tables compared at one LSN, while writers and another process's cycles go on."""

from __future__ import annotations

import threading

import psycopg
import pytest

from headwater.engine.verify.report import VerifyReport
from tests.engine.verify.sql_table import differences
from tests.flows.postgres.captured_tables import KEYS, CapturedTables
from tests.flows.postgres.load import Load

pytestmark = pytest.mark.spark


class OftenRead(Load):
    """A truncate takes what snapshots see away from them: tables that lose their rows so all the time cannot be compared."""

    def statement(self) -> str:
        statement = super().statement()
        rarely = self._chance.random() < 0.1
        return statement if rarely else statement.replace("TRUNCATE", "DELETE FROM")


@pytest.fixture
def tables(database, tmp_path, namespace, spark):
    tables = CapturedTables(database, tmp_path, spark, namespace)
    yield tables
    tables.close()
    tables.drop_slot()


def differing(verified: VerifyReport) -> dict[tuple[str, str], dict]:
    tables = enumerate(verified.tables)
    return {(one.sink, one.stream): differences(verified, number) for number, one in tables if not one.is_equal}


def test_captured_tables_and_their_history_are_compared_at_one_place_in_the_log(tables):
    tables.land_all()
    Load(tables.database, 3).work(30)
    verified = tables.verify()  # brings the mark on by itself
    assert not differing(verified)
    assert {(one.sink, one.stream) for one in verified.tables} == {
        (sink, f"public.{name}") for sink in ("2:iceberg", "3:iceberg") for name in KEYS
    }
    assert {one.sink for one in verified.skipped} == {"1:iceberg"}


def test_damage_of_every_kind_is_found_and_repaired_without_being_asked_for_extra_rows(tables):
    tables.land_all()
    name = tables.namespace
    tables.select(f"DELETE FROM {name}.accounts WHERE id = 5")
    tables.select(f"UPDATE {name}.accounts SET notes = 'wrong' WHERE id = 6")
    tables.select(f"INSERT INTO {name}.pairs SELECT 900, b, value, _position FROM {name}.pairs WHERE a = 7")
    tables.select(f"DELETE FROM {name}.parts WHERE id IN (8, 9)")
    tables.select(f"UPDATE {name}.whole_history SET t = 'wrong' WHERE id = 10")
    expected = {
        ("2:iceberg", "public.accounts"): {"missing": [(5,)], "different": [(6,)]},
        ("2:iceberg", "public.pairs"): {"extra": [(900, "b1")]},
        ("2:iceberg", "public.parts"): {"missing": [(8, "2026-01-09"), (9, "2026-01-10")]},
        ("3:iceberg", "public.whole"): {"different": [(10,)]},
    }
    assert differing(tables.verify()) == expected
    tables.repair()
    assert not differing(tables.verify())
    Load(tables.database, 4).work(20)
    assert not differing(tables.verify())


def test_no_difference_is_seen_that_is_none_while_another_process_follows_a_nasty_load(tables):
    tables.land_all()
    child, over = tables.start("cycles"), threading.Event()

    def write() -> None:
        load = OftenRead(tables.database, 10)
        while not over.wait(0.1):
            load.work(5)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            verified = tables.verify(wait_seconds=120)
            assert not differing(verified)
            assert len(verified.tables) == 2 * len(KEYS)
    finally:
        over.set()
        writer.join()
        child.kill()
    tables.land_all()
    tables.check()


def test_a_repair_loses_against_what_came_after_it(tables):
    tables.land_all()
    tables.select(f"DELETE FROM {tables.namespace}.accounts WHERE id <= 10")

    def meanwhile(_) -> bool:
        with psycopg.connect(tables.database) as connection:
            connection.execute("UPDATE accounts SET owner = 'newest' WHERE id = 1")
            connection.execute("DELETE FROM accounts WHERE id = 2")
        return True

    tables.repair(meanwhile, sink="2")
    with psycopg.connect(tables.database) as connection:
        connection.execute("UPDATE accounts SET owner = 'newer still' WHERE id IN (1, 3)")
    assert not differing(tables.verify())
    tables.check()
