"""The state of the slot and of its server: one query, before and after every cycle.

Columns that a version of PostgreSQL does not have (13 or newer) are None. A role without `pg_read_all_stats` does not see
other roles' transactions: then the oldest one is unknown (`sees_sessions`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.model.position.lsn import lsn_number
from headwater.model.position.marks import LsnMark
from headwater.model.secret import Secret, masked
from headwater.pg.connection import PostgresSession, connect_replication, translated

# A row as JSON: columns that this version lacks are absent instead of an error.
# Any transaction with an id, in any database of the cluster, holds back restart_lsn.
_STATE = """
WITH began AS (
    SELECT xact_start AS at, pid, NULL::text AS gid, datname AS database, application_name AS application
    FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
    UNION ALL SELECT prepared, NULL, gid, database, NULL FROM pg_prepared_xacts)
SELECT clock_timestamp(),
    (SELECT system_identifier FROM pg_control_system())::text || '/' || d.oid,
    d.datname::text,
    current_setting('server_version_num')::int,
    pg_is_in_recovery(),
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END::text,
    CASE WHEN pg_is_in_recovery()
        THEN (SELECT greatest(c.timeline_id, r.min_recovery_end_timeline)
            FROM pg_control_checkpoint() c, pg_control_recovery() r)
        ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END,
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'),
    (SELECT to_jsonb(b) FROM began b WHERE b.at IS NOT NULL ORDER BY b.at LIMIT 1),
    to_jsonb(s), age(s.catalog_xmin),
    (SELECT to_jsonb(a) FROM pg_stat_activity a WHERE a.pid = s.active_pid)
FROM pg_database d LEFT JOIN pg_replication_slots s ON s.slot_name = %s
WHERE d.datname = current_database()"""


@dataclass(frozen=True)
class OldestTransaction:
    """The oldest open transaction that has written, in any database: each peek reads the WAL from its begin on."""

    began: dt.datetime  # of a prepared one: when it was prepared
    database: str
    pid: int | None = None
    prepared: str = ""  # the name of a prepared transaction
    application: str = ""

    def __str__(self) -> str:
        transaction = (
            f"the prepared transaction {self.prepared!r}" if self.prepared else f"a transaction (pid {self.pid})"
        )
        application = f", application {self.application!r}" if self.application else ""
        return f"{transaction} in database {self.database}{application}"


@dataclass(frozen=True)
class ServerState:
    """The server at one moment."""

    now: dt.datetime  # on its clock
    cluster: str  # system identifier and database, as in a mark
    database: str
    version: int  # as PostgreSQL counts: 180001 is 18.1
    standby: bool
    lsn: int  # how far the WAL is written; of a standby: replayed
    timeline: int
    sees_sessions: bool = True
    oldest: OldestTransaction | None = None
    # Timeline → the LSN of its end. Read only when the mark was taken on another timeline.
    timeline_ends: Mapping[int, int] | None = None


@dataclass(frozen=True)
class SlotState:
    """A replication slot that exists."""

    name: str
    plugin: str | None  # None: a physical slot
    database: str | None
    restart: int | None  # the WAL is kept from here on; None: no longer
    confirmed: int | None  # what was acknowledged
    active_pid: int | None = None
    active_as: str = ""  # the application of that session, if the role may see it
    wal_status: str | None = None  # reserved, extended, unreserved (until the next checkpoint), lost
    invalidated: str = ""
    safe_bytes: int | None = None  # until it is lost; None: no limit is set
    catalog_xmin_age: int | None = None
    temporary: bool = False
    two_phase: bool = False
    failover: bool = False
    synced: bool = False  # a standby's copy of the primary's slot
    conflicting: bool = False

    @property
    def lost(self) -> bool:
        return self.wal_status == "lost" or bool(self.invalidated) or self.conflicting

    @property
    def restart_gap(self) -> int:
        """The acknowledged WAL that every peek reads again."""
        return max(self.confirmed - self.restart, 0) if self.confirmed and self.restart else 0


@dataclass(frozen=True)
class GuardState:
    """The facts of a verdict; `slot` is None if it does not exist."""

    server: ServerState
    slot: SlotState | None = field(default=None)

    @property
    def retained_bytes(self) -> int:
        """The WAL that the server keeps because of the slot."""
        return max(self.server.lsn - self.slot.restart, 0) if self.slot and self.slot.restart else 0

    @property
    def unacknowledged_bytes(self) -> int:
        """The WAL written since the slot's last acknowledgement."""
        return max(self.server.lsn - self.slot.confirmed, 0) if self.slot and self.slot.confirmed else 0


def read_state(session: PostgresSession, slot: str) -> GuardState:
    """One round trip of a few milliseconds. Raises SourceUnreachable."""
    ((now, cluster, database, version, standby, lsn, timeline, sees_sessions, oldest, slot_row, xmin_age, reader),) = (
        session.fetch(_STATE, [slot])
    )
    server = ServerState(
        now=now,
        cluster=cluster,
        database=database,
        version=version,
        standby=standby,
        lsn=lsn_number(lsn) if lsn else 0,
        timeline=timeline,
        sees_sessions=sees_sessions,
        oldest=_oldest(oldest) if oldest else None,
    )
    return GuardState(server, _slot(slot_row, xmin_age, reader or {}) if slot_row else None)


def _oldest(row: Mapping[str, Any]) -> OldestTransaction:
    began = dt.datetime.fromisoformat(row["at"])
    return OldestTransaction(began, row["database"], row["pid"], row["gid"] or "", row["application"] or "")


def _slot(row: Mapping[str, Any], xmin_age: int | None, reader: Mapping[str, Any]) -> SlotState:
    return SlotState(
        name=row["slot_name"],
        plugin=row["plugin"],
        database=row["database"],
        restart=_lsn(row["restart_lsn"]),
        confirmed=_lsn(row["confirmed_flush_lsn"]),
        active_pid=row["active_pid"],
        active_as=reader.get("application_name") or "",
        wal_status=row.get("wal_status"),
        invalidated=row.get("invalidation_reason") or "",
        safe_bytes=row.get("safe_wal_size"),
        catalog_xmin_age=xmin_age,
        temporary=bool(row.get("temporary")),
        two_phase=bool(row.get("two_phase")),
        failover=bool(row.get("failover")),
        synced=bool(row.get("synced")),
        conflicting=bool(row.get("conflicting")),
    )


def _lsn(text: str | None) -> int | None:
    return None if text is None else lsn_number(text)


def with_timelines(state: GuardState, url: Secret, mark: LsnMark | None) -> GuardState:
    """The same state, with the history of timelines if the mark needs it, which is rare."""
    timeline = state.server.timeline
    if mark is None or mark.timeline in (0, timeline) or mark.timeline > timeline:
        return state
    return replace(state, server=replace(state.server, timeline_ends=timeline_ends(url, timeline)))


def timeline_ends(url: Secret, timeline: int) -> Mapping[int, int]:
    """Each earlier timeline of the history, and the LSN of its end. Raises SourceUnreachable."""
    with translated(masked(url.reveal()), "read timelines", timeline=timeline), connect_replication(url) as connection:
        ((_, content),) = connection.execute(f"TIMELINE_HISTORY {timeline:d}").fetchall()
    return parse_history(content if isinstance(content, str) else bytes(content).decode())


def parse_history(content: str) -> dict[int, int]:
    """Parse lines of timeline, LSN and reason; comments begin with #."""
    lines = (line.split() for line in content.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return {int(words[0]): lsn_number(words[1]) for words in lines}
