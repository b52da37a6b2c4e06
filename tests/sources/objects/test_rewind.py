"""A rewind over objects: what lies above the mark waits again, is another window, and is not counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.model.errors import BadPosition
from headwater.model.position.marks import ObjectsMark
from headwater.model.protocols.source import Claim
from tests.sources.objects.objects_source import ObjectsPipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> ObjectsPipeline:
    (tmp_path / "in").mkdir()
    return ObjectsPipeline(tmp_path, url=str(tmp_path / "in"), schema="n bigint")


def put(pipeline: ObjectsPipeline, *keys: str) -> None:
    for key in keys:
        (pipeline.folder / "in" / key).write_text('{"n": 1}\n')


def mark_of(pipeline: ObjectsPipeline) -> ObjectsMark:
    assert isinstance(pipeline.mark, ObjectsMark)
    return pipeline.mark


def test_everything_is_read_again_and_counted_once(pipeline: ObjectsPipeline) -> None:
    put(pipeline, "a", "b")
    assert pipeline.cycles() == ["a", "b"]
    put(pipeline, "c")
    assert pipeline.cycles() == ["c"]
    before = mark_of(pipeline)
    windows = {pipeline.source.plan(None, claim=Claim(pipeline.book.lease, "run")).window}
    pipeline.mark = pipeline.source.position("start", before)
    again = pipeline.source.plan(pipeline.mark, claim=Claim(pipeline.book.lease, "run")).window
    assert again not in windows  # a sink must not take it for the one that it holds
    assert pipeline.cycles() == ["a", "b", "c"]
    assert (mark_of(pipeline).count, mark_of(pipeline).generation) == (3, before.generation)
    assert mark_of(pipeline).covers(before)


def test_a_generation_is_a_position(pipeline: ObjectsPipeline) -> None:
    put(pipeline, "a")
    pipeline.cycles()
    put(pipeline, "b")
    pipeline.cycles()
    pipeline.mark = pipeline.source.position("1", pipeline.mark)
    assert pipeline.cycles() == ["b"]
    pipeline.mark = pipeline.source.position("start", pipeline.mark)
    pipeline.mark = pipeline.source.position("latest", pipeline.mark)
    assert pipeline.cycles() == []


@pytest.mark.parametrize("text", ["3", "-1", "yesterday", ""])
def test_a_position_that_has_not_been_is_refused(pipeline: ObjectsPipeline, text: str) -> None:
    put(pipeline, "a")
    pipeline.cycles()
    with pytest.raises(BadPosition):
        pipeline.source.position(text, pipeline.mark)
