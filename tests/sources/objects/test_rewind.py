"""A rewind over objects: what lies above the mark waits again, is another window, and is not counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.model.errors import BadPosition
from headwater.model.marks import ObjectsMark
from headwater.model.protocols.source import Claim
from tests.sources.objects.objects_source import Watcher


@pytest.fixture
def watcher(tmp_path: Path) -> Watcher:
    (tmp_path / "in").mkdir()
    return Watcher(tmp_path, url=str(tmp_path / "in"), schema="n bigint")


def put(watcher: Watcher, *keys: str) -> None:
    for key in keys:
        (watcher.folder / "in" / key).write_text('{"n": 1}\n')


def mark_of(watcher: Watcher) -> ObjectsMark:
    assert isinstance(watcher.mark, ObjectsMark)
    return watcher.mark


def test_everything_is_read_again_and_counted_once(watcher: Watcher) -> None:
    put(watcher, "a", "b")
    assert watcher.cycles() == ["a", "b"]
    put(watcher, "c")
    assert watcher.cycles() == ["c"]
    before = mark_of(watcher)
    windows = {watcher.source.plan(None, claim=Claim(watcher.book.lease, "run")).window}
    watcher.mark = watcher.source.position("start", before)
    again = watcher.source.plan(watcher.mark, claim=Claim(watcher.book.lease, "run")).window
    assert again not in windows  # a sink must not take it for the one that it holds
    assert watcher.cycles() == ["a", "b", "c"]
    assert (mark_of(watcher).count, mark_of(watcher).generation) == (3, before.generation)
    assert mark_of(watcher).covers(before)


def test_a_generation_is_a_position(watcher: Watcher) -> None:
    put(watcher, "a")
    watcher.cycles()
    put(watcher, "b")
    watcher.cycles()
    watcher.mark = watcher.source.position("1", watcher.mark)
    assert watcher.cycles() == ["b"]
    watcher.mark = watcher.source.position("start", watcher.mark)
    watcher.mark = watcher.source.position("latest", watcher.mark)
    assert watcher.cycles() == []


@pytest.mark.parametrize("text", ["3", "-1", "yesterday", ""])
def test_a_position_that_has_not_been_is_refused(watcher: Watcher, text: str) -> None:
    put(watcher, "a")
    watcher.cycles()
    with pytest.raises(BadPosition):
        watcher.source.position(text, watcher.mark)
