"""Several levels: the last one decides, and whatever those in front hold, it can do no harm."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headwater.model.errors import LeaseLost, ProgressConflict, StoreDamaged, StoreUnreachable
from headwater.model.position.marks import ColumnMark
from headwater.model.progress import HistoryEntry, Lease, Progress
from headwater.model.protocols.store import Store
from headwater.model.secret import Secret
from headwater.model.types import CursorType
from headwater.progress.file import FileProgress
from headwater.progress.memory import MemoryProgress
from headwater.progress.multilevel import MultilevelProgress
from headwater.progress.postgres import PostgresProgress
from headwater.progress.record_store import wall_clock
from headwater.progress.sqlite import SqliteProgress

NOWHERE = Secret("postgresql://me:s3cret@127.0.0.1:1/db")


class CountingMemory(MemoryProgress):
    """Counts loads: the store that decides, when it should not be asked too often."""

    loads = 0

    def load(self, pipeline: str) -> Progress:
        self.loads += 1
        return super().load(pipeline)


def test_while_we_hold_the_lease_the_first_level_answers() -> None:
    last = CountingMemory()
    store = MultilevelProgress([MemoryProgress()], last)
    for value in range(1, 6):
        lease = store.acquire("a", "me", 30)
        assert advance(store, lease, value).mark == mark(value)
        assert store.load("a").epoch == lease.epoch
        store.release(lease)
    assert last.loads == 1  # nobody else took the lease in between, so nothing can have changed


def test_a_level_that_lost_its_content_is_filled_again() -> None:
    fronts, last = [MemoryProgress(), MemoryProgress()], MemoryProgress()
    store = MultilevelProgress(fronts, last)
    lease = store.acquire("a", "me", 30)
    stored = advance(store, lease, 5)
    assert [front.load("a").mark for front in fronts] == [mark(5)] * 2
    empty = MemoryProgress()
    refilled = MultilevelProgress([empty, fronts[1]], last)
    assert refilled.load("a") == stored
    assert empty.load("a").mark == mark(5)


def test_the_second_level_answers_where_the_first_has_an_older_version(tmp_path: Path) -> None:
    first, second, last = SqliteProgress(tmp_path / "first.db"), MemoryProgress(), CountingMemory()
    store = MultilevelProgress([first, second], last)
    lease = store.acquire("a", "me", 30)
    stored = advance(store, lease, 5)
    with closing(sqlite3.connect(tmp_path / "first.db")) as database, database:
        database.execute("DELETE FROM headwater_progress")
    loads = last.loads
    assert store.load("a") == stored
    assert last.loads == loads
    assert first.load("a").mark == mark(5)


def test_a_stale_first_level_never_wins_a_swap_and_is_put_right() -> None:
    last = MemoryProgress()
    ours, theirs = (MultilevelProgress([MemoryProgress()], last) for _ in range(2))
    lease = ours.acquire("a", "us", 30)
    stale = advance(ours, lease, 5)
    # Somebody writes under our lease past our levels in front: the worst that can happen to them.
    advance(theirs, lease, 9)
    with pytest.raises(ProgressConflict):
        ours.swap(lease, stale, stale.advanced(mark(6)), None)
    assert ours.load("a").mark == mark(9)
    assert last.load("a").mark == mark(9)


def test_after_another_process_ran_the_first_level_is_not_believed() -> None:
    last = MemoryProgress()
    ours, theirs = (MultilevelProgress([MemoryProgress()], last) for _ in range(2))
    lease = ours.acquire("a", "us", 30)
    advance(ours, lease, 5)
    ours.release(lease)
    other = theirs.acquire("a", "them", 30)
    advance(theirs, other, 9)
    assert ours.load("a").mark == mark(9)  # without a lease: whatever is true now
    theirs.release(other)
    lease = ours.acquire("a", "us", 30)
    assert ours.load("a").mark == mark(9)
    assert advance(ours, lease, 10).mark == mark(10)


def test_a_stale_first_level_cannot_move_a_mark_back_under_a_lost_lease() -> None:
    now = wall_clock()
    last = MemoryProgress(lambda: now)
    ours, theirs = (MultilevelProgress([MemoryProgress()], last) for _ in range(2))
    lease = ours.acquire("a", "us", 0.0)
    other = theirs.acquire("a", "them", 30)
    advance(theirs, other, 9)
    stale = Progress("a", version=1, epoch=2, mark=mark(3))
    with pytest.raises(LeaseLost):
        ours.swap(lease, stale, stale.advanced(mark(4)), None)
    assert last.load("a").mark == mark(9)


def test_a_rewind_by_another_process_is_seen() -> None:
    last = MemoryProgress()
    ours, theirs = (MultilevelProgress([MemoryProgress()], last) for _ in range(2))
    lease = ours.acquire("a", "us", 30)
    advance(ours, lease, 5)
    ours.release(lease)
    other = theirs.acquire("a", "anna", 30)
    progress = theirs.load("a")
    theirs.swap(other, progress, progress.rewound(mark(2)), entry("rewound", why="restored"))
    theirs.release(other)
    lease = ours.acquire("a", "us", 30)
    assert ours.load("a").mark == mark(2)
    assert advance(ours, lease, 3).mark == mark(3)


@pytest.mark.parametrize("front", ["unreachable", "damaged"])
def test_a_level_in_front_that_is_down_does_not_hurt(front: str, tmp_path: Path) -> None:
    (tmp_path / "front.db").write_bytes(b"no database")
    level = PostgresProgress(NOWHERE) if front == "unreachable" else SqliteProgress(tmp_path / "front.db")
    store = MultilevelProgress([level], FileProgress(tmp_path / "last"))
    lease = store.acquire("a", "me", 30)
    assert advance(store, lease, 5).mark == mark(5)
    assert store.load("a").mark == mark(5)
    assert [entry.end for entry in store.history("a", 5)] == ["seq = 5"]


def test_the_last_level_down_is_an_outage_whatever_the_first_one_holds() -> None:
    first = MemoryProgress()
    first.remember(Progress("a", version=7, epoch=3, mark=mark(5)))
    store = MultilevelProgress([first], PostgresProgress(NOWHERE))
    for use in (
        lambda: store.load("a"),
        lambda: store.acquire("a", "me", 30),
        lambda: store.history("a", 5),
        store.pipelines,
    ):
        with pytest.raises(StoreUnreachable):
            use()


def test_a_swap_with_an_unknown_end_is_looked_up_in_the_last_level() -> None:
    class Vanishing(CountingMemory):
        """Stores what it is given and loses the connection before it can say so."""

        vanished = False

        def swap(self, lease: Lease, expected: Progress, updated: Progress, entry: HistoryEntry | None) -> Progress:
            stored = super().swap(lease, expected, updated, entry)
            if self.vanished:
                raise StoreUnreachable("connection lost")
            return stored

    last = Vanishing()
    store = MultilevelProgress([MemoryProgress()], last)
    lease = store.acquire("a", "me", 30)
    advance(store, lease, 5)
    last.vanished = True
    with pytest.raises(StoreUnreachable):
        advance(store, lease, 6)
    last.vanished = False
    assert store.load("a").mark == mark(6)


def test_a_last_level_that_lost_writes_is_not_taken_for_a_first_run() -> None:
    first = MemoryProgress()
    store = MultilevelProgress([first], MemoryProgress())
    advance(store, store.acquire("a", "me", 30), 5)
    emptied = MultilevelProgress([first], MemoryProgress())
    emptied.acquire("a", "me", 30)
    with pytest.raises(StoreDamaged, match=r"knows version 1 \(seq = 5\).*holds version 0 \(no mark\)"):
        emptied.load("a")


def test_the_address_names_every_level_and_no_password(tmp_path: Path) -> None:
    store = MultilevelProgress([MemoryProgress(), FileProgress(tmp_path)], PostgresProgress(NOWHERE))
    assert store.address == f"memory: → file://{tmp_path} → postgresql://me:****@127.0.0.1:1/db"


def advance(store: Store, lease: Lease, to: int) -> Progress:
    progress = store.load("a")
    return store.swap(lease, progress, progress.advanced(mark(to)), entry("landed", to))


def mark(value: int) -> ColumnMark:
    return ColumnMark("seq", CursorType.INTEGER, value)


def entry(kind, to: int = 0, why: str = "") -> HistoryEntry:
    return HistoryEntry(kind, "run", wall_clock(), "me", 1, "", f"seq = {to}", why=why)
