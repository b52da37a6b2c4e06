"""The cheap question before a plan: is there any row that the marks leave for later?

Most polls find none. With what the last plan learnt about the tables one statement per stream answers that,
without a look at the catalog or at other sessions. Whatever is not plain is left to the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.config.sql_source import SqlSource
from headwater.model.errors import HeadwaterError
from headwater.model.marks import ColumnMark
from headwater.sources.sql import late, statements
from headwater.sources.sql.late import Bounds
from headwater.sources.sql.postgres_catalog import expanded
from headwater.sources.sql.postgres_session import PostgresSession
from headwater.sources.sql.relation import Relation

_SEQUENCE = """
SELECT coalesce(pg_sequence_last_value(seqrelid), seqstart - 1), coalesce(pg_relation_filenode(seqrelid), 0)::text
FROM pg_sequence WHERE seqrelid = %s::bigint::oid"""
_NEXT = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


@dataclass(frozen=True)
class Probe:
    """What the last plan learnt, good for the connection that it was learnt on."""

    relations: tuple[Relation, ...]
    connection: int
    settings: SqlSource

    def finds_nothing(self, session: PostgresSession, marks: Mapping[str, ColumnMark]) -> bool:
        """True only when every stream has a mark that leaves no visible row for later."""
        known = {relation.stream: relation for relation in self.relations}
        if not known or self.connection != session.connections or set(known) != set(marks):
            return False
        try:
            return self._same_streams(session, known) and all(
                self._nothing_after(session, relation, marks[stream]) for stream, relation in known.items()
            )
        except HeadwaterError:
            return False  # something changed: the plan will say what

    def _same_streams(self, session: PostgresSession, known: Mapping[str, Relation]) -> bool:
        return self.settings.tables is None or {stream for stream, _ in expanded(session, self.settings.tables)} == set(
            known
        )

    def _nothing_after(self, session: PostgresSession, relation: Relation, mark: ColumnMark) -> bool:
        if relation.late not in ("bounded", "scan") or mark.snapshot is None:
            return False
        subject, bounds = relation.subject, Bounds.of(mark)
        if (mark.column, mark.type) != (subject.cursor, subject.kind):
            return False
        ((following,),) = session.fetch(_NEXT)
        if not 0 <= following - mark.snapshot.horizon < late.RENEWED_AFTER:
            return False
        if relation.ticker is not None and relation.ticker.kind == "sequence":
            ((last, storage),) = session.fetch(_SEQUENCE, [relation.ticker.sequence])
            if late.was_reset(bounds, storage, last, subject.kind):
                return False
        wanted = [statements.not_done(subject, mark, bounds.low, bounds.floor)]
        if relation.nullable_cursor:
            wanted.append(statements.new_nulls(subject, mark))
        return not session.fetch(statements.any_rows(subject, *wanted))[0][0]
