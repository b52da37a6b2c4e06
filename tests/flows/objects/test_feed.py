"""A pipeline that follows a feed of notifications, killed wherever it can be: nothing lost, nothing twice, nothing listed."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from headwater.model.faults import EVERY_CYCLE
from tests.flows.objects.object_yard import SECONDS, Yard


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    (tmp_path / "events").mkdir()
    return Yard(tmp_path, "sqlite:///progress.db", "objects", more=", feed: {folder: ./events}")


def tell(yard: Yard, name: str, *keys: str) -> None:
    places = [{"bucket": {"name": "in_objects"}, "object": {"key": key}} for key in keys]
    records = [{"eventName": "ObjectCreated:Put", "s3": place} for place in places]
    (yard.folder / "events" / name).write_text(json.dumps({"Records": records}))


@pytest.mark.parametrize("point", EVERY_CYCLE)
def test_a_kill_is_repaired_by_running_again(yard: Yard, point: str) -> None:
    yard.put("objects", "ab")
    yard.catch_up("objects")
    yard.put("objects", "cd")
    yard.put("objects", "b", "second")
    yard.put("objects", "u", "untold")
    tell(yard, "1", "b", "c", "never")
    child = yard.start("cycles", "objects", f"{point}:kill")
    assert child.process.wait(SECONDS) == -signal.SIGKILL, "the point was not reached"
    tell(yard, "2", "c", "d")
    yard.catch_up("objects")
    assert yard.landed("objects") == Counter(["a first", "b first", "b second", "c first", "d first"])
    # Nothing was listed in between: what nobody told of is not known yet.
    assert [row["key"] for row in yard.bookmarks("objects")] == ["a", "b", "c", "d"]


def test_a_listing_that_finds_nothing_is_remembered_without_spark(yard: Yard) -> None:
    """Its window has no rows, so no sink is asked for anything; and the next cycle does not list again."""
    first = yard.run("objects")
    assert (first.outcome, first.rows, first.landings) == ("landed", 0, ())
    yard.put("objects", "u", "untold")
    assert yard.run("objects").outcome == "nothing new"
