"""G6 on PostgreSQL: whatever order transactions commit in, every committed row is read exactly once."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater.model.position.window import Window
from headwater.services.stack.postgres import running_postgres
from headwater.sources.sql.database import Tuning
from tests.sources.sql.poller import Poller, table_of
from tests.sources.sql.postgres.transactions import ACTIONS, SESSIONS, Clients

_tables = itertools.count(1)

# How the same rows are read: the search that is expected, and the settings that lead to it.
READERS = {
    "bounded by a sequence": ("above the low watermark", {"cursor": "id"}),
    "bounded, few rows at a time": ("above the low watermark", {"cursor": "id", "max_rows": 2}),
    "bounded by the clock": ("above the low watermark", {"cursor": "at"}),
    "scan, because of CACHE": ("over the whole table", {"cursor": "cached"}),
    "scan, set by hand, with NULLs": ("over the whole table", {"cursor": "by_hand", "nulls": "read", "late": "scan"}),
}

step = st.tuples(st.integers(0, SESSIONS - 1), st.sampled_from(ACTIONS))
poll = st.just("poll")
# A window that is planned, then outlived by further steps, then read by another process.
retry = st.tuples(st.just("retry"), st.lists(step, max_size=4))
scenario = st.lists(st.one_of(step, step, step, poll, poll, retry), min_size=8, max_size=30)


class Reader:
    """A poller and all that it has read."""

    def __init__(self, url: str, table: str, chosen: dict) -> None:
        self.poller = Poller(url, table=table, tuning=Tuning(first_poll_wait_seconds=0), **chosen)
        self.read: Counter[str] = Counter()

    def poll(self) -> None:
        self.read.update(row["tag"] for row in self.poller.poll())

    def retry(self, meanwhile) -> None:
        window = self.poller.look()
        meanwhile()
        if window is None:
            return
        first = tags(self.poller.read(window))
        other = self.poller.in_another_process()
        assert tags(other.read(window)) == first, "a retry covers exactly the window of the first try (G5)"
        other.close()
        self.read.update(first)
        self.poller.mark = window.end

    def drain(self) -> None:
        while self.poller.look() is not None:
            self.poll()


def tags(streams: dict[str, list[dict]]) -> Counter:
    return Counter(row["tag"] for rows in streams.values() for row in rows)


@pytest.fixture(scope="module")
def quiet_postgres() -> Iterator[str]:
    """A server of its own: transactions of other tests would keep low watermarks low and hide mistakes."""
    with running_postgres() as server:
        yield server.url()


@pytest.fixture(scope="module")
def clients(quiet_postgres) -> Iterator[Clients]:
    with Clients(quiet_postgres) as sessions:
        yield sessions


def run_scenario(clients: Clients, steps: list, *choices: dict) -> tuple[list[Counter], Counter]:
    """What each reader has read in the end, and what was committed."""
    with clients.theatre(f"t{next(_tables)}") as stage:
        readers = [Reader(clients.url, stage.table, chosen) for chosen in choices]
        try:
            for each in steps:
                if each == "poll":
                    for reader in readers:
                        reader.poll()
                elif each[0] == "retry":
                    for reader, further in itertools.zip_longest(readers, each[1]):
                        after = [] if further is None else [further]
                        if reader:
                            reader.retry(lambda after=after: [stage.step(*x) for x in after])
                else:
                    stage.step(*each)
            stage.finish()
            for reader in readers:
                reader.drain()
        finally:
            for reader in readers:
                reader.poller.close()
        return [reader.read for reader in readers], stage.committed


def check_all_ways(clients: Clients, steps: list) -> None:
    choices = [chosen for _, chosen in READERS.values()]
    read, committed = run_scenario(clients, steps, *choices)
    for name, ids in zip(READERS, read, strict=True):
        assert ids == committed, name


quickly = settings(
    max_examples=25,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)


@pytest.mark.slow
@quickly
@given(steps=scenario)
def test_every_committed_row_is_read_exactly_once(clients, steps):
    check_all_ways(clients, steps)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_every_committed_row_is_read_exactly_once_for_an_hour(clients):
    """An hour on every machine: a busy one tries fewer scenarios, and is not cut off in the middle."""

    @settings(max_examples=50, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(steps=scenario)
    def some(steps: list) -> None:
        check_all_ways(clients, steps)

    end = time.monotonic() + 3600
    while time.monotonic() < end:
        some()


OVERTAKEN = ["poll", (0, "insert"), (1, "insert"), (1, "commit"), "poll", (0, "commit"), "poll"]
IN_A_SUBTRANSACTION = ["poll", (0, "savepoint"), (0, "release"), (1, "insert_alone"), "poll", (0, "commit"), "poll"]
PREPARED = ["poll", (0, "insert"), (0, "prepare"), (1, "insert_alone"), "poll", "poll", (2, "commit_prepared"), "poll"]
ID_TAKEN_EARLY = ["poll", (0, "take_id"), (1, "insert_alone"), "poll", "poll", (0, "insert"), (0, "commit"), "poll"]
OPEN_FOR_LONG = [
    "poll", (0, "insert"), (1, "insert_alone"), "poll", (1, "insert_alone"), "poll", (1, "insert_alone"), "poll",
    (0, "commit"), "poll",
]  # fmt: skip
PREPARED_WHEN_KNOWN = [
    "poll", (0, "insert"), (1, "insert_alone"), "poll", (0, "prepare"), (1, "insert_alone"), "poll",
    (1, "insert_alone"), "poll", (2, "commit_prepared"), "poll",
]  # fmt: skip
ABORTED_BETWEEN = [
    "poll", (0, "insert"), (1, "insert"), (1, "roll_back"), (2, "savepoint"), (2, "roll_back_to"), (2, "insert"), "poll",
    (2, "commit"), "poll", (1, "insert_alone"), "poll", (0, "commit"), "poll",
]  # fmt: skip
KNOWN = {
    "open for long": OPEN_FOR_LONG,
    "prepared when known": PREPARED_WHEN_KNOWN,
    "aborted in between": ABORTED_BETWEEN,
    "overtaken": OVERTAKEN,
    "in a subtransaction": IN_A_SUBTRANSACTION,
    "prepared": PREPARED,
    "id taken early": ID_TAKEN_EARLY,
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_order_of_commits_loses_nothing(clients, name):
    (read,), committed = run_scenario(clients, KNOWN[name], {"cursor": "id"})
    assert read == committed
    assert sum(committed.values()) >= 2


@pytest.mark.parametrize("name", KNOWN)
def test_the_same_order_loses_a_row_when_the_protection_is_off(clients, name):
    (read,), committed = run_scenario(clients, KNOWN[name], {"cursor": "id", "late": "off"})
    assert sum((committed - read).values()) >= 1


def test_the_suite_finds_the_loss_by_itself_when_the_protection_is_off(clients):
    @settings(quickly, max_examples=300, phases=[Phase.generate], database=None)
    @given(steps=scenario)
    def nothing_is_lost(steps):
        (read,), committed = run_scenario(clients, steps, {"cursor": "id", "late": "off"})
        assert read == committed

    with pytest.raises(AssertionError):
        nothing_is_lost()


@pytest.mark.parametrize("name", READERS)
def test_the_expected_way_is_taken(clients, name):
    way, chosen = READERS[name]
    with clients.theatre(f"t{next(_tables)}") as stage:
        stage.step(0, "insert_alone")
        reader = Reader(clients.url, stage.table, chosen)
        reader.poller.look()
        assert way in reader.poller.plan.streams[0].why
        reader.poller.close()


def test_a_first_window_compares_cursors_only_where_a_row_may_not_belong_to_it(quiet_postgres: str):
    """The server need not compare what the plan's own view shows; any other view may show more (G5)."""
    with psycopg.connect(quiet_postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE compared (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tag text)")
        connection.execute("INSERT INTO compared (tag) SELECT n::text FROM generate_series(1, 9) n")

    def statements(poller: Poller, window: Window) -> list[str]:
        with poller.source.read(window) as (rows,):
            assert table_of(rows).num_rows == 9
            return [split.sql for split in rows.splits]

    poller = Poller(quiet_postgres, table="compared", cursor="id")
    window = poller.look()
    assert window is not None
    assert not any("WHERE" in sql for sql in statements(poller, window))
    with psycopg.connect(quiet_postgres) as connection:
        connection.execute("INSERT INTO compared (tag) VALUES ('late')")
        connection.commit()
    assert all('"id" <= 9' in sql for sql in statements(poller.in_another_process(), window))
    with psycopg.connect(quiet_postgres) as connection:
        connection.execute("DELETE FROM compared WHERE tag = 'late'")
        connection.commit()
        with psycopg.connect(quiet_postgres) as other:
            other.execute("INSERT INTO compared (tag) VALUES ('in flight')")
            connection.execute("INSERT INTO compared (tag) VALUES ('later')")
            poller = Poller(
                quiet_postgres, table="compared", cursor="id", max_rows=9, tuning=Tuning(first_poll_wait_seconds=0)
            )
            connection.commit()
            window = poller.look()
            assert window is not None
            assert all('"id" <= 9' in sql for sql in statements(poller, window))
