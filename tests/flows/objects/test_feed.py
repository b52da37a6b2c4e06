"""A pipeline that follows a feed of notifications, killed wherever it can be: nothing lost, nothing twice, nothing listed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from headwater.model.faults import EVERY_CYCLE
from tests.flows.objects.text_objects import TextObjects


@pytest.fixture
def objects(tmp_path: Path) -> TextObjects:
    (tmp_path / "events").mkdir()
    return TextObjects(tmp_path, feed={"folder": "./events"})


def tell(objects: TextObjects, name: str, *keys: str) -> None:
    places = [{"bucket": {"name": "in_objects"}, "object": {"key": key}} for key in keys]
    records = [{"eventName": "ObjectCreated:Put", "s3": place} for place in places]
    (objects.folder / "events" / name).write_text(json.dumps({"Records": records}))


@pytest.mark.parametrize("point", EVERY_CYCLE)
def test_a_kill_is_repaired_by_running_again(objects: TextObjects, point: str) -> None:
    objects.put("ab")
    objects.catch_up()
    objects.put("cd")
    objects.put("b", "second")
    objects.put("u", "untold")
    tell(objects, "1", "b", "c", "never")
    objects.kill_at(f"{point}:kill", "cycles")
    tell(objects, "2", "c", "d")
    objects.catch_up()
    assert objects.landed() == Counter(["a first", "b first", "b second", "c first", "d first"])
    # Nothing was listed in between: what nobody told of is not known yet.
    assert [row["key"] for row in objects.bookmarks()] == ["a", "b", "c", "d"]


def test_a_listing_that_finds_nothing_is_remembered_without_spark(objects: TextObjects) -> None:
    """Its window has no rows, so no sink is asked for anything; and the next cycle does not list again."""
    first = objects.run()
    assert (first.outcome, first.rows, first.landings) == ("landed", 0, ())
    objects.put("u", "untold")
    assert objects.run().outcome == "nothing new"
