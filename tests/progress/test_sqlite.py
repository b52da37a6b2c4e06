"""The SQLite store: what happens to its file, its tables and their versions."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater.model.errors import StoreDamaged, StoreUnreachable
from headwater.model.position.marks import ColumnMark
from headwater.model.progress import HistoryEntry, Progress
from headwater.model.types import CursorType
from headwater.progress.migrations import NEWEST, SQLITE, upgrade
from headwater.progress.record_store import wall_clock
from headwater.progress.sqlite import SqliteProgress


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "progress.db"


def test_the_row_that_holds_the_mark_can_be_queried(path: Path) -> None:
    advance(SqliteProgress(path), 42)
    with sqlite3.connect(path) as connection:
        row = connection.execute(
            "SELECT pipeline, version, epoch, mark_text, json_extract(mark, '$.value'), updated_at, lease_owner "
            "FROM headwater_progress"
        ).fetchone()
        history = connection.execute("SELECT pipeline, version, kind, who FROM headwater_history").fetchall()
    assert row[:5] == ("a", 1, 1, "seq = 42", 42)
    assert abs(dt.datetime.fromisoformat(row[5]) - wall_clock()) < dt.timedelta(minutes=1)
    assert row[6] == "me"
    assert history == [("a", 1, "landed", "me")]


def test_renewing_a_lease_does_not_make_the_mark_look_newer(path: Path) -> None:
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    store = SqliteProgress(path, lambda: moment)
    lease = advance(store, 42)
    moment += dt.timedelta(seconds=5)
    store.renew(lease)
    with sqlite3.connect(path) as connection:
        row = connection.execute("SELECT updated_at, lease_expires_at FROM headwater_progress").fetchone()
    assert row == ("2026-01-01T00:00:00.000000+00:00", "2026-01-01T00:00:35.000000+00:00")


def test_a_file_that_is_no_database_is_damage(path: Path) -> None:
    path.write_bytes(b"mark: 5\n" * 1000)
    check_damaged(path)


def test_a_truncated_database_is_damage_down_to_the_empty_file(path: Path) -> None:
    store = SqliteProgress(path)
    advance(store, 1)
    store.close()
    content = path.read_bytes()
    for length in (len(content) - 1, len(content) - 4096, 4096 * 2, 4096, 100, 1, 0):
        path.write_bytes(content[:length])
        check_damaged(path)
    path.write_bytes(content)
    assert SqliteProgress(path).load("a").version == 1


def test_a_lost_file_is_noticed_by_its_log(path: Path) -> None:
    store = SqliteProgress(path)
    advance(store, 1)
    assert path.with_name("progress.db-wal").exists()
    path.unlink()
    check_damaged(path)


def test_a_file_that_is_removed_or_replaced_while_in_use_is_noticed(path: Path) -> None:
    store = SqliteProgress(path)
    advance(store, 1)
    path.rename(path.with_name("aside.db"))
    with pytest.raises(StoreUnreachable, match="removed while it was in use"):
        store.load("a")
    path.with_name("progress.db-wal").unlink(missing_ok=True)
    advance(SqliteProgress(path), 7)
    assert store.load("a").mark == mark(7)


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE headwater_progress SET mark = 'null'",
        "UPDATE headwater_progress SET mark = '[]'",
        "UPDATE headwater_progress SET mark = x'00ff'",
        "UPDATE headwater_progress SET version = 'one'",
        "UPDATE headwater_progress SET epoch = 1.5",
        "UPDATE headwater_progress SET intent = '{}'",
        "UPDATE headwater_progress SET lease_expires_at = 'soon'",
        "DROP TABLE headwater_progress",
        "ALTER TABLE headwater_progress DROP COLUMN mark",
        "DROP TABLE headwater_schema",
        "DELETE FROM headwater_schema",
        "UPDATE headwater_schema SET version = 99 WHERE version = 2",
    ],
)
def test_rows_and_tables_that_cannot_be_understood_are_damage(path: Path, harm: str) -> None:
    store = SqliteProgress(path)
    advance(store, 1)
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute(harm)
    check_damaged(path)


def test_a_history_that_cannot_be_understood_is_damage(path: Path) -> None:
    store = SqliteProgress(path)
    advance(store, 1)
    with sqlite3.connect(path) as connection:
        connection.execute('UPDATE headwater_history SET entry = \'{"kind": "landed"}\'')
    with pytest.raises(StoreDamaged, match="the history of 'a'"):
        store.history("a", 1)


def test_a_missing_folder_is_made_and_one_that_cannot_be_is_an_outage(tmp_path: Path) -> None:
    assert SqliteProgress(tmp_path / "x" / "y" / "p.db").load("a").version == 0
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnreachable, match="folder"):
        SqliteProgress(tmp_path / "file" / "p.db").load("a")
    with pytest.raises(StoreUnreachable):
        SqliteProgress(tmp_path).load("a")


def test_nothing_is_left_beside_the_file(path: Path) -> None:
    store = SqliteProgress(path)
    advance(store, 1)
    store.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["progress.db"]


def test_a_database_that_another_program_keeps_locked_is_an_outage(path: Path) -> None:
    advance(SqliteProgress(path), 1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    store = SqliteProgress(path, patience_seconds=0.05)
    with pytest.raises(StoreUnreachable, match="end that program"):
        store.acquire("b", "me", 30)
    other.execute("ROLLBACK")
    assert store.acquire("b", "me", 30).epoch == 1
    other.close()


def test_tables_may_stand_beside_those_of_others(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id integer)")
    advance(SqliteProgress(path), 1)
    assert SqliteProgress(path).load("a").version == 1


def test_many_first_opens_at_once_make_one_store(path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        epochs = list(threads.map(lambda n: SqliteProgress(path).acquire(f"p{n}", "me", 30).epoch, range(16)))
    assert epochs == [1] * 16
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM headwater_progress").fetchone() == (16,)


def test_tables_of_version_1_are_brought_to_the_newest_with_all_they_hold(path: Path) -> None:
    entries = [entry("landed"), entry("rewound", who="anna", why="restored")]
    with sqlite3.connect(path, isolation_level=None) as connection:
        upgrade(executing(connection), SQLITE, to=1)
        connection.execute(
            "INSERT INTO headwater_progress (pipeline, version, epoch, mark, mark_text) VALUES (?, 2, 5, ?, ?)",
            ["a", json.dumps(mark(3).to_json()), "seq = 3"],
        )
        for version, item in enumerate(entries, start=1):
            row = ["a", version, item.at.isoformat(), json.dumps(item.to_json())]
            connection.execute("INSERT INTO headwater_history VALUES (?, ?, ?, ?)", row)
    with ThreadPoolExecutor(4) as threads:
        loaded = list(threads.map(lambda _: SqliteProgress(path).load("a"), range(8)))
    assert loaded == [Progress("a", version=2, epoch=5, mark=mark(3))] * 8
    store = SqliteProgress(path)
    assert list(store.history("a", 10)) == entries[::-1]
    assert advance(store, 4).epoch == 6
    with sqlite3.connect(path) as connection:
        kinds = connection.execute("SELECT kind, who FROM headwater_history ORDER BY version").fetchall()
        versions = connection.execute("SELECT version FROM headwater_schema ORDER BY version").fetchall()
    assert kinds == [("landed", "me"), ("rewound", "anna"), ("landed", "me")]
    assert versions == [(version,) for version in range(1, NEWEST + 1)]


def test_tables_of_a_newer_version_are_refused_with_the_remedy(path: Path) -> None:
    SqliteProgress(path).load("a")
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO headwater_schema VALUES (?, 'later', CURRENT_TIMESTAMP)", [NEWEST + 1])
    with pytest.raises(StoreDamaged, match=r"progress\.db: .*newer Headwater.*\n.*run that version"):
        SqliteProgress(path).load("a")


def check_damaged(path: Path) -> None:
    for use in (lambda store: store.load("a"), lambda store: store.acquire("a", "other", 30)):
        with pytest.raises(StoreDamaged, match=r"progress\.db"):
            use(SqliteProgress(path, lambda: wall_clock() + dt.timedelta(hours=1)))


def executing(connection: sqlite3.Connection) -> Callable[..., list[tuple[object, ...]]]:
    return lambda statement, values: connection.execute(statement, values).fetchall()


def advance(store: SqliteProgress, to: int):
    lease, progress = store.acquire("a", "me", 30), store.load("a")
    store.swap(lease, progress, progress.advanced(mark(to)), entry("landed"))
    return lease


def mark(value: int) -> ColumnMark:
    return ColumnMark("seq", CursorType.INTEGER, value)


def entry(kind, who: str = "me", why: str = "") -> HistoryEntry:
    return HistoryEntry(kind, "run", dt.datetime(2026, 1, 1, tzinfo=dt.UTC), who, 1, "seq = 1", "seq = 4", why=why)
