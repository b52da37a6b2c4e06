"""Bookmarks in a file: what goes in comes out, what is wrong is refused, and no crash leaves half a file."""

from __future__ import annotations

import datetime as dt
import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.model.errors import InputError, UnknownName
from headwater.progress.bookmark_file import Bookmark, Bookmarks

_AT = dt.datetime(2026, 3, 2, 8, 0, 0, 123456, tzinfo=dt.timezone(dt.timedelta(hours=-5)))

# As the tool that this shape comes from writes it: nanoseconds, a zone, two spaces.
_FOREIGN = """{
  "version": "1.0",
  "created_at": "2025-07-01T10:00:00.123456789-04:00",
  "updated_at": "2025-07-01T10:00:00.123456789-04:00",
  "bookmarks": [
    {
      "topic": "my-bucket",
      "partition": "in/a b.json",
      "offset": 0,
      "timestamp": "2025-07-01T10:00:00.123456789-04:00",
      "metadata": {}
    }
  ]
}"""

_texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)
_bookmarks = st.builds(
    Bookmark,
    _texts,
    _texts,
    st.integers(0, 2**62),
    st.datetimes(timezones=st.just(dt.UTC)),
    st.dictionaries(_texts, st.one_of(st.none(), st.integers(), st.text(st.characters(exclude_categories=["Cs"])))),
)


@given(_bookmarks)
def test_a_bookmark_goes_through_dict_and_json(bookmark: Bookmark) -> None:
    assert Bookmark.from_dict(bookmark.to_dict()) == bookmark
    assert Bookmark.from_json(bookmark.to_json()) == bookmark


def test_timestamps_are_shown_in_utc() -> None:
    bookmark = Bookmark("bucket", "key", 0, _AT)
    assert bookmark.timestamp_utc_iso == "2026-03-02T13:00:00.123456Z"
    assert bookmark.timestamp_utc == _AT
    assert bookmark.to_dict()["timestamp"] == "2026-03-02T13:00:00.123456Z"


def test_without_a_timestamp_it_is_of_now() -> None:
    before = dt.datetime.now(dt.UTC)
    bookmark = Bookmark.from_dict({"topic": "t", "partition": "p", "offset": 1})
    assert before <= bookmark.timestamp <= dt.datetime.now(dt.UTC)
    assert bookmark.metadata == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": ""},
        {"topic": "  "},
        {"partition": "\t"},
        {"partition": 3},
        {"offset": -1},
        {"offset": 1.5},
        {"offset": True},
        {"offset": "7"},
        {"timestamp": "yesterday"},
        {"timestamp": "2026-03-02T08:00:00"},
        {"timestamp": 17},
        {"metadata": [1]},
    ],
    ids=str,
)
def test_what_is_wrong_is_refused(wrong: dict[str, object]) -> None:
    good = {"topic": "t", "partition": "p", "offset": 0, "timestamp": "2026-03-02T08:00:00Z", "metadata": {}}
    Bookmark.from_dict(good)
    with pytest.raises(InputError):
        Bookmark.from_dict({**good, **wrong})


@pytest.mark.parametrize("missing", ["topic", "partition", "offset"])
def test_what_is_missing_is_refused(missing: str) -> None:
    fields = {"topic": "t", "partition": "p", "offset": 0}
    with pytest.raises(InputError, match="topic, partition and offset"):
        Bookmark.from_dict({name: value for name, value in fields.items() if name != missing})


def test_add_get_all_by_topic_remove_update_count_clear(tmp_path: Path) -> None:
    bookmarks = Bookmarks(tmp_path / "bookmarks.json")
    for topic, partition in (("b", "2"), ("a", "9"), ("b", "1"), ("a:b", "c"), ("a", "b:c")):
        bookmarks.add(Bookmark(topic, partition, 5, _AT))
    assert [(one.topic, one.partition) for one in bookmarks.all()] == [
        ("a", "9"),
        ("a", "b:c"),
        ("a:b", "c"),
        ("b", "1"),
        ("b", "2"),
    ]
    assert [one.partition for one in bookmarks.by_topic("b")] == ["1", "2"]
    assert bookmarks.get("a", "9").offset == 5
    assert bookmarks.update_offset("a", "9", 8).offset == 8
    assert bookmarks.get("a", "9").timestamp > _AT
    with pytest.raises(InputError):
        bookmarks.update_offset("a", "9", -1)
    assert bookmarks.get("a", "9").offset == 8
    bookmarks.add(Bookmark("a", "9", 1, _AT))
    assert (bookmarks.get("a", "9").offset, bookmarks.count(), len(bookmarks)) == (1, 5, 5)
    bookmarks.remove("a", "9")
    for refused in (
        lambda: bookmarks.get("a", "9"),
        lambda: bookmarks.remove("a", "9"),
        lambda: bookmarks.update_offset("a", "9", 1),
    ):
        with pytest.raises(UnknownName, match="'9'"):
            refused()
    bookmarks.clear()
    assert bookmarks.count() == 0
    assert not bookmarks.exists()


@given(st.lists(_bookmarks, max_size=5))
def test_save_and_load(tmp_path_factory: pytest.TempPathFactory, bookmarks: list[Bookmark]) -> None:
    path = tmp_path_factory.mktemp("b") / "deep" / "bookmarks.json"
    first, again = Bookmarks(path), Bookmarks(path)
    for one in bookmarks:
        first.add(one)
    first.save()
    again.load()
    assert again.all() == first.all()
    assert [file.name for file in path.parent.iterdir()] == ["bookmarks.json"]


def test_another_tools_file_is_read_and_keeps_its_shape(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.json"
    path.write_text(_FOREIGN)
    bookmarks = Bookmarks(path)
    bookmarks.load()
    assert bookmarks.get("my-bucket", "in/a b.json").timestamp_utc_iso == "2025-07-01T14:00:00.123456Z"
    bookmarks.save()
    before, after = json.loads(_FOREIGN), json.loads(path.read_text())
    assert list(after) == list(before)
    assert [list(one) for one in after["bookmarks"]] == [list(one) for one in before["bookmarks"]]
    assert after["version"] == "1.0"
    assert after["created_at"] == "2025-07-01T14:00:00.123456Z"


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"bookmarks": 3}', '{"bookmarks": [{"topic": "a"}]}', "null"])
def test_a_damaged_file_is_an_error_and_changes_nothing(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "bookmarks.json"
    path.write_text(damage)
    bookmarks = Bookmarks(path)
    bookmarks.add(Bookmark("t", "p"))
    with pytest.raises(InputError, match=r"bookmarks\.json"):
        bookmarks.load()
    assert bookmarks.count() == 1


def test_no_file_is_no_bookmarks(tmp_path: Path) -> None:
    bookmarks = Bookmarks(tmp_path / "none.json")
    bookmarks.load()
    assert bookmarks.all() == []


def test_threads_do_not_lose_each_others(tmp_path: Path) -> None:
    bookmarks = Bookmarks(tmp_path / "bookmarks.json")

    def work(topic: str) -> None:
        for number in range(200):
            bookmarks.add(Bookmark(topic, str(number)))
            if number % 50 == 0:
                bookmarks.save()

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bookmarks.save()
    again = Bookmarks(bookmarks.path)
    again.load()
    assert again.count() == 800


def test_they_are_part_of_the_package() -> None:
    assert hw.Bookmark is Bookmark
    assert hw.Bookmarks is Bookmarks
