"""The table of the current state, made of changes: equal to the source whatever happens on the way."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater.model.rows import Reject, Rows
from headwater.sinks.rejects import row_of
from headwater.testing.change_log import ChangeLog, Event, changes, partitions
from headwater.testing.memory_rows import MemoryRejects, with_tables
from tests.sinks.iceberg.lake_table import LakeTable

pytestmark = pytest.mark.spark

_TABLES = itertools.count(1)
_PARTITIONS: list[list[str]] = [[], ["bucket(3, id)"], ["bucket(2, id)", "truncate(2, id)"]]


class Target:
    """A table that changes land in, window after window, with the rejects."""

    def __init__(self, lands: LakeTable, **options: object) -> None:
        self.lands = replace(lands, name=f"orders_{next(_TABLES)}")
        self.rejects: list[Reject] = []
        self._numbers = itertools.count(1)
        self._options = {"mode": "merge", **options}

    def land(self, events: Sequence[tuple[int, int, Event]], splits: int = 1) -> None:
        if events:
            self.land_rows(changes(events, splits))

    def land_rows(self, rows: Rows) -> None:
        attempt = self.lands.attempt(next(self._numbers), rejects=MemoryRejects(self.rejects))
        self.lands.sink(**self._options).land(attempt, rows)

    def land_in_windows(self, parts: list[list[tuple[int, int, Event]]], chance: random.Random) -> None:
        """Each partition in order, cut anywhere, with events that come again after a restart."""
        at = [0] * len(parts)
        while any(at[n] < len(part) for n, part in enumerate(parts)):
            window = []
            for n, part in enumerate(parts):
                begin = max(0, at[n] - chance.choice([0, 0, 0, 3]))
                end = min(len(part), at[n] + chance.randrange(5))
                window += part[begin : max(begin, end)]
                at[n] = max(at[n], end)
            self.land(window, splits=chance.choice([1, 2]))
            if chance.random() < 1 / 3:  # any part of what has landed comes once more, by itself
                part = chance.choice([part[: at[n]] for n, part in enumerate(parts)])
                begin = chance.randrange(len(part) + 1)
                self.land(part[begin : begin + chance.randrange(3)])
        while self.rejects:
            before = len(self.rejects)
            self.replay_rejects()
            assert len(self.rejects) < before, self.rejects

    def replay_rejects(self) -> None:
        waiting, self.rejects = self.rejects, []
        for reject in waiting:
            self.land_rows(with_tables(changes(()), (row_of(reject),)))

    def rows(self) -> dict[int, tuple[str, str]]:
        rows = self.lands.spark.sql(f"SELECT id, note, body FROM {self.lands.table}").collect()
        assert len({row.id for row in rows}) == len(rows), "a key is there twice"
        return {row.id: (row.note, row.body) for row in rows}


def plainly(log: ChangeLog) -> list[tuple[int, int, Event]]:
    return [(0, offset, event) for offset, event in enumerate(log.events)]


def test_inserts_updates_and_deletes_of_one_window(lands: LakeTable):
    log, target = ChangeLog(), Target(lands)
    log.insert(1, "a", "A")
    log.insert(2, "b", "B")
    log.update(1, "c", "C")
    log.delete(2)
    target.land(plainly(log))
    assert target.rows() == {1: ("c", "C")} == log.rows


def test_a_value_that_an_event_leaves_out_is_taken_from_the_table(lands: LakeTable):
    log, target = ChangeLog(), Target(lands)
    log.insert(1, "a", "long")
    target.land(plainly(log))
    log.update(1, "b")
    target.land(plainly(log)[1:])
    assert target.rows() == {1: ("b", "long")}


def test_a_value_that_an_event_leaves_out_is_taken_from_the_batch(lands: LakeTable):
    log, target = ChangeLog(), Target(lands)
    log.insert(1, "a", "long")
    log.update(1, "b")
    log.update(1, "c")
    target.land(plainly(log))
    assert target.rows() == {1: ("c", "long")}


@pytest.mark.parametrize("cuts", [[], [1], [2], [1, 2], [1, 2, 3], [3]])
def test_a_change_of_key_takes_what_it_leaves_out_from_the_row_under_the_old_key(lands: LakeTable, cuts: list[int]):
    log, target = ChangeLog(), Target(lands)
    log.insert(1, "a", "long")
    log.update(1, "b")
    log.move(1, 2, "c")
    for begin, end in itertools.pairwise([0, *cuts, len(log.events)]):
        target.land(plainly(log)[begin:end])
    assert target.rows() == {2: ("c", "long")}
    assert not target.rejects


def test_a_moved_row_whose_old_partition_lags_is_set_aside_and_not_guessed(lands: LakeTable):
    log, target = ChangeLog(), Target(lands)
    log.insert(1, "a", "long")
    log.update(1, "b", "longer")
    log.move(1, 2, "c")
    insert, update, delete, moved = plainly(log)
    target.land([insert])
    target.land([moved])
    assert [reject.location["row"] for reject in target.rejects] == ['{"id": 2}']
    target.land([update, delete])
    target.replay_rejects()
    assert target.rows() == {2: ("c", "longer")}


def test_a_value_that_nobody_has_is_a_reject(lands: LakeTable):
    log, target = ChangeLog(), Target(lands)
    log.insert(1, "a", "long")
    log.update(1, "b")
    target.land(plainly(log)[1:])
    assert "'body'" in target.rejects[0].reason
    assert target.rows() == {}


def test_a_delete_beats_an_older_update_that_comes_late(lands: LakeTable):
    log, target = ChangeLog(), Target(lands)
    log.insert(1, "a", "A")
    log.update(1, "b", "B")
    log.delete(1)
    insert, update, delete = plainly(log)
    for window in ([insert], [delete], [update], [insert, update]):
        target.land(window)
        assert target.rows() == ({1: ("a", "A")} if window == [insert] else {})


def test_a_delete_of_a_row_that_was_never_there_is_remembered(lands: LakeTable):
    log, target = ChangeLog(), Target(lands)
    log.insert(1, "a", "A")
    log.delete(1)
    insert, delete = plainly(log)
    target.land([delete])
    target.land([insert])
    assert target.rows() == {}


def test_a_truncate_takes_what_was_before_it_and_nothing_after(lands: LakeTable):
    log, target = ChangeLog(), Target(lands)
    log.insert(1, "a", "A")
    log.insert(2, "b", "B")
    log.truncate()
    log.insert(3, "c", "C")
    first, second, truncate, third = plainly(log)
    target.land([first])
    target.land([third])
    target.land([truncate])
    assert target.rows() == {3: ("c", "C")}
    target.land([second])  # late: it was void before it came
    assert target.rows() == {3: ("c", "C")}


def test_a_replay_changes_nothing_and_publishes_nothing(lands: LakeTable):
    log, target = ChangeLog(), Target(lands)
    log.insert(1, "a", "A")
    log.update(1, "b")
    log.move(1, 2, "c")
    log.delete(2)
    log.insert(2, "d", "D")
    target.land(plainly(log))
    before = len(target.lands.snapshots())
    target.land(plainly(log))
    target.land(plainly(log)[:2])
    assert target.rows() == log.rows
    assert len(target.lands.snapshots()) == before


def test_deleted_rows_can_stay_marked(lands: LakeTable):
    log, target = ChangeLog(), Target(lands, deletes="mark")
    log.insert(1, "a", "A")
    log.insert(2, "b", "B")
    target.land(plainly(log))
    log.delete(1)
    target.land(plainly(log)[2:])
    rows = target.lands.spark.sql(f"SELECT id, note, body, _is_deleted FROM {target.lands.table} ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, "a", "A", True), (2, "b", "B", False)]


KEYS = st.integers(1, 5)
NOTES = st.text("abc", max_size=2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), KEYS, NOTES, NOTES),
        st.tuples(st.just("update"), KEYS, NOTES, st.none() | NOTES),
        st.tuples(st.just("move"), KEYS, KEYS, NOTES),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("truncate")),
        st.tuples(st.just("snapshot")),
    ),
    min_size=4,
    max_size=25,
)


ANY_LOG = settings(
    max_examples=20,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


WAYS = st.sampled_from(["auto", "delete-append", "copy-on-write", "merge"])


@ANY_LOG
@given(STEPS, st.integers(0, 2**32), st.integers(1, 3), WAYS, st.sampled_from(["3", "3", "2"]))
def test_any_log_cut_anywhere_and_repeated_gives_the_source(
    lands: LakeTable, steps: list, seed: int, count: int, upsert: str, version: str
):
    log = ChangeLog()
    for name, *arguments in steps:
        getattr(log, name)(*arguments)
    target = Target(lands, upsert=upsert, properties={"format-version": version}, partition_by=_PARTITIONS[seed % 3])
    target.land_in_windows(partitions(log, count), random.Random(seed))
    if log.events:
        assert target.rows() == log.rows


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(ANY_LOG, max_examples=400)
@given(STEPS, st.integers(0, 2**32), st.integers(1, 3), WAYS, st.sampled_from(["3", "2"]))
def test_many_logs_give_the_source(lands: LakeTable, steps: list, seed: int, count: int, upsert: str, version: str):
    any_log = test_any_log_cut_anywhere_and_repeated_gives_the_source.hypothesis.inner_test
    any_log(lands, steps, seed, count, upsert, version)
