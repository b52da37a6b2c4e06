"""Notifications from a folder: where they lead, in which order they come, and what of them is kept."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from headwater.model.errors import SourceUnreachable
from headwater.model.marks import ObjectsMark
from headwater.sources.objects.notifications.feed import FeedGap, FeedPage
from headwater.sources.objects.notifications.folder import FolderFeed
from headwater.sources.objects.tuning import Tuning
from tests.sources.objects.objects_source import Watcher, notification, record
from tests.storage.containers import opened_folder

_HOUR = dt.timedelta(hours=1)


class Yard:
    """A folder of objects, and one of notifications about them."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path, self.events = path / "shop", path / "events"
        self.path.mkdir()
        self.events.mkdir()
        self._numbers = itertools.count(1)
        self.watcher = Watcher(path, url="shop", feed={"folder": "events"}, deleted="remove_rows", **settings)

    def put(self, key: str, content: str = "x\n") -> None:
        file = self.path / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def tell(self, *keys: str, name: str = "ObjectCreated:Put", file: str | None = None, **more: Any) -> None:
        (self.events / (file or f"{next(self._numbers):06}")).write_text(
            notification(*(record("shop", key, name, **more) for key in keys))
        )


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def test_between_listings_only_what_the_feed_names_is_looked_at(yard: Yard) -> None:
    yard.put("a")
    assert yard.watcher.cycles() == ["a"]
    assert yard.watcher.container.listings == 1
    yard.put("b c+d%")
    yard.put("untold")
    yard.tell("b c+d%")
    assert yard.watcher.cycles() == ["b c+d%"]
    assert (yard.watcher.container.listings, yard.watcher.container.looks) == (1, ["b c+d%"])
    yard.watcher.ahead = _HOUR
    assert yard.watcher.cycles() == ["untold"]
    assert yard.watcher.container.listings == 2


def test_a_cycle_with_nothing_in_the_feed_asks_the_container_nothing(yard: Yard) -> None:
    yard.put("a")
    yard.watcher.cycles()
    yard.watcher.restart()
    assert yard.watcher.cycle() == []
    assert yard.watcher.plan.window is None
    assert (yard.watcher.container.listings, yard.watcher.container.looks) == (0, [])


def test_the_first_listing_of_an_empty_folder_is_kept_without_rows(yard: Yard) -> None:
    assert yard.watcher.cycle() == []
    window = yard.watcher.plan.window
    assert window is not None
    with yard.watcher.source.read(window) as streams:
        assert list(streams) == []
    yard.watcher.restart()
    assert yard.watcher.cycle() == []
    assert yard.watcher.container.listings == 0


def test_an_object_that_was_updated_by_event_is_not_read_again_by_the_listing(yard: Yard) -> None:
    yard.put("a")
    yard.put("b")
    assert yard.watcher.cycles() == ["a", "b"]
    yard.put("a", "longer\n")
    yard.tell("a")
    assert yard.watcher.cycles() == ["a"]
    for _ in range(2):
        yard.watcher.ahead += _HOUR
        assert yard.watcher.cycles() == []
    assert yard.watcher.container.listings == 3


def test_an_object_that_comes_back_as_it_was_is_found_by_the_listing(yard: Yard, tmp_path: Path) -> None:
    """A deletion that is undone: the same version again, in a listing that is the same as the one before."""
    yard.put("a")
    yard.put("b")
    yard.watcher.cycles()
    os.rename(yard.path / "a", tmp_path / "away")  # noqa: PTH104
    yard.tell("a", name="ObjectRemoved:DeleteMarkerCreated")
    assert yard.watcher.cycles() == ["-a"]
    os.rename(tmp_path / "away", yard.path / "a")  # noqa: PTH104 - and nobody tells
    yard.watcher.ahead = _HOUR
    assert yard.watcher.cycles() == ["a"]


@pytest.mark.parametrize("others", [[], ["b", "c"]])
def test_an_object_known_by_event_alone_is_missed_by_the_listing_when_it_is_gone(yard: Yard, others: list[str]) -> None:
    """Before the first key of all listings so far, or where nothing was ever listed."""
    for key in others:
        yard.put(key)
    yard.watcher.cycles()
    yard.put("a")
    yard.tell("a")
    assert yard.watcher.cycles() == ["a"]
    (yard.path / "a").unlink()
    yard.watcher.ahead = _HOUR
    assert yard.watcher.cycles() == ["-a"]


def test_events_out_of_order_doubled_and_of_what_is_gone(yard: Yard) -> None:
    yard.put("a")
    yard.watcher.cycles()
    yard.put("b")
    (yard.path / "a").unlink()
    yard.tell("b", name="ObjectRemoved:Delete")  # an old one: it is there now
    yard.tell("a", "b", "b", "never", "ignored/_x")
    yard.tell("a", name="ObjectRemoved:Delete")
    assert sorted(yard.watcher.cycles()) == ["-a", "b"]
    yard.tell("a", "b", "never")
    assert yard.watcher.cycles() == []


def test_events_of_other_buckets_are_not_ours(yard: Yard) -> None:
    yard.watcher.cycles()
    yard.put("a")
    (yard.events / "1").write_text(notification(record("shops", "a"), record("", "a")))
    assert yard.watcher.cycles() == []
    assert yard.watcher.container.looks == []


def test_what_cannot_be_understood_is_told_once_and_stops_nothing(yard: Yard) -> None:
    yard.watcher.cycles()
    yard.put("a")
    (yard.events / "1").write_text('{"Records": [{"s3"')
    yard.tell("a", file="2")
    assert yard.watcher.cycle() == ["a"]
    assert len(yard.watcher.plan.warnings) == 1
    assert "1 unreadable notification" in yard.watcher.plan.warnings[0]
    assert "1: line 1 is not JSON" in yard.watcher.plan.warnings[0]
    assert yard.watcher.cycle() == []
    assert yard.watcher.plan.warnings == ()


def test_a_notification_that_was_still_being_written_is_heard_when_it_is_whole(yard: Yard) -> None:
    yard.watcher.cycles()
    yard.put("a")
    whole = notification(record("shop", "a"))
    (yard.events / "1").write_text(whole[:30])
    assert yard.watcher.cycles() == []
    (yard.events / "1").write_text(whole)
    assert yard.watcher.cycles() == ["a"]


def test_an_object_too_young_is_not_forgotten(tmp_path: Path) -> None:
    yard = Yard(tmp_path, min_age="1h", listing_every="100h")
    yard.watcher.cycles()
    yard.watcher.ahead = 2 * _HOUR
    yard.watcher.cycles()  # the listing that sees what was too young for the first one
    yard.watcher.ahead = dt.timedelta()
    yard.put("old")
    os.utime(yard.path / "old", (1_000_000_000, 1_000_000_000))
    yard.put("young")
    yard.tell("young", file="1")
    yard.tell("old", file="2")
    assert yard.watcher.cycles() == ["old"]
    yard.tell("old", file="3")
    for _ in range(2):  # in this process, and in another one
        assert yard.watcher.cycles() == []
        os.utime(yard.path / "young", (1_000_000_000, 1_000_000_000))
        assert yard.watcher.cycles() == ["young"]
        yard.put("young", "again\n")
        yard.tell("young", file="4")
        assert yard.watcher.cycles() == []
        yard.watcher.restart()
    assert yard.watcher.container.listings == 0


def test_one_that_vanished_while_it_was_young_is_given_up(tmp_path: Path) -> None:
    yard = Yard(tmp_path, min_age="1h", listing_every="100h")
    yard.watcher.cycles()
    yard.watcher.ahead = 2 * _HOUR
    yard.watcher.cycles()
    yard.tell("vanished", file="1", eventTime="2026-03-02T08:00:00Z")
    yard.put("a")
    os.utime(yard.path / "a", (1_000_000_000, 1_000_000_000))
    yard.tell("a", file="2")
    assert yard.watcher.cycles() == ["a"]
    yard.watcher.restart()
    assert yard.watcher.cycle() == []
    assert yard.watcher.container.looks == []


def test_what_was_too_young_for_the_first_listing_is_listed_soon(tmp_path: Path) -> None:
    yard = Yard(tmp_path, min_age="10m", listing_every="100h")
    yard.put("a")
    yard.tell("a")
    assert yard.watcher.cycles() == []
    os.utime(yard.path / "a", (1_000_000_000, 1_000_000_000))
    yard.watcher.ahead = dt.timedelta(minutes=11)
    assert yard.watcher.cycles() == ["a"]
    yard.watcher.ahead = dt.timedelta(hours=90)
    yard.watcher.cycles()
    assert yard.watcher.container.listings == 2


def test_a_crash_between_staging_and_the_mark_repeats_and_loses_nothing(yard: Yard) -> None:
    yard.put("a")
    yard.watcher.cycle(crash=True)
    yard.watcher.restart()
    assert yard.watcher.cycles() == ["a"]
    yard.put("b")
    yard.put("c")
    yard.tell("b")
    yard.watcher.cycle(crash=True)
    yard.watcher.restart()
    yard.tell("c")
    assert yard.watcher.cycles() == ["b", "c"]
    yard.watcher.ahead = _HOUR
    assert yard.watcher.cycles() == []


def test_notifications_that_brought_nothing_are_kept_in_mind_and_not_in_the_mark(yard: Yard) -> None:
    yard.watcher.tuning = Tuning(saved_notifications=3)
    yard.watcher.restart()
    yard.put("a")
    yard.watcher.cycles()
    before = yard.watcher.mark
    yard.tell("a")
    yard.tell("a")
    assert yard.watcher.cycles() == []
    assert yard.watcher.mark == before
    assert yard.watcher.container.looks == ["a"]
    yard.watcher.cycles()
    assert yard.watcher.container.looks == ["a"]
    yard.tell("a")
    assert yard.watcher.cycles() == []
    assert isinstance(before, ObjectsMark)
    assert isinstance(yard.watcher.mark, ObjectsMark)
    assert yard.watcher.mark.generation == before.generation
    assert len(yard.watcher.position["seen"]) == 3


def test_other_settings_and_another_feed_list_everything(yard: Yard, tmp_path: Path) -> None:
    yard.put("a.json")
    yard.put("a.csv")
    watcher = yard.watcher
    watcher.settings = watcher.settings.model_copy(update={"pattern": "*.json"})
    watcher.restart()
    assert watcher.cycles() == ["a.json"]
    watcher.settings = watcher.settings.model_copy(update={"pattern": "**"})
    watcher.restart()
    assert watcher.cycles() == ["a.csv"]
    (tmp_path / "elsewhere").mkdir()
    feed = watcher.settings.feed
    assert feed is not None
    watcher.settings = watcher.settings.model_copy(update={"feed": feed.model_copy(update={"folder": "elsewhere"})})
    watcher.restart()
    yard.put("b")
    assert watcher.cycle() == ["b"]
    assert "not the feed of the stored position" in watcher.plan.warnings[0]


def test_a_plan_looks_and_takes_nothing(yard: Yard) -> None:
    yard.watcher.cycles()
    yard.put("a")
    yard.tell("a")
    for _ in range(2):
        plan = yard.watcher.source.plan(yard.watcher.mark)
        assert plan.streams[0].why == "1 object, 2 bytes"
    assert yard.watcher.bookmarks() == {}
    assert yard.watcher.cycles() == ["a"]


def test_a_feed_that_is_not_there_is_an_error(yard: Yard) -> None:
    yard.watcher.cycles()
    yard.events.rmdir()
    with pytest.raises(SourceUnreachable, match="events"):
        yard.watcher.cycle()


class Files:
    """A feed over a folder, small enough to see its limits."""

    def __init__(self, path: Path, recent: int = 3, max_read: int = 4) -> None:
        self.path = path
        self.feed = FolderFeed(opened_folder(path), recent, max_read)
        self.position = self.feed.end()

    def tell(self, *names: str) -> None:
        for name in names:
            (self.path / name).write_text(notification(record("shop", name)))

    def read_after(self) -> FeedPage:
        heard = self.feed.read_after(self.position, ())
        self.position = json.loads(json.dumps(heard.position(())))
        return heard

    def names(self) -> list[str]:
        return [events.event.key for events in self.read_after().events]


def test_files_are_taken_in_the_order_of_their_names_a_few_at_once(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.tell("6", "4", "5", "1", "3", "2")
    heard = files.read_after()
    assert [events.event.key for events in heard.events] == ["1", "2", "3", "4"]
    assert (heard.count, heard.more) == (4, True)
    heard = files.read_after()
    assert [events.event.key for events in heard.events] == ["5", "6"]
    assert (heard.count, heard.more) == (2, False)
    assert files.names() == []


def test_a_late_name_among_the_last_ones_is_heard(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.tell("1", "3", "5", "7")
    assert files.names() == ["1", "3", "5", "7"]
    files.tell("4", "2")  # behind 1, which is where the last three begin
    assert files.names() == ["2", "4"]
    files.tell("8", "9")
    assert files.names() == ["8", "9"]
    files.tell("0")
    assert files.names() == []  # too late by more than three files: the listing finds the object
    assert len(files.position["seen"]) == 3


def test_a_feed_begins_at_its_end(tmp_path: Path) -> None:
    for name in "123456789":
        (tmp_path / name).write_text(notification(record("shop", name)))
    files = Files(tmp_path)
    assert files.names() == []
    assert (files.position["after"], len(files.position["seen"])) == ("6", 3)


def test_files_that_somebody_tidies_up_are_not_missed(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.tell("1", "2", "3", "4")
    files.names()
    for name in "1234":
        (tmp_path / name).unlink()
    assert files.names() == []
    files.tell("5")
    assert files.names() == ["5"]


def test_a_file_that_is_held_back_is_heard_again_and_no_other(tmp_path: Path) -> None:
    files = Files(tmp_path, recent=1, max_read=9)
    files.tell("1", "2", "3", "4")
    heard = files.read_after()
    held = {events.notification for events in heard.events if events.event.key == "2"}
    files.position = heard.position(held)
    assert files.names() == ["2"]
    assert files.names() == []


def test_a_position_of_something_else_is_a_gap(tmp_path: Path) -> None:
    with pytest.raises(FeedGap):
        FolderFeed(opened_folder(tmp_path)).read_after({"kind": "offsets", "topics": {}}, ())
