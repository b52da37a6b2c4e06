"""The slot of one pipeline: checked before every window, created, moved, dropped where settings say so, and reported. Only `advance` acknowledges."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace

import psycopg

from headwater.config.sources.postgres import PostgresSourceSettings
from headwater.model.errors import InputError
from headwater.model.position.lsn import lsn_number, lsn_text
from headwater.model.position.marks import LsnMark
from headwater.model.position.stream_state import TableState
from headwater.pg.connection import PostgresSession, translated
from headwater.sources.postgres.guard.checks import Verdict, judge
from headwater.sources.postgres.guard.state import GuardState, read_state, with_timelines
from headwater.sources.postgres.guard.wal_messages import cut_note, emit, heartbeat_note, label_note

_PLUGIN = "pgoutput"


@dataclass(frozen=True)
class SlotCheck:
    """The state of a healthy slot and of the WAL at one moment."""

    end: int  # how far the WAL is written
    now: dt.datetime  # on the server's clock
    wants_heartbeat: bool = False  # if there is nothing else to acknowledge
    warnings: tuple[str, ...] = ()


class GuardedSlot:
    """One slot, one session."""

    def __init__(self, session: PostgresSession, settings: PostgresSourceSettings) -> None:
        self._session, self._settings = session, settings
        self._heartbeat_at: dt.datetime | None = None

    def state(self, mark: LsnMark | None) -> GuardState:
        return with_timelines(read_state(self._session, self._settings.slot), self._settings.url, _slot_mark(mark))

    def check(self, mark: LsnMark | None) -> SlotCheck:
        """Read only. Raises the guard's error (G9)."""
        state = self.state(mark)
        verdict = self._verdict(state, mark)
        if verdict.error and _slot_mark(mark):
            raise verdict.error
        return SlotCheck(state.server.lsn, state.server.now, verdict.heartbeat, verdict.warnings)

    def guard(self, mark: LsnMark | None) -> SlotCheck:
        """As `check`, and acts: drops a slot that would fill the disk, if settings say so."""
        state = self.state(mark)
        verdict = self._verdict(state, mark)
        if verdict.drops_slot and _slot_mark(mark):
            drop_slot(self._session, self._settings.slot)
        if verdict.error and _slot_mark(mark):
            raise verdict.error
        warnings = verdict.warnings
        if verdict.log_standby and (warning := log_standby_snapshot(self._session)):
            warnings = (*warnings, warning)
        return SlotCheck(state.server.lsn, state.server.now, verdict.heartbeat, warnings)

    def send_heartbeat(self, check: SlotCheck) -> None:
        """Write a transaction that the slot can advance to: the WAL grows and holds nothing for us."""
        heartbeat(self._session)
        self._heartbeat_at = check.now

    def _verdict(self, state: GuardState, mark: LsnMark | None) -> Verdict:
        return judge(state, _slot_mark(mark), self._settings, self._heartbeat_at)

    def begin(self, mark: LsnMark | None) -> LsnMark:
        """The mark at which the slot begins; creates the slot if needed. Keeps the mark's tables.

        An existing slot, of an unfinished first run or of `postgres prepare`, serves as it is: the copies come after its
        first LSN.
        """
        state = self.state(None)
        slot = state.slot
        if slot is not None and slot.lost and (slot.plugin, slot.database) == (_PLUGIN, state.server.database):
            drop_slot(self._session, slot.name)  # it can no longer be read
            slot = None
        if slot is None:
            lsn = create_slot(self._session, self._settings.slot, failover=self._settings.failover)
        else:
            error = self._verdict(state, None).error
            if error:
                raise error
            lsn = slot.confirmed or slot.restart or 0
        tables = mark.streams if mark else {}
        known = mark or LsnMark(0)
        return replace(
            self.here(known, state),
            lsn=lsn,
            streams={
                stream: replace(table, stale=table.stale or "the slot was created again")
                for stream, table in tables.items()
            },
        )

    def here(self, mark: LsnMark | None, state: GuardState | None = None) -> LsnMark:
        """A mark at the end of the WAL, on the server as it is."""
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

    def oldest_lsn(self) -> int:
        """The LSN from which on the slot delivers."""
        slot = self.state(None).slot
        return (slot.confirmed or 0) if slot else 0

    def acknowledge(self, lsn: int) -> None:
        """Move the slot to an LSN before which everything has landed (G10)."""
        advance(self._session, self._settings.slot, lsn)

    def label(self, text: str) -> int:
        return emit(self._session, label_note(text))

    def ask_for_cut(self, lsn: int) -> None:
        """Ask for a window that ends right before that LSN."""
        emit(self._session, cut_note(lsn))


def _slot_mark(mark: LsnMark | None) -> LsnMark | None:
    """The mark, if it relies on the slot; one that was rewound to a snapshot does not."""
    return mark if mark is not None and mark.slot else None


_FAILOVER_VERSION = 170_000
_STANDBY_VERSION = 160_000
_WAIT_SECONDS = 600
_ON_STANDBY = (
    "a slot on a standby waits until the primary notes which transactions run: it does so by itself at checkpoints and "
    "while it is written to, or at once by SELECT pg_log_standby_snapshot() there"
)
_OLDEST = """
SELECT pid, xact_start::text FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1"""


def create_slot(
    session: PostgresSession,
    name: str,
    *,
    failover: bool = False,
    wait_seconds: float = _WAIT_SECONDS,
    warn: Callable[[str], None] = lambda _: None,
) -> int:
    """Create a permanent slot in this database. Returns the LSN from which on it delivers every commit.

    Waits for the transactions that are open now; `warn` gets a message that names one. Fails after `wait_seconds`, and
    leaves no slot behind.
    """
    version, connection = session.server_version, session.connection
    with translated(session.address, "create slot", slot=name, seconds=wait_seconds):
        recovery = connection.execute("SELECT pg_is_in_recovery()").fetchone()
        standby = bool(recovery and recovery[0])
        _check_version(session, version, failover=failover, standby=standby)
        if standby:
            warn(_ON_STANDBY)
        elif oldest := connection.execute(_OLDEST).fetchone():
            warn(f"the slot waits for transactions that are open now: pid {oldest[0]}, since {oldest[1] or '?'}")
        option = ", failover => true" if failover else ""
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = {int(wait_seconds * 1000)}")
            row = connection.execute(
                f"SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput'{option})",  # noqa: S608
                [name],
            ).fetchone()
    return lsn_number(row[0]) if row else 0


def _check_version(session: PostgresSession, version: int, *, failover: bool, standby: bool) -> None:
    if failover and version < _FAILOVER_VERSION:
        raise InputError(
            f"{session.address}: failover: true needs PostgreSQL 17, and this is {version // 10_000}",
            hint="write failover: false; after a failover the tables are then copied again",
        )
    if failover and standby:
        raise InputError(
            f"{session.address}: a slot on a standby cannot itself be carried over to standbys",
            hint="write failover: false, or let url name the primary",
        )
    if standby and version < _STANDBY_VERSION:
        raise InputError(
            f"{session.address}: this server is a standby, and slots on standbys need PostgreSQL 16",
            hint="let url name the primary",
        )


_CONFIRMED = (
    "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s AND restart_lsn IS NOT NULL"
)


def heartbeat(session: PostgresSession) -> int:
    """Write an empty transaction into the WAL. Returns its LSN.

    The slot advances only to the end of a commit that it delivers. If all writes are in other tables or databases it
    never does, and the server keeps the WAL for ever; this message is such a commit (see `wal_messages.py`).
    """
    return emit(session, heartbeat_note())


def advance(session: PostgresSession, slot: str, lsn: int) -> int:
    """Tell the slot that everything before `lsn` has landed (G10). Returns the slot's LSN.

    A slot that is past `lsn` stays: an acknowledgement may repeat. Never pass `pg_current_wal_lsn()`: it would skip
    transactions that are committing at that moment.
    """
    with translated(session.address, "move slot", slot=slot, lsn=lsn_text(lsn)):
        try:
            row = session.connection.execute(
                "SELECT end_lsn::text FROM pg_replication_slot_advance(%s, %s::pg_lsn)", [slot, lsn_text(lsn)]
            ).fetchone()
        except psycopg.errors.ObjectNotInPrerequisiteState:  # the slot is past `lsn`, or it is lost
            row = session.connection.execute(_CONFIRMED, [slot]).fetchone()
            if row is None or lsn_number(row[0]) < lsn:
                raise
    return lsn_number(row[0]) if row else lsn


def drop_slot(session: PostgresSession, slot: str) -> bool:
    """Let the server remove the WAL. False: the slot does not exist."""
    with translated(session.address, "move slot", slot=slot):
        try:
            session.connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        except psycopg.errors.UndefinedObject:
            return False
    return True


def log_standby_snapshot(session: PostgresSession) -> str:
    """Let the server (16 or newer) log its running transactions, so that restart_lsn can advance at the next peek.

    Returns a warning if the role may not: then the server does it itself, about every 15 seconds.
    """
    with translated(session.address):
        try:
            session.connection.execute("SELECT pg_log_standby_snapshot()")
        except psycopg.errors.InsufficientPrivilege:
            return (
                "the role may not call pg_log_standby_snapshot(): every cycle reads landed WAL again for longer; "
                "GRANT EXECUTE ON FUNCTION pg_log_standby_snapshot() TO the role"
            )
    return ""


@dataclass(frozen=True)
class SlotReport:
    """The state, and the guard's verdict."""

    address: str
    state: GuardState
    verdict: Verdict

    @property
    def healthy(self) -> bool:
        return not self.verdict.error and not self.verdict.warnings


def slot_report(settings: PostgresSourceSettings, mark: LsnMark | None) -> SlotReport:
    """Read the state once. Raises SourceUnreachable."""
    session = PostgresSession(settings.url)
    try:
        expected = (
            mark if mark and mark.slot else None
        )  # after a rewind to a snapshot the mark does not rely on the slot
        state = with_timelines(read_state(session, settings.slot), settings.url, expected)
    finally:
        session.close()
    # The session that reads the slot now is most likely the pipeline itself.
    idle_state = replace(state, slot=replace(state.slot, active_pid=None)) if state.slot else state
    return SlotReport(session.address, state, judge(idle_state, expected, settings))


def behind_bytes(state: GuardState, mark: LsnMark | None) -> int | None:
    """The WAL that has not landed; None: the mark is of another server."""
    if mark is None or not mark.slot or mark.cluster != state.server.cluster:
        return None
    return max(state.server.lsn - mark.lsn, 0)


def table_state(table: TableState) -> tuple[str, str]:
    """A word, and a detail."""
    if table.stale:
        return "stale", f"is copied again: {table.stale}"
    if table.copied_to is not None:
        return "being copied", f"{table.copied_to:,} pages so far, in the snapshot at {lsn_text(table.copied)}"
    if table.landed is not None:
        return "catching up", f"changes have landed up to {lsn_text(table.landed)}"
    return "copied", f"at {lsn_text(table.copied)}"
