"""PostgreSQL as a database of the `sql` source: exported snapshots, and polls of its transactions (G6)."""

from __future__ import annotations

import datetime as dt
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.config.sources.sql import SqlSourceSettings
from headwater.model.errors import HeadwaterError
from headwater.model.position.marks import ColumnMark
from headwater.model.rows import Rows, Split
from headwater.model.types import CursorValue
from headwater.pg.connection import PostgresSession
from headwater.sources.sql import statements
from headwater.sources.sql.database import DEFAULT_TUNING, Limits, Relation, Tuning, rows_of, split_count
from headwater.sources.sql.postgres.catalog import Server, expand_patterns, relations_of, server_of
from headwater.sources.sql.windows.watermark import (
    Bounds,
    OpenTransaction,
    SettledTransactions,
    TransactionPoll,
    check_same_database,
    clock_tick,
    parse_value,
    was_reset,
)

if TYPE_CHECKING:
    from headwater.sources.sql.dialects import Condition

# Caveats: a row that is updated has a new transaction id; a changed row whose cursor did not move is read again
# when it lies above the low watermark (with `late: scan`, wherever it lies), else it is not detected. A statement
# that rewrites a table (some forms of ALTER TABLE) does so with every row.

_LARGE_SHARE = 0.3  # of the table: then reading by pages is faster than by the cursor's index


class PostgresDatabase:
    """One session for planning; its view stays open while executors read."""

    def __init__(self, settings: SqlSourceSettings, tuning: Tuning = DEFAULT_TUNING) -> None:
        self._settings, self._tuning = settings, tuning
        self._session = PostgresSession(settings.url)
        self._settled: tuple[str, SettledTransactions] | None = None  # of this process's last poll, with its cluster
        self._view = ""
        self._probe = Probe((), 0, settings, tuning)
        self._unchanged: tuple[str, Mapping[str, ColumnMark]] | None = None

    @property
    def address(self) -> str:
        return self._session.address

    @property
    def shares_views(self) -> bool:
        return True

    def is_unchanged(self, marks: Mapping[str, ColumnMark]) -> bool:
        """The same snapshot again shows the same rows."""
        self._session.ping()
        if not marks:
            return False
        view = f"{current_snapshot(self._session)}/{self.fingerprint}"
        if self._unchanged == (view, marks):
            return True
        if all(Bounds.of(mark).view == view and not Bounds.of(mark).cut for mark in marks.values()):
            return True
        if self._probe.has_no_news(self._session, marks):
            self._unchanged = (view, dict(marks))
            return True
        return False

    def remember_unchanged(self, marks: Mapping[str, ColumnMark]) -> None:
        self._unchanged = (self._view, dict(marks)) if self._view else None

    @property
    def fingerprint(self) -> str:
        """Of the settings that decide which rows are read: when they change, the same snapshot proves nothing."""
        options = self._settings.model_dump(include={"table", "tables", "query", "where", "cursor", "nulls", "late"})
        return hashlib.blake2b(repr(options).encode(), digest_size=4).hexdigest()

    def relations(self) -> list[Relation]:
        relations = relations_of(self._session, self._settings, server_of(self._session))
        self._probe = Probe(tuple(relations), self._session.connections, self._settings, self._tuning)
        return relations

    def view(self, relations: Sequence[Relation], marks: Mapping[str, ColumnMark]) -> PostgresView:
        server = server_of(self._session)
        previous = {stream: Bounds.of(mark) for stream, mark in marks.items()}
        if any(relation.late == "xid" for relation in relations):
            settled = self._settled_before(server.cluster, marks)
            poll = take_poll(self._session, server, relations, previous, settled, tuning=self._tuning)
            self._settled = (server.cluster, poll.settled)
            self._view = f"{poll.view}/{self.fingerprint}" if poll.view else ""
        else:
            poll, self._view = None, ""
            self._session.begin_view()
        return PostgresView(self._session, self._settings, poll, self.fingerprint)

    def reopen_view(self, ends: Mapping[str, ColumnMark]) -> PostgresView:
        self._session.ping()
        cluster = server_of(self._session).cluster
        for stream, end in ends.items():
            check_same_database(stream, end, cluster)
        self._session.begin_view()
        return PostgresView(self._session, self._settings, None, self.fingerprint)

    def has_valid_ids(self, mark: ColumnMark) -> bool:
        if mark.snapshot is None or mark.snapshot.cluster != server_of(self._session).cluster:
            return False
        next_xid = int(current_snapshot(self._session).split(":")[1])
        return 0 <= next_xid - mark.snapshot.horizon < self._tuning.oldest_transactions

    def finish_plan(self) -> None:
        """Keeps the snapshot: it blocks no writer, and executors read in it."""

    def end_view(self) -> None:
        self._session.end_view()

    def close(self) -> None:
        self._session.close()

    def _settled_before(self, cluster: str, marks: Mapping[str, ColumnMark]) -> SettledTransactions | None:
        """The newest of the last poll and the marks: a committed transaction stays committed."""
        candidates = [self._settled[1]] if self._settled and self._settled[0] == cluster else []
        candidates += [
            SettledTransactions(mark.snapshot.horizon, mark.snapshot.pending)
            for mark in marks.values()
            if mark.snapshot and mark.snapshot.cluster == cluster
        ]
        return max(candidates, key=lambda settled: settled.horizon, default=None)


@dataclass(frozen=True)
class PostgresView:
    """One REPEATABLE READ snapshot; with a `poll` when it was taken for planning by transaction ids."""

    session: PostgresSession
    settings: SqlSourceSettings
    poll: TransactionPoll | None
    fingerprint: str

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return self.session.fetch(sql)

    def split(self, sql: str, relation: Relation, rows: int | None, flags: int = 0) -> Split:
        from headwater.sources.sql.postgres.split import PostgresSplit

        return PostgresSplit(relation.row_identity, self.settings.url, self.session.export(), sql, flags, rows)

    def rows_of(self, relation: Relation, splits: tuple[Split, ...]) -> Rows:
        return rows_of(relation, splits)

    def ranges(
        self, relation: Relation, conditions: Sequence[Condition], rows: int | None, limits: Limits
    ) -> list[tuple[list[Condition], int | None]]:
        """By pages for a large share of a table, by the cursor's quantiles otherwise."""
        count = split_count(rows, limits)
        if count == 1:
            return [([], rows)]
        share = None if rows is None else rows // count
        if relation.pages and (rows is None or rows >= _LARGE_SHARE * (relation.rows or 1)):
            step = -(-relation.pages // count)
            starts = list(range(0, relation.pages, step))
            ends = [*starts[1:], None]
            return [(statements.page_range(first, end), share) for first, end in zip(starts, ends, strict=True)]
        return [(cursor_range, share) for cursor_range in self._by_quantiles(relation, conditions, count)]

    def _by_quantiles(self, relation: Relation, conditions: Sequence[Condition], count: int) -> list[list[Condition]]:
        subject = relation.subject
        ((texts,),) = self.fetch(statements.quantiles(subject, conditions, count))
        cuts = sorted({parse_value(relation, text) for text in texts or ()}, key=subject.cursor_type.order)
        return statements.cursor_ranges(subject, cuts)


# pg_sequence_last_value is NULL until the sequence has assigned its first number.
_SEQUENCE = """
SELECT coalesce(pg_sequence_last_value(seqrelid), seqstart - 1), coalesce(pg_relation_filenode(seqrelid), 0)::text
FROM pg_sequence WHERE seqrelid = %s::bigint::oid"""
_NEXT_XID = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


@dataclass(frozen=True)
class Probe:
    """A cheap search for new rows with the relations of the last plan, valid on the connection of that plan."""

    relations: tuple[Relation, ...]
    connection: int
    settings: SqlSourceSettings
    tuning: Tuning

    def has_no_news(self, session: PostgresSession, marks: Mapping[str, ColumnMark]) -> bool:
        """True only if no stream has a visible row beyond its mark."""
        relations = {relation.stream: relation for relation in self.relations}
        if not relations or self.connection != session.connections or set(relations) != set(marks):
            return False
        try:
            return self._has_same_streams(session, relations) and all(
                self._has_no_new_rows(session, relation, marks[stream]) for stream, relation in relations.items()
            )
        except HeadwaterError:
            return False  # the source changed: the plan reports it

    def _has_same_streams(self, session: PostgresSession, relations: Mapping[str, Relation]) -> bool:
        tables = self.settings.tables
        return tables is None or {stream for stream, _ in expand_patterns(session, tables)} == set(relations)

    def _has_no_new_rows(self, session: PostgresSession, relation: Relation, mark: ColumnMark) -> bool:
        if relation.late != "xid" or mark.snapshot is None:
            return False
        subject, bounds = relation.subject, Bounds.of(mark)
        if (mark.column, mark.type) != (subject.cursor, subject.cursor_type):
            return False
        ((next_xid,),) = session.fetch(_NEXT_XID)
        if not 0 <= next_xid - mark.snapshot.horizon < self.tuning.renew_after_transactions:
            return False
        if relation.ticker is not None and relation.ticker.kind == "sequence":
            ((last, storage),) = session.fetch(_SEQUENCE, [relation.ticker.sequence])
            if was_reset(bounds, storage, last, subject.cursor_type):
                return False
        conditions = [statements.not_done(subject, mark, bounds.low, bounds.floor)]
        if relation.nullable_cursor:
            conditions.append(statements.new_nulls(subject, mark))
        return not session.fetch(statements.any_rows(subject, *conditions))[0][0]


# The order of the steps matters: see `windows/watermark.py`.

_LONG = dt.timedelta(minutes=10)

# Backends with track_activities off show no transaction: they count as open since forever.
_OPEN = """
SELECT pid, CASE WHEN state = 'disabled' THEN NULL ELSE xact_start END, state = 'disabled', clock_timestamp()
FROM pg_stat_activity
WHERE datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()
AND (xact_start IS NOT NULL OR state = 'disabled') AND backend_type NOT IN ('autovacuum worker', 'parallel worker')"""
_PREPARED = "SELECT transaction::text FROM pg_prepared_xacts WHERE database = current_database()"
_SNAPSHOT = "SELECT pg_current_snapshot()::text"
# Only committed ones are settled. One that looks aborted may be a subtransaction that is about to begin, so it stays
# pending until all older ones have ended.
_PENDING = """
SELECT x FROM (SELECT unnest(%s::bigint[]) UNION SELECT generate_series(%s::bigint, %s::bigint - 1)) AS recent(x)
WHERE x >= %s AND pg_xact_status(x::text::xid8) IS DISTINCT FROM 'committed' ORDER BY x"""


def take_poll(
    session: PostgresSession,
    server: Server,
    relations: Sequence[Relation],
    previous: Mapping[str, Bounds],
    settled: SettledTransactions | None,
    *,
    tuning: Tuning,
) -> TransactionPoll:
    """Steps 0 to 3. On return the session's view has begun and `TransactionPoll.view` belongs to it."""
    ticks = _ticks(session, relations)
    open_before = now_open = _open_transactions(session)
    if any(_is_first(relation, previous) for relation in relations):
        # Short transactions may end first, or the next poll would have to search the whole table for them.
        deadline = time.monotonic() + tuning.first_poll_wait_seconds
        ids_before = {transaction.id for transaction in open_before}
        while ids_before & {transaction.id for transaction in now_open} and time.monotonic() < deadline:
            time.sleep(0.02)
            now_open = _open_transactions(session)
    before = current_snapshot(session)
    settled_now = _settle(session, before, settled, tuning)
    session.begin_view()
    snapshot = current_snapshot(session)
    return TransactionPoll(
        cluster=server.cluster,
        standby=server.standby,
        settled=settled_now,
        view=snapshot if snapshot == before and not settled_now.lowered else "",
        ticks=ticks,
        open_before=tuple(open_before),
        open=tuple(now_open),
        warnings=_warnings(now_open, settled_now),
    )


def current_snapshot(session: PostgresSession) -> str:
    ((text,),) = session.fetch(_SNAPSHOT)
    return str(text)


def _is_first(relation: Relation, previous: Mapping[str, Bounds]) -> bool:
    sequenced = relation.ticker is not None and relation.ticker.kind == "sequence"
    return sequenced and previous.get(relation.stream, Bounds()).tick is None


def _ticks(session: PostgresSession, relations: Sequence[Relation]) -> dict[str, CursorValue]:
    tickers = [(relation, relation.ticker) for relation in relations if relation.ticker is not None]
    if not tickers:
        return {}
    ((now,),) = session.fetch("SELECT clock_timestamp()")
    ticks: dict[str, CursorValue] = {}
    for relation, ticker in tickers:
        if ticker.kind != "sequence":
            ticks[relation.stream] = clock_tick(ticker, now)
        else:
            ((last, _),) = session.fetch(_SEQUENCE, [ticker.sequence])
            ticks[relation.stream] = last
    return ticks


def _open_transactions(session: PostgresSession) -> list[OpenTransaction]:
    """Sessions first, then prepared ones: a transaction that is prepared in between is in one of the lists."""
    sessions = [
        OpenTransaction(f"{pid}@{began.isoformat()}" if began else f"{pid}@?", began, pid)
        for pid, began, _, _ in session.fetch(_OPEN)
    ]
    return sessions + [OpenTransaction(f"prepared {xid}", None) for (xid,) in session.fetch(_PREPARED)]


def _settle(
    session: PostgresSession, snapshot: str, settled: SettledTransactions | None, tuning: Tuning
) -> SettledTransactions:
    oldest, end = (int(xid) for xid in snapshot.split(":")[:2])
    first = oldest if settled is None else max(oldest, min(settled.horizon, end))
    candidates = [] if settled is None else [xid for xid in settled.pending if xid >= oldest]
    horizon, lowered = end, False
    if end - first > tuning.max_transactions_per_poll:
        horizon, lowered = first + tuning.max_transactions_per_poll, True
    if first >= horizon and not candidates:
        return SettledTransactions(horizon, (), lowered)
    pending = [xid for (xid,) in session.fetch(_PENDING, [candidates, first, horizon, oldest])]
    if len(pending) > tuning.max_pending_transactions:
        horizon, lowered = pending[tuning.max_pending_transactions], True
        pending = pending[: tuning.max_pending_transactions]
    return SettledTransactions(horizon, tuple(pending), lowered)


def _warnings(now_open: Sequence[OpenTransaction], settled: SettledTransactions) -> tuple[str, ...]:
    began = [(transaction.began, transaction.pid) for transaction in now_open if transaction.began is not None]
    warnings = []
    if began:
        since, pid = min(began)
        if dt.datetime.now(dt.UTC) - since > _LONG or settled.lowered:
            warnings.append(
                f"the transaction of process {pid} has been open since {since:%Y-%m-%d %H:%M:%S} UTC; "
                "each poll searches further back for late rows until it ends"
            )
    if settled.lowered:
        warnings.append("too many transactions are unfinished; the newest rows wait for a later poll")
    if any(transaction.id.endswith("@?") for transaction in now_open):
        warnings.append("a session has track_activities off, so polls search whole tables for late rows")
    return tuple(warnings)
