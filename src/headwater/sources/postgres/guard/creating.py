"""A new slot: from its first place on the server keeps the log for us."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from headwater.model.errors import HeadwaterError, InputError, SourceUnreachable
from headwater.model.lsn import lsn_number
from headwater.model.secret import masked
from headwater.sources.sql.postgres_session import PostgresSession, translated

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
    """A lasting slot of this database; gives the place from which on it delivers every commit.

    Waits for the transactions that are open now; `warn` is told what it may be waiting for. After `wait_seconds` it gives
    up, and nothing is left behind.
    """
    version, connection = session.server_version, session.connection
    with translated(session.address):
        try:
            row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
            standby = bool(row and row[0])
            _check_version(session, version, failover=failover, standby=standby)
            if standby:
                warn(_ON_STANDBY)
            elif oldest := connection.execute(_OLDEST).fetchone():
                warn(f"the slot waits for transactions that are open now: pid {oldest[0]}, since {oldest[1] or '?'}")
            option = ", failover => true" if failover else ""
            with connection.transaction():
                connection.execute(f"SET LOCAL statement_timeout = {int(wait_seconds * 1000)}")
                found = connection.execute(
                    f"SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput'{option})",  # noqa: S608
                    [name],
                ).fetchone()
        except psycopg.Error as error:
            raise (_refused(session, name, error, wait_seconds) or error) from None
    return lsn_number(found[0]) if found else 0


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


def _refused(session: PostgresSession, name: str, error: psycopg.Error, waited: float) -> HeadwaterError | None:
    said, state = masked(" ".join(str(error).split())), error.sqlstate
    if state == "42710":
        return InputError(f"{session.address}: the slot {name} is there already", hint="write another name in slot:")
    if state == "53400":
        return SourceUnreachable(
            f"{session.address}: no slot is left ({said})",
            hint="drop one that nobody reads (SELECT slot_name, active FROM pg_replication_slots), or raise max_replication_slots",
        )
    if state == "55000":
        return InputError(
            f"{session.address}: the slot cannot be made: {said}",
            hint="set wal_level = logical and restart the server (of a standby: the primary); headwater postgres check says more",
        )
    if state == "42501":
        return InputError(
            f"{session.address}: the role may not make a slot: {said}",
            hint="let it replicate: ALTER ROLE … REPLICATION",
        )
    if state == "57014":
        return SourceUnreachable(
            f"{session.address}: the slot {name} was not ready after {waited:g} s: transactions that were open did not end, "
            "or the primary of this standby wrote nothing",
            hint="end the oldest (SELECT pid, xact_start FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY 2); "
            "for a standby: SELECT pg_log_standby_snapshot() on its primary",
        )
    return None
