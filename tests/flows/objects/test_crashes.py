"""G2 and G8 for objects: whatever a crash interrupts, every good object's rows are there once, and every damaged one is
set aside; none is forgotten."""

from __future__ import annotations

import random

import pytest

from headwater.engine.operations.replay import Replayed
from headwater.model.faults import EVERY_CYCLE
from tests.flows.objects.json_objects import JsonObjects

pytestmark = pytest.mark.spark

# The table of rejects is landed within the sink's landing, and passes two of its points itself.
TWICE = ("land.written", "land.published")
PASSAGES = [f"{point}:kill:{n}" for point in EVERY_CYCLE for n in ((1, 2) if point in TWICE else (1,))]
AROUND_PUBLISHING = ["land.written:kill:2", "land.published:kill:2", "advance.before:kill:1"]


@pytest.mark.parametrize("passage", PASSAGES)
def test_a_kill_at_any_point_while_objects_are_replaced(tmp_path, namespace, passage, spark):
    killed(JsonObjects(tmp_path, spark, f"{namespace}.objects", "replace_object"), passage)


@pytest.mark.parametrize("passage", AROUND_PUBLISHING)
def test_a_kill_around_publishing_while_objects_are_appended(tmp_path, namespace, passage, spark):
    killed(JsonObjects(tmp_path, spark, f"{namespace}.objects", "append"), passage)


def killed(objects: JsonObjects, passage: str) -> None:
    objects.add(30)
    assert objects.run().outcome == "landed"
    objects.add(20, damaged=3)
    assert objects.run().outcome == "landed"  # the damaged ones will be tried once more, and then be set aside
    objects.update(5)
    objects.add(6, damaged=1)
    objects.kill_at(passage)
    objects.add(5)
    objects.catch_up()
    objects.check()


def test_a_damaged_object_that_is_mended_lands(tmp_path, namespace, spark):
    objects = JsonObjects(tmp_path, spark, f"{namespace}.objects", "replace_object")
    objects.add(10, damaged=4)
    objects.catch_up()
    objects.check()
    objects.mend()
    objects.catch_up()
    assert objects.in_lake() == objects.expected()
    assert objects.standings() == {"landed": 10}


def test_objects_that_were_set_aside_are_replayed_by_a_window(tmp_path, namespace, spark):
    objects = JsonObjects(tmp_path, spark, f"{namespace}.objects", "append")
    objects.add(10, damaged=4)
    objects.catch_up()
    assert objects.replay() == Replayed(tried=4, landed=0, left=0, queued=4)
    assert objects.rejects() == {}
    objects.catch_up()
    objects.check()  # tried and set aside once more
    objects.mend()
    objects.catch_up()
    assert objects.replay() == Replayed(tried=4, landed=0, left=0, queued=0)  # changed: they came by themselves
    objects.catch_up()
    objects.check()


def test_a_rewind_reads_everything_again_and_doubles_nothing(tmp_path, namespace, spark):
    objects = JsonObjects(tmp_path, spark, f"{namespace}.objects", "replace_object")
    objects.add(60)
    objects.catch_up()
    objects.update(10)
    objects.catch_up()
    objects.rewind("start")
    first = objects.run()
    assert first.outcome == "landed"
    objects.catch_up()
    objects.check()


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["replace_object", "append"])
def test_objects_arrive_while_processes_are_killed(tmp_path, namespace, mode, spark):
    """5,000 objects, one in a hundred damaged, updates in between; kills at every point and at any moment."""
    objects = JsonObjects(tmp_path, spark, f"{namespace}.objects", mode, max_objects=400, seed=7)
    chance = random.Random(7)
    for passage in (*PASSAGES, *(["any moment"] * 10)):
        objects.add(5_000 // (len(PASSAGES) + 10), damaged=2)
        if mode == "replace_object":
            objects.update(min(10, len(objects.good)))
        if passage == "any moment":
            objects.start().kill_after(chance.uniform(0.5, 6.0))
        else:
            objects.start(fault=passage).wait(300)
        objects.run_after_crash()
    objects.catch_up()
    objects.check()
