"""What each state of a slot means: decided without a server."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from headwater.config.settings import SecretText
from headwater.config.sources.postgres import PostgresSourceSettings, SlotGuardSettings
from headwater.model.errors import InputError, SlotOverBudget, SourceChanged, SourceUnreachable
from headwater.model.position.marks import LsnMark
from headwater.sources.postgres.guard.checks import Verdict, judge
from headwater.sources.postgres.guard.state import GuardState, OldestTransaction, ServerState, SlotState

NOW = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC)
MB, GB = 1024 * 1024, 10**9
AT = 100 * GB
MARK = LsnMark(AT, cluster="77/5", timeline=2, slot="shop")
SERVER = ServerState(NOW, "77/5", "shop", 180000, standby=False, lsn=AT, timeline=2)
SLOT = SlotState("shop", "pgoutput", "shop", restart=AT, confirmed=AT, wal_status="reserved")


UNCHANGED: dict = {}


def settings(**guard: object) -> PostgresSourceSettings:
    return PostgresSourceSettings(
        url=SecretText("postgresql://x"), tables=["t"], slot="shop", guard=SlotGuardSettings.model_validate(guard)
    )


def judged(
    *, server: dict = UNCHANGED, slot: dict | None = UNCHANGED, mark: LsnMark | None = MARK, heartbeat_at=None, **guard
) -> Verdict:
    state = GuardState(replace(SERVER, **server), None if slot is None else replace(SLOT, **slot))
    return judge(state, mark, settings(**guard), heartbeat_at)


def test_a_slot_that_stands_at_the_mark_is_fine():
    assert judged() == Verdict()


def test_before_the_first_run_there_is_no_slot_and_that_is_fine():
    assert judged(mark=None, slot=None) == Verdict()


@pytest.mark.parametrize(
    ("server", "slot", "says"),
    [
        ({}, None, "slot shop is gone"),
        ({"cluster": "78/5"}, {}, "another server (system identifier 78, the mark is of 77)"),
        ({"cluster": "77/6"}, {}, "another database of the server (oid 6, the mark is of 5)"),
        ({"cluster": "78/5"}, None, "another server"),
        ({"lsn": AT - 1}, {"confirmed": AT - 9, "restart": AT - 9}, "it was restored from an older copy"),
        ({"timeline": 1}, {}, "a former primary, or an older copy"),
        ({"timeline": 3, "timeline_ends": {1: 5, 2: AT - 1}}, {}, "was left at"),
        ({"timeline": 3, "timeline_ends": {1: 5}}, {}, "is not in its history"),
        ({}, {"confirmed": AT + 5 * MB}, "5.2 MB between them can no longer be read"),
        ({"lsn": AT + 3 * GB}, {"wal_status": "lost", "restart": None}, "3.0 GB between them can no longer be read"),
        ({}, {"invalidated": "idle_timeout"}, "idle_replication_slot_timeout"),
        ({}, {"invalidated": "wal_removed"}, "max_slot_wal_keep_size"),
        ({}, {"conflicting": True}, "is lost"),
    ],
)
def test_a_log_that_is_not_the_marks_is_told_with_the_way_out(server, slot, says):
    """G9"""
    error = judged(server=server, slot=slot).error
    assert isinstance(error, SourceChanged), error
    assert says in error.message
    assert "headwater rewind NAME --to snapshot" in error.hint


def test_settings_that_name_another_slot_are_told_so():
    error = judged(mark=replace(MARK, slot="older")).error
    assert isinstance(error, SourceChanged)
    assert "slot: older" in error.hint


def test_a_failover_to_a_replica_that_had_everything_is_gone_along_with():
    assert judged(server={"timeline": 3, "timeline_ends": {2: AT}}, slot={"confirmed": AT - MB}) == Verdict()


def test_a_mark_that_knows_no_cluster_and_no_timeline_is_compared_by_place_alone():
    assert judged(mark=LsnMark(AT), server={"cluster": "9/9", "timeline": 7}).error is None


@pytest.mark.parametrize(
    ("slot", "says"),
    [
        ({"plugin": None, "database": None}, "physical"),
        ({"plugin": "test_decoding"}, "decodes with test_decoding"),
        ({"database": "other"}, "belongs to database other"),
        ({"two_phase": True}, "two_phase"),
        ({"temporary": True}, "temporary"),
    ],
)
@pytest.mark.parametrize("mark", [None, MARK])
def test_a_slot_that_cannot_be_used_is_an_input_error(slot, says, mark):
    error = judged(slot=slot, mark=mark).error
    assert isinstance(error, InputError)
    assert says in error.message


def test_a_standbys_copy_of_the_primarys_slot_cannot_be_read_there():
    assert isinstance(judged(server={"standby": True}, slot={"synced": True}).error, InputError)
    assert judged(slot={"synced": True}).error is None, "after a promotion it can"


def test_a_standby_that_replays_again_is_waited_for():
    error = judged(server={"standby": True, "lsn": AT - 1}, slot={"confirmed": AT - 9}).error
    assert isinstance(error, SourceUnreachable)


def test_a_lost_slot_without_a_mark_is_to_be_dropped():
    error = judged(slot={"wal_status": "lost"}, mark=None).error
    assert isinstance(error, SourceChanged)
    assert "pg_drop_replication_slot('shop')" in error.hint


def test_a_slot_that_somebody_reads_now_is_tried_again_later():
    error = judged(slot={"active_pid": 42, "active_as": "debezium"}).error
    assert isinstance(error, SourceUnreachable)
    assert "pid 42, application 'debezium'" in error.message


def test_from_half_of_the_budget_on_there_are_warnings():
    def verdict(wal_bytes: int, **guard: object) -> Verdict:
        return judged(server={"lsn": AT + wal_bytes}, budget="10GB", heartbeat=None, **guard)

    assert verdict(5 * GB - 1).warnings == ()
    (said,) = verdict(5 * GB).warnings
    assert "keep 5.0 GB of WAL; the pipeline stops at 10.0 GB" in said
    over = verdict(10 * GB)
    assert isinstance(over.error, SlotOverBudget)
    assert not over.drops_slot
    assert "raise guard.budget" in over.error.hint
    assert "the slot is dropped at 10.0 GB" in verdict(6 * GB, at_budget="drop_slot").warnings[0]
    abandoned = verdict(10 * GB, at_budget="drop_slot")
    assert abandoned.drops_slot
    assert "headwater rewind NAME --to snapshot" in abandoned.error.hint


def test_a_slot_that_is_nearly_lost_is_warned_of():
    at = {"lsn": AT + 300 * MB}
    assert judged(server=at, slot={"safe_bytes": 100 * MB}, heartbeat=None).warnings == ()
    (said,) = judged(server=at, slot={"safe_bytes": 99 * MB}, heartbeat=None).warnings
    assert "lost after 103.8 MB more" in said
    (said,) = judged(server=at, slot={"wal_status": "unreserved", "safe_bytes": -5}, heartbeat=None).warnings
    assert "about to be lost" in said


def test_an_old_transaction_is_named_with_what_ends_it():
    def warned(oldest: OldestTransaction) -> tuple[str, ...]:
        return judged(server={"oldest": oldest}, oldest_transaction="1h").warnings

    assert warned(OldestTransaction(NOW - dt.timedelta(minutes=59), "shop", 42)) == ()
    (said,) = warned(OldestTransaction(NOW - dt.timedelta(hours=3), "other", 42, application="psql"))
    assert "pid 42) in database other, application 'psql' is open since 2026-03-02 09:00:00 UTC (3.0 h)" in said
    assert "pg_terminate_backend(42)" in said
    (said,) = warned(OldestTransaction(NOW - dt.timedelta(hours=3), "shop", prepared="x"))
    assert "ROLLBACK PREPARED 'x'" in said


def test_an_old_catalog_horizon_is_warned_of():
    (said,) = judged(slot={"catalog_xmin_age": 123_000_000}).warnings
    assert "123,000,000 transactions" in said


def test_the_server_is_asked_for_a_snapshot_when_much_is_read_again():
    gap = {"confirmed": AT, "restart": AT - 64 * MB - 1}
    assert judged(slot=gap).log_standby
    assert not judged(slot={**gap, "restart": AT - 64 * MB}).log_standby
    assert not judged(slot=gap, server={"version": 150000}).log_standby
    assert not judged(slot=gap, server={"standby": True}).log_standby


def test_a_heartbeat_comes_when_the_log_has_grown_and_the_time_has_passed():
    grown = {"lsn": AT + 16 * MB + 1}
    assert judged(server=grown).heartbeat
    assert not judged(server={"lsn": AT + 16 * MB}).heartbeat
    assert not judged(server=grown, heartbeat_at=NOW - dt.timedelta(seconds=59)).heartbeat
    assert judged(server=grown, heartbeat_at=NOW - dt.timedelta(seconds=60)).heartbeat
    assert not judged(server=grown, heartbeat=None).heartbeat
    assert not judged(server={**grown, "standby": True}).heartbeat
