"""Slots on standbys, failover to them, and marks on branches of the log that died."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from headwater.model.errors import InputError, SourceChanged
from headwater.model.position.lsn import lsn_number
from headwater.model.position.marks import LsnMark
from headwater.model.secret import Secret
from headwater.pg.connection import PostgresSession
from headwater.services.stack.postgres import Postgres
from headwater.services.stack.service import Launch, Say, Service, as_user, running
from headwater.sources.postgres.guard.checks import Verdict
from headwater.sources.postgres.guard.slot import advance, create_slot
from headwater.sources.postgres.guard.state import parse_history, read_state
from headwater.sources.postgres.guard.wal_messages import emit, label_note
from tests.sources.postgres.guard.conftest import OPTIONS
from tests.sources.postgres.guard.guarded_slot import Guarded
from tests.support.wait import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.timeout(180)]


@dataclass(frozen=True)
class Standby(Postgres):
    """A server that begins as a copy of another, and follows it."""

    primary: str = ""

    def prepare(self, folder: Path, ports: Mapping[str, int], say: Say) -> Launch:
        launch = super().prepare(folder, ports, say)
        binaries, data = Path(launch.command[0]).parent, Path(launch.command[2])
        if not (data / "standby.signal").exists() and not (data / "followed").exists():
            subprocess.run(["rm", "-rf", data], check=True)
            subprocess.run(
                [binaries / "pg_basebackup", "-D", data, "-d", self.primary, "-R", "-X", "stream", "-c", "fast"],
                check=True, cwd="/", env={**os.environ, **launch.environment}, **as_user(launch.user),
            )  # fmt: skip
            (data / "followed").touch()
        return launch


@dataclass(frozen=True)
class Pair:
    """A primary with a slot, its standby, and the same pipeline on both."""

    primary: Service
    standby: Service
    ours: Guarded
    there: Guarded

    def replayed(self) -> None:
        """Return when the standby has everything."""
        ((end,),) = self.ours.run("SELECT pg_current_wal_lsn()::text")
        wait_until(lambda: read_state(self.there.session, self.there.slot).server.lsn >= lsn_number(end))

    def promote(self) -> None:
        self.there.run("SELECT pg_promote(true)")
        wait_until(lambda: not read_state(self.there.session, self.there.slot).server.standby)


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    with running(Postgres(OPTIONS), folder / "primary") as primary:
        ours = Guarded.build(primary.address["url"])
        ours.run("SELECT pg_create_physical_replication_slot('follows')")
        follows = {
            "hot_standby_feedback": "on",
            "sync_replication_slots": "on",
            "primary_slot_name": "follows",
            "primary_conninfo": ours.url,
        }
        recipe = Standby({**OPTIONS, **follows}, primary=primary.address["url"])
        with running(recipe, folder / "standby") as standby:
            there = Guarded(f"{standby.address['url'].rpartition('/')[0]}/{ours.slot}", ours.slot)
            yield Pair(primary, standby, ours, there)
            there.session.close()
        ours.session.close()
    for service in (primary, standby):
        service.remove()


def test_a_slot_on_a_standby_and_what_becomes_of_marks_when_it_is_promoted(tmp_path: Path):
    with pair(tmp_path) as both:
        there, ours = both.there, both.ours
        with pytest.raises(InputError, match="cannot itself be carried over"):
            create_slot(there.session, there.slot, failover=True)

        warned: list[str] = []
        events: list[int] = []
        creating = PostgresSession(Secret(there.url))
        waiting = threading.Thread(
            target=lambda: events.append(create_slot(creating, there.slot, warn=warned.append, wait_seconds=60))
        )
        waiting.start()
        wait_until(lambda: bool(warned))
        assert "pg_log_standby_snapshot() there" in warned[0]
        while waiting.is_alive():
            ours.run("SELECT pg_log_standby_snapshot()")
            waiting.join(0.2)
        creating.close()

        server = read_state(there.session, there.slot).server
        assert (server.standby, server.timeline) == (True, 1)
        assert server.cluster == read_state(ours.session, ours.slot).server.cluster
        ours.insert()
        both.replayed()
        begun = replace(ours_mark(there), lsn=there.peeked_to())
        advance(there.session, there.slot, begun.lsn)
        assert there.judge(begun) == Verdict()
        with pytest.raises(InputError, match="cannot write WAL messages"):
            emit(there.session, label_note("a"))

        both.replayed()
        both.primary.stop()
        both.promote()
        there.insert()
        there.grow(1)
        state = there.read_state(begun)
        assert (state.server.timeline, state.server.standby) == (2, False)
        assert set(state.server.timeline_ends) == {1}
        assert there.judge(begun).error is None, "everything that had landed is in the new history"
        # As if the former primary had gone on, and somebody had read it there.
        beyond = replace(begun, lsn=state.server.timeline_ends[1] + 1)
        error = there.judge(beyond).error
        assert isinstance(error, SourceChanged)
        assert "timeline 1, on which the mark was taken" in error.message
        later = replace(begun, timeline=2, lsn=state.server.lsn)
        both.primary.start()
        ours.session.ping()
        error = ours.judge(later).error
        assert isinstance(error, SourceChanged)
        assert "a former primary" in error.message


def ours_mark(guarded: Guarded) -> LsnMark:
    server = read_state(guarded.session, guarded.slot).server
    return LsnMark(0, server.cluster, server.timeline, guarded.slot)


def test_a_failover_slot_lives_on_at_the_promoted_standby(tmp_path: Path):
    """PostgreSQL 17 and newer."""
    with pair(tmp_path) as both:
        there, ours = both.there, both.ours
        create_slot(ours.session, ours.slot, failover=True)
        mark = ours_mark(ours)
        assert read_state(ours.session, ours.slot).slot.failover

        def synchronised() -> bool:
            nonlocal mark
            ours.run("SELECT pg_log_standby_snapshot()")
            ours.insert()
            mark = replace(mark, lsn=advance(ours.session, ours.slot, ours.peeked_to()))
            both.replayed()
            slot = read_state(there.session, there.slot).slot
            return slot is not None and slot.synced and not slot.temporary

        wait_until(synchronised, 60)
        error = there.judge(mark).error
        assert isinstance(error, InputError)
        assert "keeps a copy" in error.message
        ours.insert()
        both.replayed()
        both.primary.stop()
        both.promote()
        assert there.judge(mark).error is None
        assert there.peeked_to() > mark.lsn, "the change that had not landed is still there"


def test_the_history_of_timelines_is_read():
    text = "1\t0/3000148\tno recovery target specified\n\n# restored\n2\t1/A0\tbefore 2026-03-02\n"
    assert parse_history(text) == {1: 0x3000148, 2: 0x1_0000_00A0}
