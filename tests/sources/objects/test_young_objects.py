"""`min_age`: an object that is overwritten and too young to be read is neither read nor taken for gone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.sources.objects.objects_source import ObjectsPipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> ObjectsPipeline:
    (tmp_path / "in").mkdir()
    return ObjectsPipeline(tmp_path, url=str(tmp_path / "in"), min_age="1h", deleted="remove_rows", schema="n bigint")


def put(pipeline: ObjectsPipeline, key: str, content: str, *, hours: float) -> None:
    path = pipeline.folder / "in" / key
    path.write_text(content)
    at = time.time() - hours * 3600
    os.utime(path, (at, at))


def test_an_overwritten_object_waits_and_keeps_its_rows(pipeline: ObjectsPipeline) -> None:
    put(pipeline, "a", "1", hours=5)
    put(pipeline, "b", "1", hours=5)
    assert pipeline.cycles() == ["a", "b"]
    put(pipeline, "a", "22", hours=0)
    assert pipeline.cycles() == []
    assert pipeline.bookmarks()["a"][3] == "read"
    put(pipeline, "a", "22", hours=2)
    assert pipeline.cycles() == ["a"]


def test_one_that_is_deleted_while_it_is_young_is_gone(pipeline: ObjectsPipeline) -> None:
    put(pipeline, "a", "1", hours=5)
    put(pipeline, "b", "1", hours=5)
    pipeline.cycles()
    put(pipeline, "a", "22", hours=0)
    assert pipeline.cycles() == []
    (pipeline.folder / "in" / "a").unlink()
    assert pipeline.cycles() == ["-a"]
    assert pipeline.cycles() == []
