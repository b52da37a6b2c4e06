"""Databases behind JDBC drivers in the `sql` source: MySQL, MariaDB, SQL Server, Oracle; by `jdbc:…` also others.

Planning asks through one connection in the driver's JVM and starts no Spark job, but the JVM itself has to be
there: an idle `run --once` takes the seconds that its start takes. Spark's JDBC reader reads the window.

What to know before trusting it with a table:

- Late rows. Windows are worked out by digests (`by_edge`): rows that share the mark's value are found, rows that
  commit late below it only with `late: {lookback: …}`; the plan says so. These databases have concurrent writers.
- One view. Planning reads in one REPEATABLE READ (MySQL, MariaDB), SNAPSHOT (SQL Server, where the database
  allows it), or READ ONLY transaction (Oracle); executors open their own. A row that changes between the two
  leaves this window and comes with a later one, as its cursor grows.
- Types: see `jdbc_types`. Times are read as text in UTC sessions and parsed exactly; a value without an exact
  form (MySQL's '0000-00-00') stops the read.
- Strings as cursors are compared as bytes, which no index serves; SQL Server needs version 2019 for it, Oracle
  a database in AL32UTF8. SQL Server's uniqueidentifier and rowversion are no cursors.
- A `query` stands in a FROM clause: on SQL Server without ORDER BY and WITH.
- `jdbc:sqlite:` trusts declared cursor types where `sqlite:///` checks what is stored; `jdbc:postgresql:` has no
  transaction numbers. The native addresses are better; these serve to compare the two ways.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.config.sql_source import SqlSource
from headwater.model.marks import ColumnMark
from headwater.model.rows import Rows, Split
from headwater.sources.sql import statements
from headwater.sources.sql.cursor_text import parse_value
from headwater.sources.sql.jdbc_address import jdbc_address
from headwater.sources.sql.jdbc_catalog import relations_of
from headwater.sources.sql.jdbc_session import JdbcSession
from headwater.sources.sql.relation import Relation
from headwater.sources.sql.view import Limits, part_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.sources.sql.cursor_sql import Condition


class JdbcDatabase:
    """One connection for planning; `spark` gives the session whose JVM it lives in."""

    def __init__(self, settings: SqlSource, folder: Path, spark: Callable[[], SparkSession]) -> None:
        self._settings = settings
        self._session = JdbcSession(jdbc_address(settings.url.reveal(), folder), settings.jdbc, folder, spark)

    @property
    def address(self) -> str:
        return self._session.address.shown

    @property
    def shares_views(self) -> bool:
        return False

    def unchanged(self, marks: Mapping[str, ColumnMark]) -> bool:  # noqa: ARG002 - there is no cheap way to know
        self._session.ping()
        return False

    def found_nothing(self, marks: Mapping[str, ColumnMark]) -> None:
        """Nothing is remembered: every poll asks the tables."""

    def relations(self) -> list[Relation]:
        return relations_of(self._session, self._settings)

    def look(self, relations: Sequence[Relation], marks: Mapping[str, ColumnMark]) -> JdbcView:  # noqa: ARG002
        self._session.begin_view()
        return JdbcView(self._session)

    def look_again(self, ends: Mapping[str, ColumnMark]) -> JdbcView:  # noqa: ARG002 - no identity to compare
        self._session.begin_view()
        return JdbcView(self._session)

    def planned(self) -> None:
        """Where there is one writer at a time, a read transaction would keep it from committing."""
        if self._session.address.kind.one_writer:
            self._session.end_view()

    def end_view(self) -> None:
        self._session.end_view()

    def close(self) -> None:
        self._session.close()


@dataclass(frozen=True)
class JdbcView:
    """A read-only transaction. Executors open their own: marks and digests keep them to the window."""

    session: JdbcSession

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return self.session.fetch(sql)

    def split(self, sql: str, relation: Relation, rows: int | None, flags: int = 0) -> Split:
        from headwater.sources.sql.jdbc_rows import JdbcSplit  # noqa: PLC0415 - an idle poll needs no Arrow

        return JdbcSplit(relation.stream, self.session, sql, relation.columns, flags, rows)

    def rows_of(self, relation: Relation, splits: tuple[Split, ...]) -> Rows:
        from headwater.sources.sql.jdbc_rows import JdbcRows  # noqa: PLC0415

        return JdbcRows(relation, splits)

    def parts(
        self, relation: Relation, conditions: Sequence[Condition], rows: int | None, limits: Limits
    ) -> list[tuple[list[Condition], int | None]]:
        """By values of the cursor that as many rows lie between; an index on the cursor counts them off."""
        count = part_count(rows, limits)
        if count == 1 or rows is None:
            return [([], rows)]
        subject = relation.subject
        numbers = sorted({rows * number // count for number in range(1, count)} - {0})
        texts = [found[0][0] for n in numbers if (found := self.fetch(statements.nth_value(subject, conditions, n)))]
        cuts = sorted({parse_value(relation, text) for text in texts}, key=subject.kind.order)
        parts = []
        for low, high in itertools.pairwise([None, *cuts, None]):
            part = [] if low is None else [statements.above(subject, low)]
            parts.append(part if high is None else [*part, statements.at_most(subject, high)])
        return [(part, rows // len(parts)) for part in parts]
