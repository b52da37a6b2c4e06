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
from headwater.model.position.marks import ObjectsMark
from headwater.sources.objects.notifications.feed import FeedGap, FeedPage
from headwater.sources.objects.notifications.folder import FolderFeed
from headwater.sources.objects.tuning import Tuning
from tests.sources.objects.objects_source import ObjectsPipeline, notification, record
from tests.storage.containers import opened_folder

_HOUR = dt.timedelta(hours=1)


class NotifiedFolder:
    """A folder of objects, and one of notifications about them."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path, self.events = path / "shop", path / "events"
        self.path.mkdir()
        self.events.mkdir()
        self._numbers = itertools.count(1)
        self.pipeline = ObjectsPipeline(path, url="shop", feed={"folder": "events"}, deleted="remove_rows", **settings)

    def put(self, key: str, content: str = "x\n") -> None:
        file = self.path / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def notify(self, *keys: str, name: str = "ObjectCreated:Put", file: str | None = None, **more: Any) -> None:
        (self.events / (file or f"{next(self._numbers):06}")).write_text(
            notification(*(record("shop", key, name, **more) for key in keys))
        )


@pytest.fixture
def folder(tmp_path: Path) -> NotifiedFolder:
    return NotifiedFolder(tmp_path)


def test_between_listings_only_what_the_feed_names_is_looked_at(folder: NotifiedFolder) -> None:
    folder.put("a")
    assert folder.pipeline.cycles() == ["a"]
    assert folder.pipeline.container.listings == 1
    folder.put("b c+d%")
    folder.put("untold")
    folder.notify("b c+d%")
    assert folder.pipeline.cycles() == ["b c+d%"]
    assert (folder.pipeline.container.listings, folder.pipeline.container.stats) == (1, ["b c+d%"])
    folder.pipeline.ahead = _HOUR
    assert folder.pipeline.cycles() == ["untold"]
    assert folder.pipeline.container.listings == 2


def test_a_cycle_with_nothing_in_the_feed_asks_the_container_nothing(folder: NotifiedFolder) -> None:
    folder.put("a")
    folder.pipeline.cycles()
    folder.pipeline.restart()
    assert folder.pipeline.cycle() == []
    assert folder.pipeline.plan.window is None
    assert (folder.pipeline.container.listings, folder.pipeline.container.stats) == (0, [])


def test_the_first_listing_of_an_empty_folder_is_kept_without_rows(folder: NotifiedFolder) -> None:
    assert folder.pipeline.cycle() == []
    window = folder.pipeline.plan.window
    assert window is not None
    with folder.pipeline.source.read(window) as streams:
        assert list(streams) == []
    folder.pipeline.restart()
    assert folder.pipeline.cycle() == []
    assert folder.pipeline.container.listings == 0


def test_an_object_that_was_updated_by_event_is_not_read_again_by_the_listing(folder: NotifiedFolder) -> None:
    folder.put("a")
    folder.put("b")
    assert folder.pipeline.cycles() == ["a", "b"]
    folder.put("a", "longer\n")
    folder.notify("a")
    assert folder.pipeline.cycles() == ["a"]
    for _ in range(2):
        folder.pipeline.ahead += _HOUR
        assert folder.pipeline.cycles() == []
    assert folder.pipeline.container.listings == 3


def test_an_object_that_comes_back_as_it_was_is_found_by_the_listing(folder: NotifiedFolder, tmp_path: Path) -> None:
    """A deletion that is undone: the same version again, in a listing that is the same as the one before."""
    folder.put("a")
    folder.put("b")
    folder.pipeline.cycles()
    os.rename(folder.path / "a", tmp_path / "away")  # noqa: PTH104
    folder.notify("a", name="ObjectRemoved:DeleteMarkerCreated")
    assert folder.pipeline.cycles() == ["-a"]
    os.rename(tmp_path / "away", folder.path / "a")  # noqa: PTH104 - and nobody tells
    folder.pipeline.ahead = _HOUR
    assert folder.pipeline.cycles() == ["a"]


@pytest.mark.parametrize("others", [[], ["b", "c"]])
def test_an_object_known_by_event_alone_is_missed_by_the_listing_when_it_is_gone(
    folder: NotifiedFolder, others: list[str]
) -> None:
    """Before the first key of all listings so far, or where nothing was ever listed."""
    for key in others:
        folder.put(key)
    folder.pipeline.cycles()
    folder.put("a")
    folder.notify("a")
    assert folder.pipeline.cycles() == ["a"]
    (folder.path / "a").unlink()
    folder.pipeline.ahead = _HOUR
    assert folder.pipeline.cycles() == ["-a"]


def test_events_out_of_order_doubled_and_of_what_is_gone(folder: NotifiedFolder) -> None:
    folder.put("a")
    folder.pipeline.cycles()
    folder.put("b")
    (folder.path / "a").unlink()
    folder.notify("b", name="ObjectRemoved:Delete")  # an old one: it is there now
    folder.notify("a", "b", "b", "never", "ignored/_x")
    folder.notify("a", name="ObjectRemoved:Delete")
    assert sorted(folder.pipeline.cycles()) == ["-a", "b"]
    folder.notify("a", "b", "never")
    assert folder.pipeline.cycles() == []


def test_events_of_other_buckets_are_not_ours(folder: NotifiedFolder) -> None:
    folder.pipeline.cycles()
    folder.put("a")
    (folder.events / "1").write_text(notification(record("shops", "a"), record("", "a")))
    assert folder.pipeline.cycles() == []
    assert folder.pipeline.container.stats == []


def test_what_cannot_be_understood_is_told_once_and_stops_nothing(folder: NotifiedFolder) -> None:
    folder.pipeline.cycles()
    folder.put("a")
    (folder.events / "1").write_text('{"Records": [{"s3"')
    folder.notify("a", file="2")
    assert folder.pipeline.cycle() == ["a"]
    assert len(folder.pipeline.plan.warnings) == 1
    assert "1 unreadable notification" in folder.pipeline.plan.warnings[0]
    assert "1: line 1 is not JSON" in folder.pipeline.plan.warnings[0]
    assert folder.pipeline.cycle() == []
    assert folder.pipeline.plan.warnings == ()


def test_a_notification_that_was_still_being_written_is_heard_when_it_is_whole(folder: NotifiedFolder) -> None:
    folder.pipeline.cycles()
    folder.put("a")
    line = notification(record("shop", "a"))
    (folder.events / "1").write_text(line[:30])
    assert folder.pipeline.cycles() == []
    (folder.events / "1").write_text(line)
    assert folder.pipeline.cycles() == ["a"]


def test_an_object_too_young_is_not_forgotten(tmp_path: Path) -> None:
    folder = NotifiedFolder(tmp_path, min_age="1h", listing_every="100h")
    folder.pipeline.cycles()
    folder.pipeline.ahead = 2 * _HOUR
    folder.pipeline.cycles()  # the listing that sees what was too young for the first one
    folder.pipeline.ahead = dt.timedelta()
    folder.put("old")
    os.utime(folder.path / "old", (1_000_000_000, 1_000_000_000))
    folder.put("young")
    folder.notify("young", file="1")
    folder.notify("old", file="2")
    assert folder.pipeline.cycles() == ["old"]
    folder.notify("old", file="3")
    for _ in range(2):  # in this process, and in another one
        assert folder.pipeline.cycles() == []
        os.utime(folder.path / "young", (1_000_000_000, 1_000_000_000))
        assert folder.pipeline.cycles() == ["young"]
        folder.put("young", "again\n")
        folder.notify("young", file="4")
        assert folder.pipeline.cycles() == []
        folder.pipeline.restart()
    assert folder.pipeline.container.listings == 0


def test_one_that_vanished_while_it_was_young_is_given_up(tmp_path: Path) -> None:
    folder = NotifiedFolder(tmp_path, min_age="1h", listing_every="100h")
    folder.pipeline.cycles()
    folder.pipeline.ahead = 2 * _HOUR
    folder.pipeline.cycles()
    folder.notify("vanished", file="1", eventTime="2026-03-02T08:00:00Z")
    folder.put("a")
    os.utime(folder.path / "a", (1_000_000_000, 1_000_000_000))
    folder.notify("a", file="2")
    assert folder.pipeline.cycles() == ["a"]
    folder.pipeline.restart()
    assert folder.pipeline.cycle() == []
    assert folder.pipeline.container.stats == []


def test_what_was_too_young_for_the_first_listing_is_listed_soon(tmp_path: Path) -> None:
    folder = NotifiedFolder(tmp_path, min_age="10m", listing_every="100h")
    folder.put("a")
    folder.notify("a")
    assert folder.pipeline.cycles() == []
    os.utime(folder.path / "a", (1_000_000_000, 1_000_000_000))
    folder.pipeline.ahead = dt.timedelta(minutes=11)
    assert folder.pipeline.cycles() == ["a"]
    folder.pipeline.ahead = dt.timedelta(hours=90)
    folder.pipeline.cycles()
    assert folder.pipeline.container.listings == 2


def test_a_crash_between_staging_and_the_mark_repeats_and_loses_nothing(folder: NotifiedFolder) -> None:
    folder.put("a")
    folder.pipeline.cycle(crash=True)
    folder.pipeline.restart()
    assert folder.pipeline.cycles() == ["a"]
    folder.put("b")
    folder.put("c")
    folder.notify("b")
    folder.pipeline.cycle(crash=True)
    folder.pipeline.restart()
    folder.notify("c")
    assert folder.pipeline.cycles() == ["b", "c"]
    folder.pipeline.ahead = _HOUR
    assert folder.pipeline.cycles() == []


def test_notifications_that_brought_nothing_are_kept_in_mind_and_not_in_the_mark(folder: NotifiedFolder) -> None:
    folder.pipeline.tuning = Tuning(saved_notifications=3)
    folder.pipeline.restart()
    folder.put("a")
    folder.pipeline.cycles()
    before = folder.pipeline.mark
    folder.notify("a")
    folder.notify("a")
    assert folder.pipeline.cycles() == []
    assert folder.pipeline.mark == before
    assert folder.pipeline.container.stats == ["a"]
    folder.pipeline.cycles()
    assert folder.pipeline.container.stats == ["a"]
    folder.notify("a")
    assert folder.pipeline.cycles() == []
    assert isinstance(before, ObjectsMark)
    assert isinstance(folder.pipeline.mark, ObjectsMark)
    assert folder.pipeline.mark.generation == before.generation
    assert len(folder.pipeline.position["seen"]) == 3


def test_other_settings_and_another_feed_list_everything(folder: NotifiedFolder, tmp_path: Path) -> None:
    folder.put("a.json")
    folder.put("a.csv")
    pipeline = folder.pipeline
    pipeline.settings = pipeline.settings.model_copy(update={"pattern": "*.json"})
    pipeline.restart()
    assert pipeline.cycles() == ["a.json"]
    pipeline.settings = pipeline.settings.model_copy(update={"pattern": "**"})
    pipeline.restart()
    assert pipeline.cycles() == ["a.csv"]
    (tmp_path / "elsewhere").mkdir()
    feed = pipeline.settings.feed
    assert feed is not None
    pipeline.settings = pipeline.settings.model_copy(update={"feed": feed.model_copy(update={"folder": "elsewhere"})})
    pipeline.restart()
    folder.put("b")
    assert pipeline.cycle() == ["b"]
    assert "not the feed of the stored position" in pipeline.plan.warnings[0]


def test_a_plan_looks_and_takes_nothing(folder: NotifiedFolder) -> None:
    folder.pipeline.cycles()
    folder.put("a")
    folder.notify("a")
    for _ in range(2):
        plan = folder.pipeline.source.plan(folder.pipeline.mark)
        assert plan.streams[0].why == "1 object, 2 bytes"
    assert folder.pipeline.bookmarks() == {}
    assert folder.pipeline.cycles() == ["a"]


def test_a_feed_that_is_not_there_is_an_error(folder: NotifiedFolder) -> None:
    folder.pipeline.cycles()
    folder.events.rmdir()
    with pytest.raises(SourceUnreachable, match="events"):
        folder.pipeline.cycle()


class Files:
    """A feed over a folder, small enough to see its limits."""

    def __init__(self, path: Path, recent: int = 3, max_read: int = 4) -> None:
        self.path = path
        self.feed = FolderFeed(opened_folder(path), recent, max_read)
        self.position = self.feed.end()

    def notify(self, *names: str) -> None:
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
    files.notify("6", "4", "5", "1", "3", "2")
    heard = files.read_after()
    assert [events.event.key for events in heard.events] == ["1", "2", "3", "4"]
    assert (heard.count, heard.more) == (4, True)
    heard = files.read_after()
    assert [events.event.key for events in heard.events] == ["5", "6"]
    assert (heard.count, heard.more) == (2, False)
    assert files.names() == []


def test_a_late_name_among_the_last_ones_is_heard(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.notify("1", "3", "5", "7")
    assert files.names() == ["1", "3", "5", "7"]
    files.notify("4", "2")  # behind 1, which is where the last three begin
    assert files.names() == ["2", "4"]
    files.notify("8", "9")
    assert files.names() == ["8", "9"]
    files.notify("0")
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
    files.notify("1", "2", "3", "4")
    files.names()
    for name in "1234":
        (tmp_path / name).unlink()
    assert files.names() == []
    files.notify("5")
    assert files.names() == ["5"]


def test_a_file_that_is_held_back_is_heard_again_and_no_other(tmp_path: Path) -> None:
    files = Files(tmp_path, recent=1, max_read=9)
    files.notify("1", "2", "3", "4")
    heard = files.read_after()
    notifications = {events.notification for events in heard.events if events.event.key == "2"}
    files.position = heard.position(notifications)
    assert files.names() == ["2"]
    assert files.names() == []


def test_a_position_of_something_else_is_a_gap(tmp_path: Path) -> None:
    with pytest.raises(FeedGap):
        FolderFeed(opened_folder(tmp_path)).read_after({"kind": "offsets", "topics": {}}, ())
