"""Whatever the feed says, in whatever order, and whatever it forgets: with a listing at the end the ledger is the same."""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.sources.objects.tuning import Tuning
from tests.sources.objects.objects_source import ObjectsPipeline, notification, record

_KEYS = st.sampled_from(["a b", "c+", "d/é"])
_ALL_KEYS = ["a b", "b", "c+", "d/é", "d/f", "z"]
_CONTENTS = st.sampled_from(["x", "xx"])
_MOMENTS = st.integers(0, 1)
# What happens: to objects, to the feed (any key, said to have been made or removed), and to the process.
_STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put_and_hear"]), _KEYS, _CONTENTS, _MOMENTS)
    | st.tuples(st.sampled_from(["remove", "remove_and_hear"]), _KEYS)
    | st.tuples(st.just("tell"), st.lists(_KEYS, min_size=1, max_size=3), st.booleans(), st.integers(0, 9))
    | st.tuples(st.just("cycle"), st.booleans())
    | st.tuples(st.sampled_from(["list", "restart", "garbage"])),
    max_size=25,
)


_SMALL = Tuning(block_keys=2, part_keys=1, chunk_rows=3, lookup_ranges=2, saved_notifications=3)


class World:
    """A folder, its feed, a pipeline that hears, and what it has read."""

    def __init__(self, path: Path) -> None:
        self.shop, self.events = path / "shop", path / "events"
        for folder in (self.shop, self.events):
            folder.mkdir()
        self.pipeline = ObjectsPipeline(
            path, tuning=_SMALL, url="shop", feed={"folder": "events"}, deleted="remove_rows", max_objects=2
        )
        self.read: list[tuple[str, str]] = []  # key, etag

    def put(self, key: str, content: str, moment: int) -> None:
        """Written over, or made anew. With a moment of its own: it may be older than what was there."""
        file = self.shop / key
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
        os.utime(file, (1_000_000_000 + moment, 1_000_000_000 + moment))

    def remove(self, key: str) -> None:
        (self.shop / key).unlink(missing_ok=True)

    def put_and_hear(self, key: str, content: str, moment: int) -> None:
        self.put(key, content, moment)
        self._hear(key)

    def remove_and_hear(self, key: str) -> None:
        self.remove(key)
        self._hear(key)

    def _hear(self, key: str) -> None:
        self.tell([key], removed=False, name=0)
        self.cycle(crash=False)

    def tell(self, keys: list[str], removed: bool, name: int) -> None:  # noqa: FBT001 - drawn
        records = (record("shop", key, "ObjectRemoved:Delete" if removed else "ObjectCreated:Put") for key in keys)
        with (self.events / str(name)).open("a") as file:  # more lines of a file that was heard before, too
            file.write(notification(*records) + "\n")

    def garbage(self) -> None:
        with (self.events / "0").open("a") as file:
            file.write("{\n")

    def cycle(self, crash: bool) -> None:  # noqa: FBT001 - drawn
        keys = self.pipeline.cycle(crash=crash)
        marks = self.pipeline.bookmarks()
        self.read += [(key, marks[key][0]) for key in keys if not key.startswith("-")]
        if crash:
            self.pipeline.restart()

    def list(self) -> None:
        self.pipeline.ahead += dt.timedelta(hours=1)
        self.cycle(crash=False)

    def restart(self) -> None:
        self.pipeline.restart()

    def settle(self) -> None:
        self.pipeline.ahead += dt.timedelta(hours=1)
        while True:
            self.cycle(crash=False)
            if self.pipeline.plan.window is None:
                return


@pytest.mark.slow
@given(_STEPS)
@settings(max_examples=80)
def test_events_in_any_order_and_a_listing_end_where_a_listing_alone_does(steps: list[tuple]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for name, *drawn in steps:
            getattr(world, name)(*drawn)
        world.settle()
        other = Path(folder) / "other"
        other.mkdir()
        alone = ObjectsPipeline(other, url=str(world.shop))
        alone.cycles()
        expected = alone.bookmarks()
        assert {key: mark for key, mark in world.pipeline.bookmarks().items() if mark[3] != "gone"} == expected
        # Every version that is there has been read, and none twice while it stayed.
        last = dict(world.read)
        assert {key: last[key] for key in expected} == {key: version[0] for key, version in expected.items()}
        again = len(world.read)
        world.settle()
        assert len(world.read) == again


@pytest.mark.slow
@given(st.lists(st.lists(_KEYS, min_size=1, max_size=4), max_size=8), st.permutations(_ALL_KEYS))
@settings(max_examples=40)
def test_each_version_is_read_once_however_often_it_is_told(notifications: list[list[str]], order: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        world.cycle(crash=False)
        for number, key in enumerate(order):
            world.put(key, "x", 0)
            for keys in notifications:
                world.tell(keys, removed=False, name=number)
            world.cycle(crash=bool(number % 2))
        world.settle()
        assert sorted(key for key, _ in world.read) == sorted(order)
