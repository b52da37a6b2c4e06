"""The promises of a progress store as a test suite.

Subclass `StoreContract` and give it a fixture `target`; pytest does the rest:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def target(self, tmp_path):
            return MyTarget(tmp_path)
"""

from __future__ import annotations

import datetime as dt
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from headwater.model.errors import (
    InputError,
    LeaseHeld,
    LeaseLost,
    MarkMovedBack,
    ProgressConflict,
    StoreDamaged,
)
from headwater.model.landing import Landing
from headwater.model.position.marks import ColumnMark, StreamsMark
from headwater.model.position.window import Window
from headwater.model.progress import EntryKind, HistoryEntry, Intent, Lease, PausedStream, Progress
from headwater.model.protocols.store import Store
from headwater.model.types import CursorType
from headwater.testing.progress_race import OpenStore, Race, run_race

NASTY_NAMES = (
    "a", "A", "a/b", "a:b", "a\\b", "a%2fb", "a%2Fb", "a b", "a+b", " a", "a ", ".", "..", "../a", "/etc/passwd", "a.json",
    "a.lock", "~", "a~b", "-rf", "*", "?", "a\nb", "a\tb", "\x01", "'", '"', "a'; DROP TABLE headwater_progress; --", "%s",
    "%(pipeline)s", ":pipeline", "{0}", "$HOME", "con", "null", "None", "0", "é", "e\u0301", "ß", "ss", "\u0130", "\u0131", "日本語",
    "\U0001d518\U0001d52b", "🌊", "\u202e", "\ufeffa", "\u00a0", "x" * 255, "x" * 256, "x" * 500, "ü" * 255, "🌊" * 500, "🌊" * 499,
)  # fmt: skip
REFUSED_NAMES = ("", "a\x00b", "\ud800", "x" * 501)


class StoreTarget(Protocol):
    """The data of one test, with control over time and damage."""

    open: OpenStore
    """Another store on the same data; picklable when `shared`."""
    shared: bool
    """Whether another process can open the data."""

    def pass_time(self, seconds: float) -> None:
        """Make every lease that much older."""

    def damage(self, pipeline: str) -> None:
        """Make what is stored of this pipeline unreadable."""


class StoreContract:
    """The promises of every store, as the names of the tests."""

    @pytest.fixture
    def target(self) -> StoreTarget:
        raise NotImplementedError("give your subclass a fixture `target`")

    @pytest.fixture
    def store(self, target: StoreTarget) -> Iterator[Store]:
        store = target.open()
        yield store
        store.close()

    def test_a_pipeline_never_written_has_version_0_and_only_that(self, store: Store) -> None:
        assert store.load("a") == Progress("a")
        assert store.history("a", 10) == []
        assert store.pipelines() == []
        lease = store.acquire("a", "me", 30)
        assert store.load("a") == Progress("a", version=0, epoch=lease.epoch)
        assert store.pipelines() == []
        stored = store.swap(lease, store.load("a"), store.load("a").abandoned(), None)
        assert stored.version == 1
        assert store.load("a") == stored
        assert store.pipelines() == ["a"]

    def test_a_swap_is_stored_whole_and_seen_by_others(self, target: StoreTarget, store: Store) -> None:
        stored = _advance(store, _lease(store), 5)
        assert (stored.version, stored.epoch, stored.mark) == (1, 1, _mark(5))
        assert store.load("a") == stored
        assert target.open().load("a") == stored

    def test_a_swap_from_an_older_version_is_refused_and_writes_nothing(self, store: Store) -> None:
        lease = _lease(store)
        old = store.load("a")
        stored = _advance(store, lease, 5)
        with pytest.raises(ProgressConflict, match="version 1"):
            store.swap(lease, old, old.advanced(_mark(6)), _entry("landed"))
        assert store.load("a") == stored
        assert len(store.history("a", 10)) == 1

    def test_a_swap_of_another_pipeline_is_refused(self, store: Store) -> None:
        lease, other = _lease(store), store.load("b")
        with pytest.raises(ProgressConflict):
            store.swap(lease, other, other.advanced(_mark(6)), None)
        assert store.load("b").version == 0

    @pytest.mark.parametrize("to", [4, None], ids=["back", "away"])
    def test_a_mark_never_moves_back_by_itself(self, store: Store, to: int | None) -> None:
        lease = _lease(store)
        stored = _advance(store, lease, 5)
        with pytest.raises(MarkMovedBack, match="rewind"):
            store.swap(lease, stored, stored.rewound(None if to is None else _mark(to)), _entry("landed"))
        assert store.load("a") == stored
        assert len(store.history("a", 10)) == 1

    def test_a_mark_of_another_column_is_refused(self, store: Store) -> None:
        lease = _lease(store)
        stored = _advance(store, lease, 5)
        other = ColumnMark("updated_at", CursorType.DATE, dt.date(2026, 1, 1))
        with pytest.raises(MarkMovedBack):
            store.swap(lease, stored, stored.rewound(other), None)

    def test_a_rewind_moves_the_mark_back_and_is_on_record(self, target: StoreTarget, store: Store) -> None:
        lease = _lease(store)
        stored = _advance(store, lease, 5)
        entry = _entry("rewound", who="anna", why="restored the table")
        rewound = store.swap(lease, stored, stored.rewound(_mark(2)), entry)
        assert rewound.mark == _mark(2)
        assert rewound.version == 2
        assert target.open().load("a").mark == _mark(2)
        assert store.history("a", 1) == [entry]

    @pytest.mark.parametrize(("who", "why"), [("", "because"), ("anna", ""), ("anna", " ")])
    def test_a_rewind_without_who_and_why_is_refused(self, store: Store, who: str, why: str) -> None:
        lease = _lease(store)
        stored = _advance(store, lease, 5)
        with pytest.raises(MarkMovedBack):
            store.swap(lease, stored, stored.rewound(_mark(2)), _entry("rewound", who=who, why=why))
        assert store.load("a") == stored

    def test_an_intent_and_marks_of_every_kind_come_back_equal(self, target: StoreTarget, store: Store) -> None:
        lease = _lease(store)
        values: dict[CursorType, int | str] = {
            CursorType.INTEGER: 2**70,
            CursorType.DECIMAL: "1.10",
            CursorType.TIMESTAMP: "2026-03-29T02:30:00.000001",
            CursorType.TIMESTAMPTZ: "2026-03-29T02:30:00.123456+02:00",
            CursorType.STRING: "\x00 ' \" \\ 🌊 \ud800 \n",
            CursorType.UUID: "0190163d-8694-739b-aea5-966c26f8ad91",
        }
        marks = {f"s.{kind.value}": ColumnMark("c", kind, kind.from_json(text)) for kind, text in values.items()}
        mark = StreamsMark({**marks, "none": ColumnMark("c", CursorType.DATE, None)})
        landing = Landing("1:iceberg", "s", "w", rows=3, seconds=0.25, proof={"snapshot": 2**62})
        intent = Intent("run 1", Window(None, mark), dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC), (landing,))
        waits = PausedStream("s", intent.begun_at, "schema-refused", "not so: \x00", Window(mark, mark), (landing,))
        wanted = store.load("a").intending(intent).with_paused(waits, replace(waits, stream="t", window=None))
        stored = store.swap(lease, store.load("a"), wanted, None)
        assert target.open().load("a") == stored
        assert (stored.intent, stored.paused) == (intent, wanted.paused)
        done = store.swap(lease, stored, stored.advanced(mark), None)
        assert target.open().load("a") == done
        assert (done.mark, done.intent, done.paused) == (mark, None, wanted.paused)
        left = store.swap(lease, done, done.without_paused("s", "t"), None)
        assert target.open().load("a") == left
        assert left.paused == ()

    def test_history_gives_the_newest_entries_first(self, target: StoreTarget, store: Store) -> None:
        lease = _lease(store)
        progress = store.load("a")
        entries = [_entry("landed", run=f"run {n}", why="\x00 🌊 ' \n" * n) for n in range(12)]
        for entry in entries:
            progress = store.swap(lease, progress, progress, entry)
        progress = store.swap(lease, progress, progress, None)
        newest_first = entries[::-1]
        assert list(target.open().history("a", 100)) == newest_first
        assert list(store.history("a", 3)) == newest_first[:3]
        assert list(store.history("a", 0)) == []
        assert list(store.history("b", 3)) == []

    def test_one_process_holds_a_pipeline_and_others_learn_which(self, target: StoreTarget, store: Store) -> None:
        lease = store.acquire("a", "host-1/77", 30)
        for owner in ("host-2/1", "host-1/77"):
            with pytest.raises(LeaseHeld, match=r"a: host-1/77 holds the lease until \d{4}-"):
                target.open().acquire("a", owner, 30)
        assert store.acquire("b", "host-2/1", 30).epoch == 1
        store.release(lease)
        assert store.acquire("a", "host-2/1", 30).epoch == lease.epoch + 1

    def test_an_expired_lease_is_taken_over_and_the_old_one_can_do_nothing(
        self, target: StoreTarget, store: Store
    ) -> None:
        old = _lease(store)
        stored = _advance(store, old, 5)
        target.pass_time(31)
        other = target.open()
        new = other.acquire("a", "other", 30)
        assert new.epoch == old.epoch + 1
        with pytest.raises(LeaseLost, match="other has epoch 2"):
            store.swap(old, stored, stored.advanced(_mark(6)), _entry("landed"))
        with pytest.raises(LeaseLost):
            store.renew(old)
        store.release(old)
        with pytest.raises(LeaseHeld):
            store.acquire("a", "third", 30)
        assert other.load("a") == Progress("a", version=1, epoch=2, mark=_mark(5))
        assert _advance(other, new, 7).mark == _mark(7)
        assert len(store.history("a", 10)) == 2

    def test_an_expired_lease_writes_nothing_even_without_a_successor(self, target: StoreTarget, store: Store) -> None:
        lease = _lease(store)
        stored = _advance(store, lease, 5)
        target.pass_time(31)
        with pytest.raises(LeaseLost, match="expired"):
            store.swap(lease, stored, stored.advanced(_mark(6)), None)
        with pytest.raises(LeaseLost, match="expired"):
            store.renew(lease)
        assert store.load("a") == stored

    def test_renewing_keeps_a_lease_and_its_epoch(self, target: StoreTarget, store: Store) -> None:
        lease = _lease(store)
        for _ in range(3):
            target.pass_time(20)
            renewed = store.renew(lease)
            assert renewed.epoch == lease.epoch
            assert renewed.ttl_seconds == lease.ttl_seconds
        assert _advance(store, lease, 5).mark == _mark(5)

    def test_a_released_lease_can_do_nothing(self, store: Store) -> None:
        lease = _lease(store)
        store.release(lease)
        store.release(lease)
        with pytest.raises(LeaseLost, match="was released"):
            store.swap(lease, store.load("a"), store.load("a").advanced(_mark(6)), None)

    def test_an_epoch_is_never_given_out_twice(self, target: StoreTarget) -> None:
        epochs = []
        for number in range(5):
            store = target.open()
            epochs.append(store.acquire("a", f"crashes {number}", 30).epoch)
            store.close()
            target.pass_time(31)
        assert epochs == [1, 2, 3, 4, 5]

    def test_hostile_names_never_share_anything(self, target: StoreTarget, store: Store) -> None:
        for number, name in enumerate(NASTY_NAMES):
            _advance(store, store.acquire(name, f"owner of {name}", 30), number)
        other = target.open()
        for number, name in enumerate(NASTY_NAMES):
            assert other.load(name).mark == _mark(number), name
            assert len(other.history(name, 10)) == 1, name
        assert list(other.pipelines()) == sorted(NASTY_NAMES)

    @pytest.mark.parametrize("name", REFUSED_NAMES, ids=ascii)
    def test_names_that_not_every_store_can_keep_are_refused(self, store: Store, name: str) -> None:
        with pytest.raises(InputError, match="pipeline name"):
            store.load(name)
        with pytest.raises(InputError, match="pipeline name"):
            store.acquire(name, "me", 30)

    def test_damage_is_never_read_as_absence(self, target: StoreTarget, store: Store) -> None:
        lease = _lease(store)
        stored = _advance(store, lease, 5)
        healthy = _advance(store, store.acquire("b", "me", 30), 1)
        store.close()
        target.damage("a")
        damaged = target.open()
        with pytest.raises(StoreDamaged):
            damaged.load("a")
        with pytest.raises(StoreDamaged):
            damaged.swap(lease, stored, stored.advanced(_mark(6)), None)
        target.pass_time(31)
        with pytest.raises(StoreDamaged):
            damaged.acquire("a", "me", 30)
        assert damaged.load("b") == healthy

    def test_a_closed_store_can_be_used_again(self, store: Store) -> None:
        lease = _lease(store)
        store.close()
        store.close()
        stored = _advance(store, lease, 5)
        store.close()
        assert store.load("a") == stored
        assert len(store.history("a", 10)) == 1

    def test_of_many_threads_one_gets_the_lease_and_one_wins_a_swap(self, store: Store) -> None:
        def try_acquire(number: int) -> Lease | None:
            try:
                return store.acquire("a", f"thread {number}", 30)
            except LeaseHeld:
                return None

        def try_swap(number: int) -> Progress | None:
            try:
                return store.swap(leases[0], start, start.advanced(_mark(number)), _entry("landed"))
            except ProgressConflict:
                return None

        with ThreadPoolExecutor(8) as threads:
            leases = [lease for lease in threads.map(try_acquire, range(16)) if lease]
            assert len(leases) == 1
            start = store.load("a")
            winners = [stored for stored in threads.map(try_swap, range(16)) if stored]
        assert [store.load("a")] == winners
        assert len(store.history("a", 10)) == 1

    def test_a_forked_process_and_its_parent_can_both_continue(self, target: StoreTarget, store: Store) -> None:
        if not target.shared:
            pytest.skip("one process has this store for itself")
        lease = _lease(store)
        _advance(store, lease, 5)
        child = multiprocessing.get_context("fork").Process(target=_advance, args=(store, lease, 6))
        child.start()
        child.join(30)
        assert child.exitcode == 0
        assert target.open().load("a").mark == _mark(6)
        progress = target.open().load("a")
        assert store.swap(lease, progress, progress.advanced(_mark(7)), None).version == 3

    def test_two_processes_at_once_lose_and_double_nothing(self, target: StoreTarget, tmp_path: Path) -> None:
        if not target.shared:
            pytest.skip("one process has this store for itself")
        run_race(Race(target.open, tmp_path, goal=40, processes=2))


def _lease(store: Store) -> Lease:
    return store.acquire("a", "me", 30)


def _mark(value: int) -> ColumnMark:
    return ColumnMark("seq", CursorType.INTEGER, value)


def _advance(store: Store, lease: Lease, value: int) -> Progress:
    progress = store.load(lease.pipeline)
    return store.swap(lease, progress, progress.advanced(_mark(value)), _entry("landed"))


def _entry(kind: EntryKind, *, run: str = "run", who: str = "me", why: str = "") -> HistoryEntry:
    sinks = ({"sink": "1:console", "rows": 3, "seconds": 0.1},)
    at = dt.datetime(2026, 1, 31, 12, 0, 0, 123456, dt.UTC)
    return HistoryEntry(kind, run, at, who, 1, "seq = 1", "seq = 4", why=why, rows=3, seconds=0.1, sinks=sinks)
