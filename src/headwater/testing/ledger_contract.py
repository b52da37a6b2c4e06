"""The promises of a bookmark ledger as a test suite. Subclass it with a `store()` that opens the same store every time."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod

import pyarrow as pa
import pytest

from headwater.model.bookmarks import Block, BookmarkAdmin, Counted, FailedObject, HasLedger, State
from headwater.model.errors import LeaseLost
from headwater.model.progress import Lease
from headwater.model.protocols.store import Store
from headwater.progress.ledger import bookmark_schema

_NOON = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC)
# In the order of their UTF-8 bytes.
_KEYS = [" a", "!", "A%20b", "a", "a b", "a#?", "a'\"", "a+b", "a/b", "a0", "é", "日本", "😀"]


def bookmarks(keys: list[str], generation: int, **more: object) -> pa.Table:
    """Bookmarks of objects that differ only in their keys."""
    usual = {"etag": "e", "size": 1, "modified": 2, "state": "read", "earlier": False, "tries": 0, "reason": ""}
    row = {**usual, "retry_at": None, "run": "r", "generation": generation, **more}
    return pa.Table.from_pylist([{"key": key, **row} for key in keys], schema=bookmark_schema())


class LedgerContract(ABC):
    """One test per promise."""

    @abstractmethod
    def store(self) -> Store:
        """The same store, opened anew."""

    @pytest.fixture
    @abstractmethod
    def target(self) -> None:
        """Prepare what `store` needs."""

    @pytest.fixture(autouse=True)
    def _opened(self, target: None) -> None:  # noqa: ARG002 - comes first
        self.opened = self.store()
        self.lease: Lease = self.opened.acquire("p", "me", 60)

    def ledger(self, pipeline: str = "p") -> BookmarkAdmin:
        assert isinstance(self.opened, HasLedger)
        return self.opened.ledger(pipeline)

    def stage(self, staged: pa.Table, blocks: tuple[Block, ...] = ()) -> None:
        self.ledger().stage(self.lease, staged, blocks)

    def test_an_empty_ledger(self) -> None:
        ledger = self.ledger()
        assert (ledger.newest(), ledger.waiting(0), ledger.last_key()) == (0, None, None)
        assert list(ledger.blocks()) == []
        assert ledger.between([("", None)]).num_rows == 0

    def test_bookmarks_come_back_as_they_were_in_the_order_of_bytes(self) -> None:
        staged = bookmarks(_KEYS[::-1], 7, earlier=True, tries=3, reason="why \" ' \\ 日", retry_at=9, size=2**40)
        self.stage(staged)
        ledger_rows = self.ledger().between([("", None)])
        assert ledger_rows["key"].to_pylist() == _KEYS
        assert ledger_rows.sort_by("key").equals(staged.sort_by("key"))
        assert self.ledger().last_key() == _KEYS[-1]

    def test_a_range_of_keys_leaves_out_its_end(self) -> None:
        self.stage(bookmarks(["a", "b", "c"], 1))
        assert self.ledger().between([("a", "c")])["key"].to_pylist() == ["a", "b"]
        assert self.ledger().between([("b", None)])["key"].to_pylist() == ["b", "c"]
        assert self.ledger().between([("", "b"), ("c", "d")])["key"].to_pylist() == ["a", "c"]

    def test_to_stage_again_replaces(self) -> None:
        self.stage(bookmarks(["a", "b"], 1))
        self.stage(bookmarks(["b"], 2, etag="new"))
        assert self.ledger().between([("", None)])["etag"].to_pylist() == ["e", "new"]
        assert [page["key"].to_pylist() for page in self.ledger().window(0, 1)] == [["a"]]
        assert [page["key"].to_pylist() for page in self.ledger().window(1, 2)] == [["b"]]
        assert (self.ledger().newest(), self.ledger().waiting(0), self.ledger().waiting(1)) == (2, 1, 2)
        assert self.ledger().waiting(2) is None

    def test_a_window_leaves_out_what_failed(self) -> None:
        self.stage(bookmarks(["a", "b", "c"], 1))
        self.ledger().postpone(self.lease, [failed("b", "failed", retry_at=_NOON), failed("c", "aside")])
        assert [page["key"].to_pylist() for page in self.ledger().window(0, 1)] == [["a"]]
        bookmark = self.ledger().between([("b", "c")]).to_pylist()[0]
        assert (bookmark["state"], bookmark["reason"], bookmark["tries"], bookmark["etag"]) == (
            "failed",
            "torn",
            1,
            "e",
        )
        assert bookmark["earlier"]  # to one of several sinks

    def test_what_failed_is_due_at_its_time(self) -> None:
        self.stage(bookmarks(["a", "b", "c"], 1))
        late = _NOON + dt.timedelta(hours=1)
        self.ledger().postpone(
            self.lease,
            [failed("a", "failed", retry_at=late), failed("b", "failed", retry_at=_NOON), failed("c", "aside")],
        )
        assert self.ledger().due(_NOON - dt.timedelta(seconds=1), 10).num_rows == 0
        assert self.ledger().due(_NOON, 10)["key"].to_pylist() == ["b"]
        assert self.ledger().due(late, 1)["key"].to_pylist() == ["b"]
        assert self.ledger().due(late, 10)["key"].to_pylist() == ["b", "a"]

    def test_blocks_are_in_the_order_of_their_keys(self) -> None:
        first, second = Block("a", b"\x00\xff", 2), Block("日", b"", 1)
        self.stage(bookmarks(["a"], 1), (second, first))
        assert list(self.ledger().blocks()) == [first, second]
        anew = Block("a", b"x", 0)
        self.stage(bookmarks([], 1), (anew,))
        assert list(self.ledger().blocks()) == [anew, second]

    def test_people_browse_by_state_and_beginning(self) -> None:
        self.stage(bookmarks(_KEYS, 1))
        self.ledger().postpone(self.lease, [failed("a b", "aside")])
        browse = self.ledger().browse
        assert browse(None, 3, ["read"])["key"].to_pylist() == _KEYS[:3]
        assert browse("a", 2, ["read"])["key"].to_pylist() == ["a#?", "a'\""]
        assert browse(None, 9, ["read", "aside"], "a")["key"].to_pylist() == [key for key in _KEYS if key[0] == "a"]
        assert browse(None, 9, ["aside"])["key"].to_pylist() == ["a b"]
        assert browse(None, 9, ["read"], "日")["key"].to_pylist() == ["日本"]

    def test_bookmarks_are_found_by_key(self) -> None:
        self.stage(bookmarks(_KEYS, 1))
        assert self.ledger().get(["日本", "absent", " a"])["key"].to_pylist() == ["日本", " a"]

    def test_blocks_are_found_by_the_keys_in_their_ranges(self) -> None:
        blocks = Block("b", b"\x00x", 2), Block("é", b"y", 1)
        self.stage(bookmarks(["b", "c", "é"], 1), blocks)
        assert list(self.ledger().covering(["a"])) == []
        assert list(self.ledger().covering(["b"])) == [blocks[0]]
        assert list(self.ledger().covering(["a", "z", "b", "c"])) == [blocks[0]]
        assert sorted(self.ledger().covering(["日本", "b0"]), key=lambda block: block.first) == list(blocks)
        assert list(self.ledger("q").covering(["b"])) == []

    def test_bookmarks_are_counted(self) -> None:
        self.stage(bookmarks(["a", "b"], 1, size=10))
        self.stage(bookmarks(["c"], 2, size=5))
        self.ledger().postpone(self.lease, [failed("a", "aside")])
        assert list(self.ledger().counts(1)) == [
            Counted("aside", waiting=False, objects=1, size=10),
            Counted("read", waiting=False, objects=1, size=10),
            Counted("read", waiting=True, objects=1, size=5),
        ]

    def test_what_is_forgotten_keeps_that_it_brought_rows(self) -> None:
        self.stage(bookmarks(["a", "b", "c"], 1), (Block("a", b"x", 2), Block("c", b"y", 1)))
        self.stage(bookmarks(["b"], 2))
        self.ledger().forget(self.lease, ["a", "b", "unknown"], 1)
        rows = self.ledger().between([("", None)]).to_pylist()
        assert [(row["key"], row["state"], row["earlier"]) for row in rows] == [
            ("a", "gone", True),
            ("b", "gone", False),
            ("c", "read", False),
        ]
        assert [block.digest for block in self.ledger().blocks()] == [b"", b""]

    def test_what_failed_too_often_can_be_retried(self) -> None:
        self.stage(bookmarks(["a", "b"], 1))
        self.ledger().postpone(self.lease, [failed("a", "aside")])
        self.ledger().try_again(self.lease, ["a", "b"], _NOON)
        due = self.ledger().due(_NOON, 10).to_pylist()
        assert [(row["key"], row["tries"]) for row in due] == [("a", 0)]

    def test_pipelines_do_not_see_each_other(self) -> None:
        self.stage(bookmarks(["a"], 1), (Block("a", b"x", 1),))
        other = self.ledger("q")
        assert (other.newest(), other.last_key(), list(other.blocks())) == (0, None, [])

    def test_it_is_durable(self) -> None:
        self.stage(bookmarks(["a"], 1))
        self.opened = self.store()
        assert self.ledger().last_key() == "a"

    def test_without_the_lease_nothing_is_written(self) -> None:
        """G4"""
        self.stage(bookmarks(["a"], 1), (Block("a", b"x", 1),))
        stale = self.lease
        self.opened.release(stale)
        self.opened.acquire("p", "another", 60)
        with pytest.raises(LeaseLost):
            self.ledger().stage(stale, bookmarks(["a", "b"], 2), (Block("b", b"y", 1),))
        with pytest.raises(LeaseLost):
            self.ledger().postpone(stale, [failed("a", "aside")])
        assert self.ledger().between([("", None)]).to_pylist() == bookmarks(["a"], 1).to_pylist()
        assert list(self.ledger().blocks()) == [Block("a", b"x", 1)]


def failed(key: str, state: State, retry_at: dt.datetime | None = None) -> FailedObject:
    return FailedObject(key, state, tries=1, reason="torn", retry_at=retry_at)
