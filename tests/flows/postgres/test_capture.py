"""Change capture straight from PostgreSQL into three kinds of tables, through crashes: all of them equal the source."""

from __future__ import annotations

import random
import signal
import time

import psycopg
import pytest

from headwater.model.faults import FAULT_POINTS
from headwater.model.secret import Secret
from headwater.pg.connection import PostgresSession
from headwater.sources.postgres.guard.wal_messages import emit, label_note
from tests.flows.postgres.captured_yard import KEYS, Load, Yard

pytestmark = pytest.mark.spark


@pytest.fixture
def yard(request, database, tmp_path, namespace):
    built = Yard.build(database, tmp_path, namespace, tables=getattr(request, "param", tuple(KEYS)))
    yield built
    built.drop_slot()


def test_three_kinds_of_tables_follow_the_source(yard, spark):
    yard.catch_up(spark)
    yard.check(spark)
    for seed in range(3):
        Load(yard.database, seed).work(40)
        yard.catch_up(spark)
        yard.check(spark)


# Six landings in a window: where they are interrupted matters, and how many there are does not.
@pytest.mark.parametrize("yard", [("accounts", "parts")], indirect=True, ids=["two tables"])
@pytest.mark.parametrize("point", FAULT_POINTS)
def test_a_kill_at_any_point_is_repaired_by_one_more_run(yard, spark, point):
    """In the copy, and then in the log, with a label in it."""
    for number, window in enumerate(("copy", "log")):
        if window == "copy" and point.startswith("label"):
            yard.catch_up(spark)  # a label stands in the log
            continue
        if window == "log":
            Load(yard.database, 1).work(10)
            label(yard, "here")
        child = yard.start_child(spark, f"{point}:kill")
        Load(yard.database, 10 + number).work(10)
        assert child.wait(timeout=100) == -signal.SIGKILL, yard.errors()
        Load(yard.database, 20 + number).work(20)
        yard.catch_up(spark)
        yard.check(spark)


def label(yard: Yard, text: str) -> None:
    session = PostgresSession(Secret(yard.database))
    emit(session, label_note(text))
    session.close()


def test_every_label_is_a_cut_through_all_tables(yard, spark):
    yard.catch_up(spark)
    expected = {}
    for number in range(3):
        Load(yard.database, number).work(15)
        expected[f"cut-{number}"] = yard.in_database()
        label(yard, f"cut-{number}")
    Load(yard.database, 9).work(15)
    yard.catch_up(spark)
    yard.check(spark)
    for name, rows in expected.items():
        yard.check(spark, name, rows)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_random_kills_lose_nothing_and_double_nothing(yard, spark, seed):
    rounds(yard, spark, seed, 2)


def rounds(yard: Yard, spark, seed: int, count: int) -> None:
    chance = random.Random(seed)
    yard.catch_up(spark)  # labels stand in the log, which begins with the slot
    for number in range(count):
        child = yard.start_child(spark)
        deadline = time.monotonic() + chance.uniform(2, 5)
        while time.monotonic() < deadline:
            Load(yard.database, chance.randrange(10**6)).work(5)
        expected = yard.in_database()
        label(yard, f"round-{number}")
        child.kill()
        child.wait()
        Load(yard.database, chance.randrange(10**6)).work(5)
        yard.catch_up(spark)
        yard.check(spark)
        yard.check(spark, f"round-{number}", expected)


def test_progress_of_a_quiet_database_is_one_window(yard, spark):
    yard.catch_up(spark)
    with psycopg.connect(yard.database, autocommit=True) as connection:
        connection.execute("CREATE TABLE elsewhere (a int)")
        connection.execute("INSERT INTO elsewhere SELECT generate_series(1, 1000)")
    assert yard.run(spark).outcome == "nothing new"
