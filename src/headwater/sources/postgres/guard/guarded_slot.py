"""The slot of one pipeline: looked at before every window, begun, moved, and given up where settings say so."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace

from headwater.config.postgres_source import PostgresSource
from headwater.model.lsn_mark import LsnMark
from headwater.sources.postgres.guard.acting import advance, drop_slot, heartbeat, log_standby_snapshot
from headwater.sources.postgres.guard.creating import create_slot
from headwater.sources.postgres.guard.judging import Verdict, judge
from headwater.sources.postgres.guard.notes import cut_note, emit, label_note
from headwater.sources.postgres.guard.slot_state import GuardState, look
from headwater.sources.postgres.guard.timelines import with_timelines
from headwater.sources.sql.postgres_session import PostgresSession

_PLUGIN = "pgoutput"


@dataclass(frozen=True)
class Looked:
    """The slot and the log at one moment; nothing is wrong with them."""

    end: int  # how far the log is written
    now: dt.datetime  # on the server's clock
    wants_heartbeat: bool = False  # if there is nothing else to acknowledge
    warnings: tuple[str, ...] = ()


class GuardedSlot:
    """One slot, one session."""

    def __init__(self, session: PostgresSession, settings: PostgresSource) -> None:
        self._session, self._settings = session, settings
        self._heartbeat_at: dt.datetime | None = None

    def state(self, mark: LsnMark | None) -> GuardState:
        return with_timelines(look(self._session, self._settings.slot), self._settings.url, _begun(mark))

    def look(self, mark: LsnMark | None) -> Looked:
        """Changes nothing. Raises what is wrong with the slot or the server (G9)."""
        state = self.state(mark)
        verdict = self._judged(state, mark)
        if verdict.error and _begun(mark):
            raise verdict.error
        return Looked(state.server.lsn, state.server.now, verdict.heartbeat, verdict.warnings)

    def guard(self, mark: LsnMark | None) -> Looked:
        """As `look`, and does what the slot needs, up to its end where it would fill the disk."""
        state = self.state(mark)
        verdict = self._judged(state, mark)
        if verdict.give_up_slot and _begun(mark):
            drop_slot(self._session, self._settings.slot)
        if verdict.error and _begun(mark):
            raise verdict.error
        warnings = verdict.warnings
        if verdict.log_standby and (said := log_standby_snapshot(self._session)):
            warnings = (*warnings, said)
        return Looked(state.server.lsn, state.server.now, verdict.heartbeat, warnings)

    def beat(self, looked: Looked) -> None:
        """Where the log grows, and nothing in it is for us: give the slot a transaction to move to."""
        heartbeat(self._session)
        self._heartbeat_at = looked.now

    def _judged(self, state: GuardState, mark: LsnMark | None) -> Verdict:
        return judge(state, _begun(mark), self._settings, self._heartbeat_at)

    def begin(self, mark: LsnMark | None) -> LsnMark:
        """The mark at which the slot begins, which is made if it is not there. What the mark knows of tables is kept.

        A slot that is there from a first run which did not end, or that was prepared, serves as it is: tables are copied
        at a place behind its first.
        """
        state = self.state(None)
        slot = state.slot
        if slot is not None and slot.lost and (slot.plugin, slot.database) == (_PLUGIN, state.server.database):
            drop_slot(self._session, slot.name)  # nobody can read it any more
            slot = None
        if slot is None:
            place = create_slot(self._session, self._settings.slot, failover=self._settings.failover)
        else:
            error = self._judged(state, None).error
            if error:
                raise error
            place = slot.confirmed or slot.restart or 0
        tables = mark.tables if mark else {}
        known = mark or LsnMark(0)
        return replace(
            self.here(known, state),
            lsn=place,
            tables={
                stream: replace(table, stale=table.stale or "the slot began anew") for stream, table in tables.items()
            },
        )

    def here(self, mark: LsnMark | None, state: GuardState | None = None) -> LsnMark:
        """A mark at the end of the log, in the server as it is."""
        server = (state or self.state(None)).server
        known = mark or LsnMark(0)
        return replace(
            known,
            lsn=server.lsn,
            cluster=server.cluster,
            timeline=server.timeline,
            slot=self._settings.slot,
            commit=None,
            labels=(),
        )

    def kept_from(self) -> int:
        """The place from which on the slot delivers."""
        slot = self.state(None).slot
        return (slot.confirmed or 0) if slot else 0

    def acknowledge(self, lsn: int) -> None:
        """Move the slot to a place before which everything has landed (G10)."""
        advance(self._session, self._settings.slot, lsn)

    def label(self, text: str) -> int:
        return emit(self._session, label_note(text))

    def ask_for_cut(self, lsn: int) -> None:
        """Let a window end right before that place."""
        emit(self._session, cut_note(lsn))


def _begun(mark: LsnMark | None) -> LsnMark | None:
    """A mark that was rewound to a snapshot expects nothing of the slot."""
    return mark if mark is not None and mark.slot else None
