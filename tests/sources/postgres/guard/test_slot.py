"""What can happen to a slot on a real server, and what the guardian makes of it (hazards: PostgreSQL slots)."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from headwater.model.errors import InputError, SlotOverBudget, SourceChanged, SourceUnreachable
from headwater.model.position.lsn import lsn_text
from headwater.model.secret import Secret
from headwater.pg.connection import PostgresSession
from headwater.services.stack.postgres import Postgres
from headwater.services.stack.service import Service, running
from headwater.sources.postgres.guard.checks import Verdict
from headwater.sources.postgres.guard.slot import advance, create_slot, drop_slot, heartbeat, log_standby_snapshot
from headwater.sources.postgres.guard.state import read_state
from tests.sources.postgres.guard.conftest import OPTIONS
from tests.sources.postgres.guard.guarded_slot import PEEK, Guarded
from tests.support.wait import wait_until

pytestmark = pytest.mark.servers


def refusal(guarded: Guarded, mark) -> str:
    """The message of the change of source that the guardian sees."""
    error = guarded.judge(mark).error
    assert isinstance(error, SourceChanged), error
    assert "headwater rewind NAME --to snapshot" in error.hint
    return error.message


def test_a_slot_that_is_read_and_acknowledged_stays_fine(guarded: Guarded):
    mark = guarded.create()
    assert guarded.judge(mark) == Verdict()
    guarded.insert()
    end = guarded.peeked_to()
    assert advance(guarded.session, guarded.slot, end) == end
    assert guarded.judge(replace(mark, lsn=end)) == Verdict()
    assert guarded.read_state(mark).slot.confirmed == end
    assert guarded.peeked_to() == 0


def test_a_slot_lost_by_max_slot_wal_keep_size_is_told_and_no_retry_mends_it(guarded: Guarded):
    mark = guarded.create()
    guarded.grow(6)
    guarded.run("CHECKPOINT")
    message = refusal(guarded, mark)
    assert f"slot {guarded.slot} is lost" in message
    assert lsn_text(mark.lsn) in message
    with pytest.raises(SourceChanged):
        advance(guarded.session, guarded.slot, mark.lsn + 1_000_000)


def test_a_slot_is_warned_of_before_it_is_lost(guarded: Guarded):
    mark = guarded.create()
    guarded.grow(2)
    assert guarded.judge(mark).warnings == ()
    guarded.grow(2)
    assert "is lost after" in guarded.judge(mark).warnings[0]
    guarded.grow(2)
    assert "is about to be lost" in guarded.judge(mark).warnings[0]


def test_a_slot_that_was_dropped_is_told(guarded: Guarded):
    mark = guarded.create()
    assert drop_slot(guarded.session, guarded.slot)
    assert not drop_slot(guarded.session, guarded.slot)
    assert "is gone" in refusal(guarded, mark)
    with pytest.raises(SourceChanged, match="is gone"):
        advance(guarded.session, guarded.slot, mark.lsn)


def test_a_recreated_slot_does_not_silently_skip(guarded: Guarded):
    mark = guarded.create()
    guarded.insert()
    drop_slot(guarded.session, guarded.slot)
    guarded.create()
    assert "dropped and created again" in refusal(guarded, mark)


def test_a_slot_that_somebody_else_advanced_is_told_with_the_gap(guarded: Guarded):
    mark = guarded.create()
    guarded.insert()
    guarded.session.connection.execute(PEEK.replace("peek", "get"), [guarded.slot])
    message = refusal(guarded, mark)
    assert f"the mark at {lsn_text(mark.lsn)}" in message
    assert "Another process reads the slot" in message


def test_a_slot_of_another_database_or_plugin_cannot_be_used(guarded: Guarded, server: Service):
    guarded.create()
    elsewhere = Guarded(server.address["url"], guarded.slot)
    error = elsewhere.judge(None).error
    assert isinstance(error, InputError)
    assert "belongs to database" in error.message
    elsewhere.session.close()
    drop_slot(guarded.session, guarded.slot)
    guarded.run(f"SELECT pg_create_physical_replication_slot('{guarded.slot}')")
    error = guarded.judge(None).error
    assert isinstance(error, InputError)
    assert "physical" in error.message


def test_a_slot_that_is_being_read_is_tried_again_later(guarded: Guarded):
    mark = guarded.create()
    other = psycopg.connect(guarded.url, autocommit=True, replication="database")
    try:
        other.pgconn.send_query(
            f"START_REPLICATION SLOT {guarded.slot} LOGICAL 0/0 (proto_version '1', publication_names 'pub')".encode()
        )
        wait_until(lambda: guarded.read_state(mark).slot.active_pid is not None)
        error = guarded.judge(mark).error
        assert isinstance(error, SourceUnreachable)
        assert str(guarded.read_state(mark).slot.active_pid) in error.message
        with pytest.raises(SourceUnreachable, match="another session"):
            advance(guarded.session, guarded.slot, mark.lsn + 1)
    finally:
        other.close()
    wait_until(lambda: guarded.judge(mark).error is None)


def test_an_idle_slot_that_the_server_gave_up_is_told(guarded: Guarded):
    """PostgreSQL 18: idle_replication_slot_timeout."""
    mark = guarded.create()
    guarded.run("ALTER SYSTEM SET idle_replication_slot_timeout = '1s'")
    guarded.run("SELECT pg_reload_conf()")

    def lost() -> bool:
        guarded.run("CHECKPOINT")
        return guarded.read_state(mark).slot.lost

    try:
        wait_until(lost)
    finally:
        guarded.run("ALTER SYSTEM RESET idle_replication_slot_timeout")
        guarded.run("SELECT pg_reload_conf()")
    assert "idle_replication_slot_timeout" in refusal(guarded, mark)


def test_a_server_restored_from_an_older_copy_is_told(tmp_path: Path):
    with running(Postgres(OPTIONS), tmp_path / "server") as service:
        guarded = Guarded.build(service.address["url"])
        mark = guarded.create()
        ((data,),) = guarded.run("SHOW data_directory")
        guarded.session.close()
        service.stop()
        subprocess.run(["cp", "-a", data, f"{data}.copy"], check=True)
        service.start()
        for _ in range(20):
            guarded.insert()
        guarded.grow(1)
        guarded.insert()
        later = replace(mark, lsn=guarded.peeked_to())
        advance(guarded.session, guarded.slot, later.lsn)
        assert guarded.judge(later).error is None
        guarded.session.close()
        service.stop()
        subprocess.run(["rm", "-rf", data], check=True)
        subprocess.run(["mv", f"{data}.copy", data], check=True)
        service.start()
        assert "restored from an older copy" in refusal(guarded, later)
        assert guarded.judge(mark).error is None, "the older mark is in this log"
        guarded.session.close()
    service.remove()


def test_another_cluster_and_another_database_are_told(guarded: Guarded, database: str):
    mark = guarded.create()
    other = Guarded(database, guarded.slot)
    assert "another server" in refusal(other, mark)
    other.session.close()
    elsewhere = Guarded(f"{guarded.url.rpartition('/')[0]}/postgres", guarded.slot)
    assert "another database of the server" in refusal(elsewhere, mark)
    elsewhere.session.close()


def test_the_budget_stops_the_pipeline_or_gives_the_slot_up(guarded: Guarded):
    mark = guarded.create()
    guarded.grow(2)
    assert guarded.judge(mark, budget="1GB").error is None
    assert any("keep" in said for said in guarded.judge(mark, budget="50MB").warnings)
    stopped = guarded.judge(mark, budget="20MB")
    assert isinstance(stopped.error, SlotOverBudget)
    assert not stopped.drops_slot
    assert guarded.judge(mark, budget="20MB", at_budget="drop_slot").drops_slot


def test_an_idle_slot_moves_on_by_a_heartbeat(guarded: Guarded):
    """Without one the log is kept for ever: nothing in it is for this slot, so there is no commit to acknowledge."""
    mark = guarded.create()
    guarded.grow(2)
    assert guarded.peeked_to() == 0
    verdict = guarded.judge(mark)
    assert verdict.heartbeat
    before = guarded.read_state(mark).retained_bytes
    place = heartbeat(guarded.session)
    end = guarded.peeked_to()
    assert end > place
    advance(guarded.session, guarded.slot, end)
    log_standby_snapshot(guarded.session)
    heartbeat(guarded.session)
    advance(guarded.session, guarded.slot, guarded.peeked_to())
    state = guarded.read_state(mark)
    assert state.retained_bytes < before / 4
    assert not guarded.judge(replace(mark, lsn=state.slot.confirmed)).heartbeat


def test_an_acknowledgement_never_goes_back_and_never_further_than_asked(guarded: Guarded):
    guarded.create()
    guarded.insert()
    first = guarded.peeked_to()
    guarded.insert()
    second = guarded.peeked_to()
    assert advance(guarded.session, guarded.slot, first) == first
    assert guarded.peeked_to() == second
    assert advance(guarded.session, guarded.slot, second) == second
    assert advance(guarded.session, guarded.slot, first) == second
    assert advance(guarded.session, guarded.slot, second) == second


def test_the_oldest_transaction_of_any_database_is_seen(guarded: Guarded, server: Service):
    mark = guarded.create()
    with psycopg.connect(server.address["url"], application_name="careless") as other:
        other.execute("SELECT pg_current_xact_id()")
        oldest = guarded.read_state(mark).server.oldest
        assert (oldest.pid, oldest.database, oldest.application) == (other.info.backend_pid, "postgres", "careless")
        (said,) = guarded.judge(mark, oldest_transaction="0s").warnings
        assert f"pg_terminate_backend({oldest.pid})" in said
        other.rollback()
        assert guarded.read_state(mark).server.oldest is None
        other.execute("SELECT pg_current_xact_id()")
        other.execute("PREPARE TRANSACTION 'forgotten'")
        assert guarded.read_state(mark).server.oldest.prepared == "forgotten"
        other.rollback()
        other.autocommit = True
        other.execute("ROLLBACK PREPARED 'forgotten'")


def test_an_ordinary_replication_role_can_ask(guarded: Guarded):
    mark = guarded.create()
    role = f"r_{guarded.slot}"
    guarded.run(f"CREATE ROLE {role} LOGIN REPLICATION")
    asking = PostgresSession(Secret(guarded.url.replace("postgres@", f"{role}@")))
    state = read_state(asking, guarded.slot)
    assert state.slot.confirmed == mark.lsn
    assert not state.server.sees_sessions
    assert state.server.timeline == 1
    assert "GRANT EXECUTE" in log_standby_snapshot(asking)
    asking.close()
    guarded.run(f"DROP ROLE {role}")


def test_why_a_slot_cannot_be_made_is_said(guarded: Guarded):
    guarded.create()
    with pytest.raises(InputError, match="already exists"):
        create_slot(guarded.session, guarded.slot)
    role = f"r_{guarded.slot}"
    guarded.run(f"CREATE ROLE {role} LOGIN")
    plain = PostgresSession(Secret(guarded.url.replace("postgres@", f"{role}@")))
    with pytest.raises(InputError, match="may not create a slot"):
        create_slot(plain, "another")
    plain.close()
    guarded.run(f"DROP ROLE {role}")
    events = []
    with pytest.raises(SourceUnreachable, match="replication slots are in use"):
        for number in range(100):
            create_slot(guarded.session, f"many_{number}")
            events.append(f"many_{number}")
    for name in events:
        drop_slot(guarded.session, name)


def test_a_slot_that_waits_for_an_open_transaction_gives_up_and_leaves_nothing(guarded: Guarded):
    warned: list[str] = []
    with psycopg.connect(guarded.url) as other:
        other.execute("SELECT pg_current_xact_id()")
        with pytest.raises(SourceUnreachable, match="did not end"):
            create_slot(guarded.session, guarded.slot, wait_seconds=1, warn=warned.append)
        assert f"pid {other.info.backend_pid}" in warned[0]
    assert guarded.read_state(None).slot is None
    guarded.create()


def test_a_server_that_does_not_log_enough_is_told_what_to_set(tmp_path: Path):
    with running(Postgres({**OPTIONS, "wal_level": "replica"}), tmp_path / "server") as service:
        session = PostgresSession(Secret(service.address["url"]))
        with pytest.raises(InputError) as raised:
            create_slot(session, "none")
        assert "wal_level = logical" in raised.value.hint
        session.close()
    service.remove()
