"""G6 under real concurrency: writers that commit whenever they like while polls go on without a pause."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import psycopg
import pytest

from headwater.services.stack.postgres import running_postgres
from tests.sources.sql.poller import Poller

WRITERS = 4
SCHEMA = """CREATE TABLE t (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(), tag text NOT NULL)"""


class Writer(threading.Thread):
    """Commits, rolls back, uses savepoints and prepared transactions, at random."""

    def __init__(self, url: str, number: int, until: float) -> None:
        super().__init__()
        self._url, self._number, self._until = url, number, until
        self.committed: list[str] = []
        self.problem: Exception | None = None

    def run(self) -> None:
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.problem = error

    def _write(self) -> None:
        dice, count = random.Random(self._number), 0
        with psycopg.connect(self._url, autocommit=True) as connection:
            while time.monotonic() < self._until:
                connection.execute("BEGIN")
                tags = []
                for _ in range(dice.randint(1, 4)):
                    tag, count = f"{self._number}/{count}", count + 1
                    nested = dice.random() < 0.3
                    if nested:
                        connection.execute("SAVEPOINT s")
                    connection.execute("INSERT INTO t (tag) VALUES (%s)", [tag])
                    if nested and dice.random() < 0.5:
                        connection.execute("ROLLBACK TO SAVEPOINT s")
                    else:
                        tags.append(tag)
                    if dice.random() < 0.2:
                        time.sleep(dice.random() * 0.03)  # a slow client, not a wait for something
                ending = dice.random()
                if ending < 0.15:
                    connection.execute("ROLLBACK")
                    continue
                if ending < 0.3:
                    connection.execute(f"PREPARE TRANSACTION 'w{self._number}'")
                    time.sleep(dice.random() * 0.02)
                    connection.execute(f"COMMIT PREPARED 'w{self._number}'")
                else:
                    connection.execute("COMMIT")
                self.committed += tags


def race(seconds: float, *choices: dict) -> None:
    with running_postgres() as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(SCHEMA)
        pollers = [Poller(server.url(), table="t", **chosen) for chosen in choices]
        read: list[Counter] = [Counter() for _ in pollers]
        until = time.monotonic() + seconds
        writers = [Writer(server.url(), number, until) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            for poller, ids in zip(pollers, read, strict=True):
                ids.update(row["tag"] for row in poller.poll())
        for writer in writers:
            writer.join()
            assert writer.problem is None
        committed = Counter(tag for writer in writers for tag in writer.committed)
        for poller, ids, chosen in zip(pollers, read, choices, strict=True):
            while rows := poller.poll():
                ids.update(row["tag"] for row in rows)
            poller.close()
            assert ids == committed, chosen
        assert sum(committed.values()) > 50


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_while_writers_race():
    race(4, {"cursor": "id"}, {"cursor": "at"})


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_nothing_is_lost_or_doubled_in_a_long_race():
    race(300, {"cursor": "id"}, {"cursor": "at"}, {"cursor": "id", "late": "scan"}, {"cursor": "id", "max_rows": 70})
