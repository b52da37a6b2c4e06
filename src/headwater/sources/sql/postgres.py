"""PostgreSQL as a database of the `sql` source: snapshots, exported to executors that read in parallel.

Caveats: an UPDATE gives a row a new transaction number; a changed row whose cursor did not move is read again
when it lies above the low edge (with `late: scan`, wherever it lies), else it is not noticed. A statement
that rewrites a table (some forms of ALTER TABLE) does so with every row.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.config.sql_source import SqlSource
from headwater.model.marks import ColumnMark
from headwater.model.rows import Split
from headwater.sources.sql import late, statements
from headwater.sources.sql.cursor_text import parse_value
from headwater.sources.sql.late import Bounds, check_same_database
from headwater.sources.sql.postgres_catalog import relations_of, server_of
from headwater.sources.sql.postgres_poll import Poll, Seen, current_snapshot, take_poll
from headwater.sources.sql.postgres_probe import Probe
from headwater.sources.sql.postgres_session import PostgresSession
from headwater.sources.sql.relation import Relation
from headwater.sources.sql.unkept import RowNames
from headwater.sources.sql.view import Limits, part_count

if TYPE_CHECKING:
    from headwater.sources.sql.cursor_sql import Condition

_LARGE_SHARE = 0.3  # of the table: then reading by place beats reading by the cursor's index


class PostgresDatabase:
    """One session for planning; its view stays open while executors read."""

    def __init__(self, settings: SqlSource) -> None:
        self._settings = settings
        self.patience_seconds = 1.0  # how long a first poll waits for transactions that are just ending
        self._session = PostgresSession(settings.url)
        self._settled: tuple[str, Seen] | None = None  # of the last look in this process, with its cluster
        self._view = ""
        self._probe = Probe((), 0, settings)
        self._nothing_new: tuple[str, Mapping[str, ColumnMark]] | None = None

    @property
    def address(self) -> str:
        return self._session.address

    @property
    def shares_views(self) -> bool:
        return True

    def unchanged(self, marks: Mapping[str, ColumnMark]) -> bool:
        """The same snapshot again shows the same rows."""
        self._session.ping()
        if not marks:
            return False
        view = f"{current_snapshot(self._session)}/{self.fingerprint}"
        if self._nothing_new == (view, marks):
            return True
        if all(Bounds.of(mark).view == view and not Bounds.of(mark).cut for mark in marks.values()):
            return True
        if self._probe.finds_nothing(self._session, marks):
            self._nothing_new = (view, dict(marks))
            return True
        return False

    def found_nothing(self, marks: Mapping[str, ColumnMark]) -> None:
        self._nothing_new = (self._view, dict(marks)) if self._view else None

    @property
    def fingerprint(self) -> str:
        """Of the settings that decide which rows are wanted: when they change, the same snapshot proves nothing."""
        wanted = self._settings.model_dump(include={"table", "tables", "query", "where", "cursor", "nulls", "late"})
        return hashlib.blake2b(repr(wanted).encode(), digest_size=4).hexdigest()

    def relations(self) -> list[Relation]:
        found = relations_of(self._session, self._settings, server_of(self._session))
        self._probe = Probe(tuple(found), self._session.connections, self._settings)
        return found

    def look(self, relations: Sequence[Relation], marks: Mapping[str, ColumnMark]) -> PostgresView:
        server = server_of(self._session)
        previous = {stream: Bounds.of(mark) for stream, mark in marks.items()}
        if any(relation.late in ("bounded", "scan") for relation in relations):
            settled = self._settled_before(server.cluster, marks)
            poll = take_poll(
                self._session, server, relations, previous, settled, patience_seconds=self.patience_seconds
            )
            self._settled = (server.cluster, poll.seen)
            self._view = f"{poll.view}/{self.fingerprint}" if poll.view else ""
        else:
            poll, self._view = None, ""
            self._session.begin_view()
        return PostgresView(self._session, self._settings, poll, self.fingerprint)

    def look_again(self, ends: Mapping[str, ColumnMark]) -> PostgresView:
        self._session.ping()
        cluster = server_of(self._session).cluster
        for stream, end in ends.items():
            check_same_database(stream, end, cluster)
        self._session.begin_view()
        return PostgresView(self._session, self._settings, None, self.fingerprint)

    def knows(self, mark: ColumnMark) -> bool:
        if mark.snapshot is None or mark.snapshot.cluster != server_of(self._session).cluster:
            return False
        following = int(current_snapshot(self._session).split(":")[1])
        return 0 <= following - mark.snapshot.horizon < late.OLDEST

    def planned(self) -> None:
        """A snapshot hinders nobody, and executors will read in it."""

    def end_view(self) -> None:
        self._session.end_view()

    def close(self) -> None:
        self._session.close()

    def _settled_before(self, cluster: str, marks: Mapping[str, ColumnMark]) -> Seen | None:
        """The furthest that is already known: what has committed stays committed, whoever found out."""
        known = [self._settled[1]] if self._settled and self._settled[0] == cluster else []
        known += [
            Seen(mark.snapshot.horizon, mark.snapshot.pending)
            for mark in marks.values()
            if mark.snapshot and mark.snapshot.cluster == cluster
        ]
        return max(known, key=lambda seen: seen.horizon, default=None)


@dataclass(frozen=True)
class PostgresView:
    """One REPEATABLE READ snapshot; `poll` is there when it was taken for planning by transaction numbers."""

    session: PostgresSession
    settings: SqlSource
    poll: Poll | None
    fingerprint: str

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return self.session.fetch(sql)

    def split(self, sql: str, relation: Relation, rows: int | None, flags: int = 0) -> Split:
        from headwater.sources.sql.postgres_split import PostgresSplit  # noqa: PLC0415

        return PostgresSplit(RowNames.of(relation), self.settings.url, self.session.export(), sql, flags, rows)

    def parts(
        self, relation: Relation, conditions: Sequence[Condition], rows: int | None, limits: Limits
    ) -> list[tuple[list[Condition], int | None]]:
        """By place for a large share of a table, by the cursor's quantiles otherwise."""
        count = part_count(rows, limits)
        if count == 1:
            return [([], rows)]
        each = None if rows is None else rows // count
        if relation.pages and (rows is None or rows >= _LARGE_SHARE * (relation.rows or 1)):
            step = -(-relation.pages // count)
            starts = list(range(0, relation.pages, step))
            ends = [*starts[1:], None]
            return [(statements.place_range(first, end), each) for first, end in zip(starts, ends, strict=True)]
        return [(found, each) for found in self._by_value(relation, conditions, count)]

    def _by_value(self, relation: Relation, conditions: Sequence[Condition], count: int) -> list[list[Condition]]:
        subject = relation.subject
        ((texts,),) = self.fetch(statements.quantiles(subject, conditions, count))
        cuts = sorted({parse_value(relation, text) for text in texts or ()}, key=subject.kind.order)
        edges = [None, *cuts, None]
        found = []
        for low, high in itertools.pairwise(edges):
            part = [] if low is None else [statements.above(subject, low)]
            found.append(part if high is None else [*part, statements.at_most(subject, high)])
        return found
