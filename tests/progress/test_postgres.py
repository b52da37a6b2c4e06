"""The PostgreSQL store: outages, lost connections, permissions, versions of its tables."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from headwater.model.errors import HeadwaterError, InputError, LeaseHeld, StoreDamaged, StoreUnreachable
from headwater.model.position.marks import ColumnMark
from headwater.model.progress import HistoryEntry, Lease, Progress
from headwater.model.secret import Secret
from headwater.model.types import CursorType
from headwater.progress.migrations import NEWEST, POSTGRES, upgrade
from headwater.progress.postgres import PostgresProgress


@pytest.fixture
def store(progress_url: str) -> PostgresProgress:
    return PostgresProgress(Secret(progress_url))


def test_the_row_that_holds_the_mark_can_be_queried(store: PostgresProgress, progress_url: str) -> None:
    advance(store, 42)
    with psycopg.connect(progress_url) as connection:
        row = connection.execute(
            "SELECT pipeline, version, epoch, mark_text, mark->>'value', lease_owner, "
            "now() - updated_at < interval '1 minute' FROM headwater_progress"
        ).fetchone()
        history = connection.execute("SELECT pipeline, version, kind, who FROM headwater_history").fetchall()
    assert row == ("a", 1, 1, "seq = 42", "42", "me", True)
    assert history == [("a", 1, "landed", "me")]


def test_leases_end_by_the_clock_of_the_database(store: PostgresProgress, progress_url: str) -> None:
    with psycopg.connect(progress_url, autocommit=True) as connection:
        before = connection.execute("SELECT clock_timestamp()").fetchone()
        lease = store.acquire("a", "me", 30)
        after = connection.execute("SELECT clock_timestamp()").fetchone()
    assert before
    assert after
    assert before[0] <= lease.expires_at - dt.timedelta(seconds=30) <= after[0]


def test_the_clock_is_read_after_the_wait_for_the_row(store: PostgresProgress, progress_url: str) -> None:
    store.acquire("a", "me", 0.4)
    with psycopg.connect(progress_url) as other, ThreadPoolExecutor(1) as thread:
        other.execute("SELECT 1 FROM headwater_progress FOR UPDATE")
        waiting = thread.submit(store.acquire, "a", "other", 30)
        other.execute("SELECT pg_sleep(0.6)")  # the lease ends while the other one waits
        other.commit()
        assert waiting.result().epoch == 2


@pytest.mark.parametrize(
    "address", ["postgresql://me:s3cret@127.0.0.1:1/db", "postgresql://127.0.0.1:1/db?password=s3cret"]
)
def test_a_server_that_does_not_answer_is_an_outage_and_the_password_stays_secret(address: str) -> None:
    store = PostgresProgress(Secret(address))
    for use in (store.pipelines, lambda: store.load("a"), lambda: store.acquire("a", "me", 30)):
        with pytest.raises(StoreUnreachable, match="check that the server runs") as raised:
            use()
        check_secret(raised.value)
    assert "s3cret" not in store.address


@pytest.mark.parametrize(
    "address",
    ["postgresql://me:s3@cret@127.0.0.1:1/db", "postgresql://me:s3/cret@127.0.0.1:1/db", "postgresql://h/db?sslmod=1"],
)
def test_an_address_that_cannot_be_read_is_the_users_to_mend_and_shows_nothing(address: str) -> None:
    with pytest.raises(InputError, match="%40") as raised:
        PostgresProgress(Secret(address)).load("a")
    check_secret(raised.value)


def test_a_database_that_is_not_there_is_an_outage(progress_database: str) -> None:
    with pytest.raises(StoreUnreachable, match="does not exist"):
        PostgresProgress(Secret(progress_database + "_gone")).load("a")


def test_a_connection_that_broke_between_cycles_is_opened_again(store: PostgresProgress, progress_url: str) -> None:
    lease = advance(store, 1)
    end_sessions(progress_url)
    assert store.load("a").mark == mark(1)
    end_sessions(progress_url)
    progress = store.load("a")
    end_sessions(progress_url)
    stored = store.swap(lease, progress, progress.advanced(mark(2)), None)
    assert (stored.version, stored.mark) == (2, mark(2))


def test_a_refused_move_leaves_the_connection_usable(store: PostgresProgress) -> None:
    advance(store, 1)
    with pytest.raises(LeaseHeld):
        store.acquire("a", "other", 30)
    assert store.load("a").mark == mark(1)


def test_a_user_who_may_not_create_tables_is_told_what_to_grant(progress_url: str) -> None:
    with psycopg.connect(progress_url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS headwater_reader")
        admin.execute("CREATE ROLE headwater_reader LOGIN")
    try:
        with pytest.raises(StoreUnreachable, match="GRANT"):
            PostgresProgress(Secret(progress_url.replace("//postgres@", "//headwater_reader@"))).load("a")
    finally:
        with psycopg.connect(progress_url, autocommit=True) as admin:
            admin.execute("DROP ROLE headwater_reader")


def test_a_read_only_database_is_an_outage(progress_url: str) -> None:
    read_only = progress_url.replace("options=", "options=-cdefault_transaction_read_only%3Don%20")
    with pytest.raises(StoreUnreachable, match="primary"):
        PostgresProgress(Secret(read_only)).load("a")


def test_a_row_that_somebody_keeps_locked_is_an_outage_after_a_while(
    store: PostgresProgress, progress_url: str
) -> None:
    advance(store, 1)
    impatient = PostgresProgress(Secret(progress_url), patience_seconds=0.05)
    with psycopg.connect(progress_url) as other:
        other.execute("SELECT 1 FROM headwater_progress FOR UPDATE")
        with pytest.raises(StoreUnreachable, match="end its transaction"):
            impatient.acquire("a", "other", 30)
        assert impatient.load("a").mark == mark(1)


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE headwater_progress SET mark = 'null'",
        "UPDATE headwater_progress SET mark = '[]'",
        "UPDATE headwater_progress SET intent = '{}'",
        "UPDATE headwater_progress SET lease_expires_at = 'infinity'",
        "DROP TABLE headwater_progress",
        "ALTER TABLE headwater_progress DROP COLUMN mark",
        "DROP TABLE headwater_schema",
        "DELETE FROM headwater_schema",
    ],
)
def test_rows_and_tables_that_cannot_be_understood_are_damage(
    store: PostgresProgress, progress_url: str, harm: str
) -> None:
    advance(store, 1)
    store.close()
    with psycopg.connect(progress_url) as connection:
        connection.execute(harm)
    for use in (lambda: store.load("a"), lambda: store.acquire("a", "other", 30)):
        with pytest.raises(StoreDamaged, match="postgresql://"):
            use()


def test_many_first_opens_at_once_make_one_store(progress_url: str) -> None:
    def first_use(number: int) -> int:
        store = PostgresProgress(Secret(progress_url))
        try:
            return store.acquire(f"p{number}", "me", 30).epoch
        finally:
            store.close()

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(first_use, range(16))) == [1] * 16


def test_tables_of_version_1_are_brought_to_the_newest_with_all_they_hold(progress_url: str) -> None:
    entries = [entry("landed"), entry("rewound", who="anna", why="restored")]
    with psycopg.connect(progress_url) as connection:
        upgrade(executing(connection), POSTGRES, to=1)
        connection.execute(
            "INSERT INTO headwater_progress (pipeline, version, epoch, mark) VALUES ('a', 2, 5, %s)",
            [json.dumps(mark(3).to_json())],
        )
        for version, item in enumerate(entries, start=1):
            row = [version, item.at, json.dumps(item.to_json())]
            connection.execute("INSERT INTO headwater_history VALUES ('a', %s, %s, %s)", row)
    store = PostgresProgress(Secret(progress_url))
    assert store.load("a") == Progress("a", version=2, epoch=5, mark=mark(3))
    assert list(store.history("a", 10)) == entries[::-1]
    assert advance(store, 4).epoch == 6
    with psycopg.connect(progress_url) as connection:
        kinds = connection.execute("SELECT kind, who FROM headwater_history ORDER BY version").fetchall()
        versions = connection.execute("SELECT version FROM headwater_schema ORDER BY version").fetchall()
    assert kinds == [("landed", "me"), ("rewound", "anna"), ("landed", "me")]
    assert versions == [(version,) for version in range(1, NEWEST + 1)]


def test_tables_of_a_newer_version_are_refused_with_the_remedy(store: PostgresProgress, progress_url: str) -> None:
    store.load("a")
    with psycopg.connect(progress_url) as connection:
        connection.execute("INSERT INTO headwater_schema VALUES (%s, 'later', now())", [NEWEST + 1])
    with pytest.raises(StoreDamaged, match=r"postgresql://.*newer Headwater.*\n.*run that version"):
        PostgresProgress(Secret(progress_url)).load("a")


def check_secret(error: HeadwaterError) -> None:
    chain: BaseException | None = error
    while chain is not None:
        assert not any(part in f"{chain} {chain!r}" for part in ("s3cret", "s3@cret", "s3/cret", "cret@"))
        chain = chain.__cause__


def end_sessions(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'headwater'"
        )


def executing(connection: psycopg.Connection) -> Callable[..., list[tuple[object, ...]]]:
    def execute(statement: str, values: dict[str, object]) -> list[tuple[object, ...]]:
        for name in values:
            statement = statement.replace(f":{name}", f"%({name})s")
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []

    return execute


def advance(store: PostgresProgress, to: int) -> Lease:
    lease, progress = store.acquire("a", "me", 30), store.load("a")
    store.swap(lease, progress, progress.advanced(mark(to)), entry("landed"))
    return lease


def mark(value: int) -> ColumnMark:
    return ColumnMark("seq", CursorType.INTEGER, value)


def entry(kind, who: str = "me", why: str = "") -> HistoryEntry:
    return HistoryEntry(kind, "run", dt.datetime(2026, 1, 1, tzinfo=dt.UTC), who, 1, "seq = 1", "seq = 4", why=why)
