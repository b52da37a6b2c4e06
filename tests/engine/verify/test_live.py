"""Source and pipeline go on while they are compared: no difference is seen that is none."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from headwater.model.errors import LeaseHeld
from tests.engine.verify.sql_table import PostgresTable, SqliteTable, differences

pytestmark = pytest.mark.spark


@contextmanager
def meanwhile(*work) -> Iterator[list[int]]:
    """Each again and again in a thread of its own; how often, so far."""
    over, counts, failures = threading.Event(), [0] * len(work), []

    def repeat(number: int) -> None:
        try:
            while not over.is_set():
                work[number]()
                counts[number] += 1
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def damage(items: PostgresTable, where: str) -> None:
    """By a hand that has to try again when a cycle comes between."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            items.lake(f"DELETE FROM {{t}} WHERE {where}")
        except Exception as error:
            if "ValidationException" not in str(error) and "CommitFailed" not in str(error):
                raise
        else:
            return
    raise AssertionError("cycles left no room")


def cycles(items: PostgresTable):
    def run() -> None:
        with items.pipeline() as pipeline:
            for _ in range(20):
                result = pipeline.run_once()
                assert result.error is None or isinstance(result.error, LeaseHeld), result.error

    return run


def test_postgres_with_writers_of_which_some_commit_late(database, tmp_path, spark, namespace):
    items = PostgresTable(
        database, tmp_path, spark, f"{namespace}.items", {"table": "public.items", "cursor": "changed_at"}
    )
    items.sql(
        """CREATE TABLE items (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text,
           changed_at timestamptz NOT NULL DEFAULT clock_timestamp())""",
        "CREATE INDEX ON items (changed_at)",
        "INSERT INTO items (v) SELECT 'v' || n FROM generate_series(1, 3000) n",
    )
    items.run()
    chance = random.Random(7)

    def write() -> None:
        with psycopg.connect(database) as connection:
            connection.execute("INSERT INTO items (v) SELECT 'w' || n FROM generate_series(1, 20) n")
            connection.execute(
                "UPDATE items SET v = v || '.', changed_at = clock_timestamp() WHERE id %% 97 = %s",
                [chance.randrange(97)],
            )
            time.sleep(chance.random() * 0.2)  # the transaction stays open

    with meanwhile(write, write, cycles(items)) as counts:
        for _ in range(6):
            verified = items.verify()
            assert verified.is_equal, differences(verified)
    assert min(counts) > 0
    items.run()
    assert items.verify().tables[0].waiting == 0


def test_a_repair_while_writers_and_cycles_go_on(database, tmp_path, spark, namespace):
    items = PostgresTable(
        database, tmp_path, spark, f"{namespace}.items", {"table": "public.items", "cursor": "changed_at"}
    )
    items.sql(
        "CREATE TABLE items (id bigint PRIMARY KEY, v int, changed_at timestamptz NOT NULL DEFAULT clock_timestamp())",
        "INSERT INTO items SELECT n, 0 FROM generate_series(1, 500) n",
    )
    items.run()
    chance = random.Random(8)

    def write() -> None:
        items.sql(f"UPDATE items SET v = v + 1, changed_at = clock_timestamp() WHERE id % 20 = {chance.randrange(20)}")

    with meanwhile(write, cycles(items)):
        for number in range(3):
            damage(items, f"id % 10 = {number}")
            items.repair()
    items.run()
    assert items.verify().is_equal
    with psycopg.connect(database) as connection:
        assert (
            sorted(items.lake("SELECT id, v FROM {t}"))
            == connection.execute("SELECT id, v FROM items ORDER BY 1").fetchall()
        )


def test_sqlite_where_every_read_has_a_view_of_its_own(tmp_path, spark, namespace):
    items = SqliteTable(
        "sqlite:///items.db", tmp_path, spark, f"{namespace}.items", {"table": "items", "cursor": "seq"}
    )
    items.sql(
        "PRAGMA journal_mode=WAL",
        "CREATE TABLE items (id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, v INTEGER)",
        "CREATE INDEX by_seq ON items (seq)",
        *(f"INSERT INTO items VALUES ({n}, {n}, 0)" for n in range(1, 400)),
    )
    items.run()
    chance = random.Random(9)

    def write() -> None:
        with closing(sqlite3.connect(tmp_path / "items.db", timeout=30)) as connection, connection:
            connection.execute(
                "UPDATE items SET v = v + 1, seq = (SELECT max(seq) FROM items) + 1 WHERE id = ?",
                [chance.randrange(400)],
            )
        time.sleep(0.002)  # not a wait: the pace of the writer

    with meanwhile(write, cycles(items)):
        for _ in range(4):
            verified = items.verify()
            assert verified.is_equal, differences(verified)
