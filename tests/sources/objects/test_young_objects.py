"""`min_age`: an object that is overwritten and too young to be read is neither read nor taken for gone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.sources.objects.objects_source import Watcher


@pytest.fixture
def watcher(tmp_path: Path) -> Watcher:
    (tmp_path / "in").mkdir()
    return Watcher(tmp_path, url=str(tmp_path / "in"), min_age="1h", deleted="remove_rows", schema="n bigint")


def put(watcher: Watcher, key: str, content: str, *, hours: float) -> None:
    path = watcher.folder / "in" / key
    path.write_text(content)
    at = time.time() - hours * 3600
    os.utime(path, (at, at))


def test_an_overwritten_object_waits_and_keeps_its_rows(watcher: Watcher) -> None:
    put(watcher, "a", "1", hours=5)
    put(watcher, "b", "1", hours=5)
    assert watcher.cycles() == ["a", "b"]
    put(watcher, "a", "22", hours=0)
    assert watcher.cycles() == []
    assert watcher.bookmarks()["a"][3] == "read"
    put(watcher, "a", "22", hours=2)
    assert watcher.cycles() == ["a"]


def test_one_that_is_deleted_while_it_is_young_is_gone(watcher: Watcher) -> None:
    put(watcher, "a", "1", hours=5)
    put(watcher, "b", "1", hours=5)
    watcher.cycles()
    put(watcher, "a", "22", hours=0)
    assert watcher.cycles() == []
    (watcher.folder / "in" / "a").unlink()
    assert watcher.cycles() == ["-a"]
    assert watcher.cycles() == []
