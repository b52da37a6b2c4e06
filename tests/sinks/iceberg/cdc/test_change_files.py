"""The log of changes: every event once, by the day on which it came."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.model.errors import InputError
from headwater.testing.change_log import ChangeLog, changes
from tests.sinks.iceberg.cdc.test_current_state import Target, plainly
from tests.sinks.iceberg.lake_table import LakeTable, orders

pytestmark = pytest.mark.spark


@pytest.fixture
def log() -> ChangeLog:
    log = ChangeLog()
    log.insert(1, "a", "A")
    log.update(1, "b")
    log.move(1, 2, "c")
    log.truncate()
    return log


def rows_of(target: Target) -> list[tuple]:
    rows = target.lands.spark.sql(
        f"SELECT offset, _op, id, _missing, _old_key FROM {target.lands.table} ORDER BY offset"
    )
    return [tuple(row) for row in rows.collect()]


def test_every_event_is_kept_with_what_it_left_out(lands: LakeTable, log: ChangeLog):
    target = Target(lands, mode="changes")
    target.land(plainly(log))
    assert rows_of(target) == [
        (0, "c", 1, None, None),
        (1, "u", 1, ["body"], None),
        (2, "d", 1, None, None),
        (3, "c", 2, ["body"], "[1]"),
        (4, "t", None, None, None),
    ]


def test_events_that_are_read_again_are_kept_once(lands: LakeTable, log: ChangeLog):
    target = Target(lands, mode="changes")
    for window in (plainly(log)[:3], plainly(log)[1:], plainly(log)):
        target.land(window)
    assert [row[0] for row in rows_of(target)] == [0, 1, 2, 3, 4]


def test_it_is_kept_by_the_day_of_arrival(lands: LakeTable, log: ChangeLog):
    target = Target(lands, mode="changes")
    target.land(plainly(log))
    described = target.lands.spark.sql(f"DESCRIBE {target.lands.table}").collect()
    assert "days(_source_time)" in [row.data_type for row in described]


@pytest.mark.parametrize("mode", ["changes", "history"])
def test_rows_that_are_not_changes_are_refused(lands: LakeTable, mode: str):
    with pytest.raises(InputError, match=f"mode {mode} needs the changes of change capture"):
        lands.land(orders([1]), mode=mode)


def test_events_that_nothing_names_are_refused(lands: LakeTable, log: ChangeLog):
    with pytest.raises(InputError, match="no column identifies an event"):
        rows = changes(plainly(log))
        Target(lands, mode="changes").land_rows(replace(rows, changes=replace(rows.changes, event_key=())))
