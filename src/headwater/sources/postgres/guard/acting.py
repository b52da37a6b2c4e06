"""What is done to the slot. Only `advance` tells it that something has landed."""

from __future__ import annotations

import psycopg

from headwater.model.errors import SourceChanged, SourceUnreachable
from headwater.model.lsn import lsn_number, lsn_text
from headwater.sources.postgres.guard.notes import emit, heartbeat_note
from headwater.sources.postgres.guard.sameness import COPY_AGAIN
from headwater.sources.sql.postgres_session import PostgresSession, translated

_NOT_THERE = "42704"
_IN_USE = "55006"
_NOT_READY = "55000"  # the slot is past the place already, or it is lost
_NOT_ALLOWED = "42501"


def heartbeat(session: PostgresSession) -> int:
    """Write an empty transaction of ours into the log, and give its place.

    The slot moves only to the end of a commit that it delivers. Where all writing is in other tables or databases there
    is none, and the server keeps the log for ever; this message is one (see `notes.py` for why it is transactional).
    """
    return emit(session, heartbeat_note())


def advance(session: PostgresSession, slot: str, lsn: int) -> int:
    """Tell the slot that everything before `lsn` has landed (G10); gives where it stands now, never beyond that by us.

    A slot that is past it already stays: an acknowledgement may be repeated. Never ask for `pg_current_wal_lsn()`: what
    is being committed at that moment would be skipped.
    """
    with translated(session.address):
        try:
            found = session.connection.execute(
                "SELECT end_lsn::text FROM pg_replication_slot_advance(%s, %s::pg_lsn)", [slot, lsn_text(lsn)]
            ).fetchone()
        except psycopg.Error as error:
            if error.sqlstate == _NOT_READY:
                return _past_already(session, slot, lsn, error)
            raise (_refused(session, slot, error) or error) from None
    return lsn_number(found[0]) if found else lsn


def drop_slot(session: PostgresSession, slot: str) -> bool:
    """Let the server remove the log. False: there was no such slot."""
    with translated(session.address):
        try:
            session.connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        except psycopg.Error as error:
            if error.sqlstate == _NOT_THERE:
                return False
            raise (_refused(session, slot, error) or error) from None
    return True


def log_standby_snapshot(session: PostgresSession) -> str:
    """Let the server (16 or newer) write down which transactions run, so that restart_lsn can follow at the next peek.

    Gives a warning where the role may not: then the server does it by itself, about every 15 seconds.
    """
    with translated(session.address):
        try:
            session.connection.execute("SELECT pg_log_standby_snapshot()")
        except psycopg.Error as error:
            if error.sqlstate != _NOT_ALLOWED:
                raise
            return (
                "the role may not call pg_log_standby_snapshot(), so that log which has landed is read again for longer; "
                "GRANT EXECUTE ON FUNCTION pg_log_standby_snapshot() TO it"
            )
    return ""


def _past_already(session: PostgresSession, slot: str, lsn: int, error: psycopg.Error) -> int:
    asked = (
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s AND restart_lsn IS NOT NULL"
    )
    found = session.connection.execute(asked, [slot]).fetchone()
    if found and lsn_number(found[0]) >= lsn:
        return lsn_number(found[0])
    raise SourceChanged(
        f"slot {slot} cannot be moved to {lsn_text(lsn)}: {' '.join(str(error).split())}", hint=COPY_AGAIN
    ) from None


def _refused(session: PostgresSession, slot: str, error: psycopg.Error) -> SourceChanged | SourceUnreachable | None:
    if error.sqlstate == _NOT_THERE:
        return SourceChanged(f"slot {slot} is gone", hint=COPY_AGAIN)
    if error.sqlstate == _IN_USE:
        return SourceUnreachable(
            f"{session.address}: slot {slot} is being read by another session", hint="one slot serves one pipeline"
        )
    return None
