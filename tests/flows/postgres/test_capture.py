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
from tests.flows.postgres.captured_tables import KEYS, CapturedTables
from tests.flows.postgres.load import Load

pytestmark = pytest.mark.spark

# Points that a capture passes right after another one, or before it has done anything.
ALIKE = ("lease.before", "lease.after", "read.before", "acknowledge.before")


@pytest.fixture
def tables(request, database, tmp_path, namespace, spark):
    tables = CapturedTables(database, tmp_path, spark, namespace, tables=getattr(request, "param", tuple(KEYS)))
    yield tables
    tables.close()
    tables.drop_slot()


def test_three_kinds_of_tables_follow_the_source(tables):
    tables.land_all()
    tables.check()
    for seed in range(3):
        Load(tables.database, seed).work(40)
        tables.land_all()
        tables.check()


# Six landings in a window: where they are interrupted matters, and how many there are does not.
@pytest.mark.parametrize("tables", [("accounts", "parts")], indirect=True, ids=["two tables"])
@pytest.mark.parametrize(
    "point", [pytest.param(each, marks=pytest.mark.soak if each in ALIKE else ()) for each in FAULT_POINTS]
)
def test_a_kill_at_any_point_is_repaired_by_one_more_run(tables, point):
    """In the copy, and then in the log, with a label in it."""
    for number, window in enumerate(("copy", "log")):
        if window == "copy" and point.startswith("label"):
            tables.land_all()  # a label stands in the log
            continue
        if window == "log":
            Load(tables.database, 1).work(10)
            label(tables, "here")
        child = tables.start("cycles", f"{point}:kill")
        Load(tables.database, 10 + number).work(10)
        assert child.wait(100) == -signal.SIGKILL, child.output
        Load(tables.database, 20 + number).work(20)
        tables.land_all()
        tables.check()


def label(tables: CapturedTables, text: str) -> None:
    session = PostgresSession(Secret(tables.database))
    emit(session, label_note(text))
    session.close()


def test_every_label_is_a_cut_through_all_tables(tables):
    tables.land_all()
    expected = {}
    for number in range(3):
        Load(tables.database, number).work(15)
        expected[f"cut-{number}"] = tables.in_database()
        label(tables, f"cut-{number}")
    Load(tables.database, 9).work(15)
    tables.land_all()
    tables.check()
    for name, rows in expected.items():
        tables.check(name, rows)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_random_kills_lose_nothing_and_double_nothing(tables, seed):
    rounds(tables, seed, 2)


def rounds(tables: CapturedTables, seed: int, count: int) -> None:
    chance = random.Random(seed)
    tables.land_all()  # labels stand in the log, which begins with the slot
    for number in range(count):
        child = tables.start("cycles")
        deadline = time.monotonic() + chance.uniform(2, 5)
        while time.monotonic() < deadline:
            Load(tables.database, chance.randrange(10**6)).work(5)
        expected = tables.in_database()
        label(tables, f"round-{number}")
        child.kill()
        Load(tables.database, chance.randrange(10**6)).work(5)
        tables.land_all()
        tables.check()
        tables.check(f"round-{number}", expected)


def test_progress_of_a_quiet_database_is_one_window(tables):
    tables.land_all()
    with psycopg.connect(tables.database, autocommit=True) as connection:
        connection.execute("CREATE TABLE elsewhere (a int)")
        connection.execute("INSERT INTO elsewhere SELECT generate_series(1, 1000)")
    assert tables.run().outcome == "nothing new"
