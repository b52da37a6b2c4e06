"""A label in the source's log becomes a tag on every table, before the mark moves past it."""

from __future__ import annotations

import pytest

from headwater.engine.labels import labelled
from headwater.model.faults import RehearsedFault
from headwater.model.position.marks import LsnMark
from headwater.model.position.stream_state import TableState
from tests.engine.change_source import ChangeSource, CurrentState, Step

pytestmark = pytest.mark.spark

COPY = Step(10, {s: [("r", 2, 1, "old"), ("r", 2, 2, "old")] for s in ("public.a", "public.b")})
CLOSING = Step(20, {"public.a": [("u", 7, 1, "new")]}, ("month-end",), tables={"public.b": TableState(1, 0)})
AFTER = Step(30, {s: [("u", 7, 2, "later")] for s in ("public.a", "public.b")})


def test_all_tables_can_be_read_as_of_a_label(tmp_path, namespace, spark):
    lake = CurrentState(tmp_path, spark, namespace)
    source = ChangeSource([COPY, CLOSING, AFTER])
    for _ in source.steps:
        assert lake.run(source=source).outcome == "landed"
    assert lake.rows("a", "month-end") == {1: "new", 2: "old"}
    assert lake.rows("b", "month-end") == {1: "old", 2: "old"}, "a table without changes in the window has it too"
    assert lake.rows("a") == {1: "new", 2: "later"}
    assert [why for _, why in lake.entries()] == ["", "label month-end", ""]


@pytest.mark.parametrize("point", ["land.after", "label.before", "label.after", "advance.before", "advance.after"])
def test_a_failure_around_labels_is_repaired_by_one_more_run(tmp_path, namespace, spark, point):
    lake = CurrentState(tmp_path, spark, namespace)
    source = ChangeSource([COPY, CLOSING])
    lake.run(source=source)
    broken = lake.run(RehearsedFault(point, "sink", 1), source)
    assert broken.outcome == "failed"
    tags = lake.tags("a")
    assert bool(tags) is (point in {"label.after", "advance.before", "advance.after"})
    result = lake.run(source=source)
    assert result.outcome == ("nothing new" if point == "advance.after" else "landed"), result.error
    assert lake.tags("a") == (tags or lake.tags("a"))
    assert set(lake.tags("a")) == set(lake.tags("b")) == {"month-end"}
    assert lake.rows("a", "month-end") == lake.rows("a") == {1: "new", 2: "old"}


def test_a_table_that_is_not_there_yet_is_left_out(tmp_path, namespace, spark):
    lake = CurrentState(tmp_path, spark, namespace)
    only_one = Step(10, {"public.a": COPY.changes["public.a"]}, ("early",), tables={"public.b": TableState(1, 0)})
    assert lake.run(source=ChangeSource([only_one])).outcome == "landed"
    assert set(lake.tags("a")) == {"early"}


def test_a_table_that_does_not_hold_the_moment_gets_no_tag_and_a_warning(tmp_path, namespace, spark):
    lake = CurrentState(tmp_path, spark, namespace)
    copying = Step(20, CLOSING.changes, ("month-end",), tables={"public.b": TableState(1, 0, copied_to=5)})
    source = ChangeSource([COPY, copying])
    lake.run(source=source)
    result = lake.run(source=source)
    assert result.outcome == "landed", result.error
    assert set(lake.tags("a")) == {"month-end"}
    assert lake.tags("b") == {}
    assert result.warnings == ("label month-end: no tag for public.b: it is being copied",)
    assert lake.entries()[-1] == ("landed", "label month-end; no tag for public.b: it is being copied")


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (TableState(1, 20), ""),
        (TableState(1, 21), "its copy is of a later moment (0/15)"),
        (TableState(1, 5, copied_to=7), "it is being copied"),
        (TableState(1, 5, landed=19), "its changes have landed up to 0/13 only"),
        (TableState(1, 5, landed=20), ""),
        (TableState(1, 5, stale="a column came"), "it has to be copied again (a column came)"),
    ],
)
def test_only_tables_that_hold_exactly_that_moment_are_labelled(table, why):
    moment = labelled(LsnMark(20, labels=("x",), streams={"t": table}))
    assert moment.streams == (() if why else ("t",))
    assert moment.left_out == ((f"t: {why}",) if why else ())


def test_a_mark_without_labels_names_nothing():
    assert labelled(LsnMark(20, streams={"t": TableState(1, 0)})).labels == ()
