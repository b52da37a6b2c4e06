"""The history of rows, made of changes: every version with its right end, whatever comes twice or late."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.testing.change_log import ChangeLog, partitions
from tests.sinks.iceberg.cdc.test_current_state import ANY_LOG, STEPS, Target, plainly
from tests.sinks.iceberg.lake_table import LakeTable

pytestmark = pytest.mark.spark


class Versions(Target):
    """A table with every version of every row."""

    def __init__(self, lands: LakeTable, **options: object) -> None:
        super().__init__(lands, mode="history", **options)

    def versions(self) -> list[tuple[object, ...]]:
        columns = "id, note, body, valid_from_position, valid_to_position, is_current, valid_from, valid_to"
        rows = self.lands.spark.sql(f"SELECT {columns} FROM {self.lands.table}").collect()
        for row in rows:
            assert row.is_current == (row.valid_to_position is None) == (row.valid_to is None)
        return sorted(
            (r.id, r.note, r.body, int(r.valid_from_position), r.valid_to_position and int(r.valid_to_position))
            for r in rows
        )


def test_a_version_ends_where_the_next_begins(lands: LakeTable):
    log, target = ChangeLog(), Versions(lands)
    log.insert(1, "a", "A")
    log.update(1, "b")
    log.update(1, "c", "C")
    for event in plainly(log):
        target.land([event])
    assert target.versions() == log.history()
    assert [version[1] for version in target.versions()] == ["a", "b", "c"]


def test_the_times_of_a_version_are_those_of_its_changes(lands: LakeTable):
    log, target = ChangeLog(), Versions(lands)
    log.insert(1, "a", "A")
    log.delete(1)
    target.land(plainly(log))
    (row,) = target.lands.spark.sql(
        f"SELECT unix_micros(valid_from) AS f, unix_micros(valid_to) AS t FROM {target.lands.table}"
    ).collect()
    assert [row.f, row.t] == [round(event.time.timestamp() * 1e6) for event in log.events]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::3])
def test_changes_that_come_in_any_order_find_their_places(lands: LakeTable, order: tuple[int, ...]):
    log, target = ChangeLog(), Versions(lands)
    log.insert(1, "a", "A")
    log.update(1, "b", "B")
    log.delete(1)
    log.insert(1, "c", "C")
    events = plainly(log)
    for place in order:
        target.land([events[place]])
    assert target.versions() == log.history()


def test_a_truncate_ends_every_version_before_it(lands: LakeTable):
    log, target = ChangeLog(), Versions(lands)
    log.insert(1, "a", "A")
    log.insert(2, "b", "B")
    log.truncate()
    log.insert(1, "c", "C")
    log.truncate()
    events = plainly(log)
    for place in (0, 3, 2, 4, 1):
        target.land([events[place]])
    assert target.versions() == log.history()


def test_a_replay_changes_nothing_and_publishes_nothing(lands: LakeTable):
    log, target = ChangeLog(), Versions(lands)
    log.insert(1, "a", "A")
    log.update(1, "b")
    log.move(1, 2, "c")
    log.truncate()
    log.insert(1, "d", "D")
    log.delete(1)
    target.land(plainly(log))
    before = len(target.lands.snapshots())
    target.land(plainly(log))
    target.land(plainly(log)[1:3])
    assert target.versions() == log.history()
    assert len(target.lands.snapshots()) == before


WAYS = st.sampled_from(["auto", "delete-append", "copy-on-write"])


@ANY_LOG
@given(STEPS, st.integers(0, 2**32), st.integers(1, 3), WAYS, st.sampled_from(["3", "3", "2"]))
def test_any_log_cut_anywhere_and_repeated_gives_the_history(
    lands: LakeTable, steps: list, seed: int, count: int, upsert: str, version: str
):
    log = ChangeLog()
    for name, *arguments in steps:
        getattr(log, name)(*arguments)
    target = Versions(lands, upsert=upsert, properties={"format-version": version})
    target.land_in_windows(partitions(log, count), random.Random(seed))
    if log.events:
        assert target.versions() == log.history()


def test_a_snapshot_makes_no_version_of_a_row_that_is_as_it_was(lands: LakeTable):
    log, target = ChangeLog(), Versions(lands)
    log.insert(1, "a", "A")
    log.snapshot()
    log.snapshot()
    log.update(1, "b")
    log.snapshot()
    for begin, end in ((0, 2), (2, 3), (3, 4), (4, 5)):
        target.land(plainly(log)[begin:end])
    assert target.versions() == log.history()
    assert [version[1] for version in target.versions()] == ["a", "b"]


def test_a_version_that_comes_after_the_snapshot_that_read_it_takes_its_place(lands: LakeTable):
    log, target = ChangeLog(), Versions(lands)
    log.insert(1, "a", "A")
    log.move(1, 2, "b")
    log.snapshot()
    insert, delete, moved, read = plainly(log)
    target.land([moved])  # its body is unknown yet: it is rejected
    target.land([insert, delete])
    target.land([read])
    target.replay_rejects()
    assert target.versions() == log.history()
    assert [version[:2] for version in target.versions()] == [(1, "a"), (2, "b")]


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(ANY_LOG, max_examples=400)
@given(STEPS, st.integers(0, 2**32), st.integers(1, 3), WAYS, st.sampled_from(["3", "2"]))
def test_many_logs_give_the_history(lands: LakeTable, steps: list, seed: int, count: int, upsert: str, version: str):
    any_log = test_any_log_cut_anywhere_and_repeated_gives_the_history.hypothesis.inner_test
    any_log(lands, steps, seed, count, upsert, version)
