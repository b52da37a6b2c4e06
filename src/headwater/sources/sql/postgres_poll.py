"""One look at PostgreSQL's transactions: what a poll has seen, and where late rows can still come (G6).

The order of the steps is what makes it sound; `late.py` says why.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.model.cursor import CursorValue
from headwater.model.marks import SnapshotSeen
from headwater.sources.sql.late import Bounds, OpenTransaction, clock_tick, edges, low_edge, was_reset
from headwater.sources.sql.postgres_catalog import Server
from headwater.sources.sql.postgres_session import PostgresSession
from headwater.sources.sql.relation import Relation

PENDING_CAP = 10_000  # more unfinished transactions than this are not kept in a mark
RANGE_CAP = 5_000_000  # transactions looked at in one poll
_LONG = dt.timedelta(minutes=10)

# Backends whose activity is switched off show no transaction: they count as open since ever.
_OPEN = """
SELECT pid, CASE WHEN state = 'disabled' THEN NULL ELSE xact_start END, state = 'disabled', clock_timestamp()
FROM pg_stat_activity
WHERE datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()
AND (xact_start IS NOT NULL OR state = 'disabled') AND backend_type NOT IN ('autovacuum worker', 'parallel worker')"""
_PREPARED = "SELECT transaction::text FROM pg_prepared_xacts WHERE database = current_database()"
_SNAPSHOT = "SELECT pg_current_snapshot()::text"
# Only the committed ones are settled. One that looks aborted may be a subtransaction that is just being born,
# so it stays pending until everything older than it has ended.
_PENDING = """
SELECT x FROM (SELECT unnest(%s::bigint[]) UNION SELECT generate_series(%s::bigint, %s::bigint - 1)) AS recent(x)
WHERE x >= %s AND pg_xact_status(x::text::xid8) IS DISTINCT FROM 'committed' ORDER BY x"""


@dataclass(frozen=True)
class Seen:
    """Which transactions are settled: all below `horizon` but the pending ones."""

    horizon: int
    pending: tuple[int, ...]
    lowered: bool = False  # some settled ones were left out, because there were too many


@dataclass(frozen=True)
class Poll:
    """What is known of the server's transactions at one moment, before the view that is read."""

    server: Server
    seen: Seen
    view: str  # the snapshot's text, if nothing ended between the look at the transactions and the view
    ticks: Mapping[str, CursorValue]  # by stream
    known: tuple[OpenTransaction, ...]
    open: tuple[OpenTransaction, ...]
    warnings: tuple[str, ...] = ()

    def bounds(self, relation: Relation, previous: Bounds, fingerprint: str) -> Bounds:
        """What the next mark of a stream keeps; a reset table is treated as one that was never looked at."""
        kind, tick = relation.subject.kind, self.ticks.get(relation.stream)
        view = f"{self.view}/{fingerprint}" if self.view else ""
        reset = was_reset(previous, relation.storage, tick, kind)
        known = Bounds() if reset else previous
        found = Bounds(floor=previous.floor, view=view, storage=relation.storage, swept=reset)
        if relation.ticker is None or tick is None:
            return found
        open_edges = edges(relation.ticker, known, self.known, self.open, tick)
        low = None if self.seen.lowered else low_edge(kind, tick, open_edges)
        return Bounds(
            low=low,
            tick=tick,
            open=open_edges,
            floor=previous.floor,
            view=view,
            storage=relation.storage,
            swept=reset,
        )

    def snapshot(self, relation: Relation, bounds: Bounds) -> SnapshotSeen:
        return SnapshotSeen(
            self.server.cluster, self.seen.horizon, self.seen.pending, bounds.to_json(relation.subject.kind)
        )


def take_poll(
    session: PostgresSession,
    server: Server,
    relations: Sequence[Relation],
    previous: Mapping[str, Bounds],
    settled: Seen | None,
    *,
    patience_seconds: float,
) -> Poll:
    """Steps 0 to 3. On return the session's view has begun and `Poll.view` belongs to it."""
    ticks = _ticks(session, relations)
    known = now_open = _open_transactions(session)
    if any(_is_first(relation, previous) for relation in relations):
        # Short transactions are given a moment, or the next poll would have to look everywhere for them.
        deadline = time.monotonic() + patience_seconds
        waited_for = {transaction.id for transaction in known}
        while waited_for & {transaction.id for transaction in now_open} and time.monotonic() < deadline:
            time.sleep(0.02)
            now_open = _open_transactions(session)
    ((before,),) = session.fetch(_SNAPSHOT)
    seen = _settle(session, before, settled)
    session.begin_view()
    ((text,),) = session.fetch(_SNAPSHOT)
    return Poll(
        server=server,
        seen=seen,
        view=text if text == before and not seen.lowered else "",
        ticks=ticks,
        known=tuple(known),
        open=tuple(now_open),
        warnings=_warnings(now_open, seen),
    )


def current_snapshot(session: PostgresSession) -> str:
    ((text,),) = session.fetch(_SNAPSHOT)
    return str(text)


def _is_first(relation: Relation, previous: Mapping[str, Bounds]) -> bool:
    sequenced = relation.ticker is not None and relation.ticker.kind == "sequence"
    return sequenced and previous.get(relation.stream, Bounds()).tick is None


def _ticks(session: PostgresSession, relations: Sequence[Relation]) -> dict[str, CursorValue]:
    bounded = [(relation, relation.ticker) for relation in relations if relation.ticker is not None]
    if not bounded:
        return {}
    ((now,),) = session.fetch("SELECT clock_timestamp()")
    found: dict[str, CursorValue] = {}
    for relation, ticker in bounded:
        if ticker.kind != "sequence":
            found[relation.stream] = clock_tick(ticker, now)
        else:
            # NULL: it has not given out its first number yet.
            ((last,),) = session.fetch(
                "SELECT coalesce(pg_sequence_last_value(seqrelid), seqstart - 1) FROM pg_sequence WHERE seqrelid = %s::bigint::oid",
                [ticker.sequence],
            )
            found[relation.stream] = last
    return found


def _open_transactions(session: PostgresSession) -> list[OpenTransaction]:
    """Sessions first, then prepared ones: a transaction that is prepared in between is in one of the lists."""
    found = [
        OpenTransaction(f"{pid}@{began.isoformat()}" if began else f"{pid}@?", began, pid)
        for pid, began, _, _ in session.fetch(_OPEN)
    ]
    return found + [OpenTransaction(f"prepared {xid}", None) for (xid,) in session.fetch(_PREPARED)]


def _settle(session: PostgresSession, snapshot: str, settled: Seen | None) -> Seen:
    oldest, end = (int(part) for part in snapshot.split(":")[:2])
    first = oldest if settled is None else max(oldest, min(settled.horizon, end))
    candidates = [] if settled is None else [xid for xid in settled.pending if xid >= oldest]
    horizon, lowered = end, False
    if end - first > RANGE_CAP:
        horizon, lowered = first + RANGE_CAP, True
    if first >= horizon and not candidates:
        return Seen(horizon, (), lowered)
    pending = [xid for (xid,) in session.fetch(_PENDING, [candidates, first, horizon, oldest])]
    if len(pending) > PENDING_CAP:
        horizon, lowered = pending[PENDING_CAP], True
        pending = pending[:PENDING_CAP]
    return Seen(horizon, tuple(pending), lowered)


def _warnings(now_open: Sequence[OpenTransaction], seen: Seen) -> tuple[str, ...]:
    began = [(transaction.began, transaction.pid) for transaction in now_open if transaction.began is not None]
    found = []
    if began:
        since, pid = min(began)
        if dt.datetime.now(dt.UTC) - since > _LONG or seen.lowered:
            found.append(
                f"the transaction of process {pid} has been open since {since:%Y-%m-%d %H:%M:%S} UTC; "
                "until it ends each poll searches further back for late rows"
            )
    if seen.lowered:
        found.append("too many transactions are unfinished to tell them apart; the newest rows wait for a later poll")
    if any(transaction.id.endswith("@?") for transaction in now_open):
        found.append("a session has track_activities switched off, so late rows are searched everywhere")
    return tuple(found)
