"""Rejects of a database are looked up again by their keys: what was mended comes, what still fails is the same reject."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from headwater.engine.rejects.collector import numbered_copies
from headwater.model.errors import UnknownName
from headwater.model.position.marks import StreamsMark
from headwater.model.protocols.source import Replays
from headwater.model.rows import Reject
from tests.sources.sql.poller import Poller
from tests.sources.sql.rejects import payloads, poll_with_rejects, read_with_rejects


class Bench:
    """One table, in PostgreSQL or in SQLite; `bad` is a value that its column has no place for."""

    def __init__(self, url: str, folder: Path, execute: Callable[[str], object], bad: str) -> None:
        self._url, self._folder, self.execute, self.bad = url, folder, execute, bad

    def poller(self, **settings: object) -> Poller:
        return Poller(self._url, folder=self._folder, **{"table": "t", "cursor": "seq", **settings})

    def rejects(self, **settings: object) -> list[Reject]:
        """As they are kept after a window, with rows alike counted."""
        poller = self.poller(**settings)
        _, rejects = poll_with_rejects(poller)
        poller.close()
        return numbered_copies({(0, reject.id): reject for reject in rejects}, "w1")

    def replay(self, rejects: list[Reject], **settings: object) -> tuple[list[dict], list[Reject]]:
        poller = self.poller(**settings)
        assert isinstance(poller.source, Replays)
        with poller.source.replay(rejects, StreamsMark({})) as streams:
            result = read_with_rejects(streams)
        poller.close()
        return result


@pytest.fixture(params=["postgresql", "sqlite"])
def bench(request, tmp_path):
    if request.param == "sqlite":
        with sqlite3.connect(tmp_path / "t.db", isolation_level=None) as connection:
            yield Bench("sqlite:///t.db", tmp_path, connection.execute, "'many'")
    else:
        with psycopg.connect(request.getfixturevalue("database"), autocommit=True) as connection:
            yield Bench(request.getfixturevalue("database"), tmp_path, connection.execute, "'NaN'")


@pytest.fixture
def keyed(bench):
    bench.execute("CREATE TABLE t (id int, kind varchar(9), seq int NOT NULL, n numeric(6,2), PRIMARY KEY (kind, id))")
    values = ", ".join(f"({n}, 'it''s\\ 😀', {n}, {bench.bad if n % 2 else n})" for n in range(1, 11))
    bench.execute(f"INSERT INTO t VALUES {values}")
    return bench


def ids(rows: list[dict]) -> list[int]:
    return sorted(row["id"] for row in rows)


def test_a_row_mended_in_place_comes_and_the_others_are_the_same_rejects(keyed):
    rejects = keyed.rejects()
    assert len(rejects) == 5
    keyed.execute("UPDATE t SET n = 7 WHERE id = 7")
    rows, again = keyed.replay(rejects)
    assert ids(rows) == [7]
    assert {reject.id for reject in again} == {one.id for one in rejects if '"id": 7' not in one.location["row"]}


def test_other_settings_bring_rows_that_nobody_touched(keyed):
    rejects = keyed.rejects()
    rows, again = keyed.replay(rejects, as_text=["n"])
    assert (ids(rows), again) == ([1, 3, 5, 7, 9], [])
    rows, again = keyed.replay(rejects, as_text=["n", "id"], where="id <> 5")
    assert sorted(row["id"] for row in rows) == ["1", "3", "7", "9"]


def test_only_the_rejects_that_are_asked_for_are_read(keyed):
    some = [one for one in keyed.rejects() if '"id": 3' in one.location["row"]]
    assert ids(keyed.replay(some, as_text=["n"])[0]) == [3]


def test_rows_that_are_gone_are_left_out(keyed):
    rejects = keyed.rejects()
    keyed.execute("DELETE FROM t WHERE id IN (1, 3)")
    rows, again = keyed.replay(rejects, as_text=["n"])
    assert (ids(rows), again) == ([5, 7, 9], [])
    keyed.execute("DELETE FROM t")
    assert keyed.replay(rejects) == ([], [])


def test_a_row_whose_cursor_moved_is_left_to_its_window(keyed):
    """It comes after the mark now: a replay would land it a second time."""
    rejects = keyed.rejects()
    keyed.execute("UPDATE t SET n = 1, seq = 100 WHERE id = 1")
    keyed.execute("UPDATE t SET seq = 101 WHERE id = 3")
    rows, again = keyed.replay(rejects)
    assert rows == []
    assert len(again) == 3


def test_a_row_that_changed_and_still_has_no_place_is_another_reject(keyed):
    rejects = keyed.rejects()
    keyed.execute("ALTER TABLE t ADD COLUMN note varchar(9)")
    keyed.execute("UPDATE t SET note = 'seen' WHERE id = 3")
    _, again = keyed.replay(rejects, where="id = 3")
    assert [one["note"] for one in payloads(again)] == ["seen"]
    assert again[0].id not in {one.id for one in rejects}


@pytest.fixture
def keyless(bench):
    bench.execute("CREATE TABLE t (id int, seq int NOT NULL, n numeric(6,2))")
    bench.execute(f"INSERT INTO t VALUES (1, 1, {bench.bad}), (1, 1, {bench.bad}), (1, 1, 1), (2, 1, {bench.bad})")
    return bench


def test_a_row_without_a_key_is_known_by_all_its_values(keyless):
    """Rows that share its cursor have landed: to read them once more would double them."""
    rejects = keyless.rejects()
    assert len(rejects) == 3
    rows, again = keyless.replay(rejects, as_text=["n"])
    assert (ids(rows), again) == ([1, 1, 2], [])
    rows, again = keyless.replay(rejects)
    assert rows == []
    assert {one.id for one in again} == {one.id for one in rejects}
    assert ids(keyless.replay(rejects[:1], as_text=["n"])[0]) == [1]
    keyless.execute("UPDATE t SET n = 5 WHERE id = 2")
    rows, again = keyless.replay(rejects, as_text=["n"])
    assert (ids(rows), again) == ([1, 1], [])


def test_rejects_of_a_stream_that_is_no_longer_read_are_refused(keyed):
    rejects = keyed.rejects()
    with pytest.raises(UnknownName, match="does not read other"):
        keyed.replay([replace(rejects[0], stream="other")])
    with pytest.raises(UnknownName, match="identified by kind, id; not read any more: kind"):
        keyed.replay(rejects, columns=["n", "id"])


def test_keys_of_every_storage_class_are_found_again(tmp_path):
    with sqlite3.connect(tmp_path / "t.db", isolation_level=None) as connection:
        connection.execute("CREATE TABLE t (k PRIMARY KEY, seq INTEGER NOT NULL, n INT)")
        keys = [7, 0.1, "7e0", "it's", b"\x00\xff", "", b"", -3, 1e300, "X'00'"]
        connection.executemany("INSERT INTO t VALUES (?, ?, 'many')", [(key, n) for n, key in enumerate(keys)])
        bench = Bench("sqlite:///t.db", tmp_path, connection.execute, "'many'")
        rejects = bench.rejects()
        assert len(rejects) == len(keys)
        connection.execute("UPDATE t SET n = 1 WHERE typeof(k) <> 'blob'")
        rows, again = bench.replay(rejects)
        assert len(rows) == 8
        assert len(again) == 2


def test_many_rejects_are_asked_for_in_several_statements(keyed):
    keyed.execute("INSERT INTO t VALUES " + ", ".join(f"({n}, 'x', {n}, {keyed.bad})" for n in range(1000, 1800)))
    rejects = keyed.rejects()
    assert len(rejects) == 805
    assert len(keyed.replay(rejects, as_text=["n"])[0]) == 805
