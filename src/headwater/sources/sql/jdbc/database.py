"""Databases behind JDBC drivers in the `sql` source: their catalog and views; by `jdbc:…` also others than MySQL, MariaDB, SQL Server, Oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.config.sources.sql import SqlSourceSettings
from headwater.model.errors import InputError, UnknownName
from headwater.model.position.marks import ColumnMark
from headwater.model.rows import Rows, Split
from headwater.model.types import CursorType
from headwater.pg.names import did_you_mean, is_pattern, match_names, split_name
from headwater.sources.sql import statements
from headwater.sources.sql.database import Limits, Relation, Subject, split_count
from headwater.sources.sql.jdbc.session import JdbcSession, TableName
from headwater.sources.sql.jdbc.types import ResultColumn, column_of, cursor_of
from headwater.sources.sql.jdbc.vendors import Vendor, jdbc_address
from headwater.sources.sql.statements import describe
from headwater.sources.sql.windows.late_rows import Choice, choice_of_setting
from headwater.sources.sql.windows.watermark import parse_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.sources.sql.dialects import Condition

# A plan uses one connection in the driver's JVM and starts no Spark job, but it needs the JVM: an idle `run --once` takes
# the seconds of its start. Spark's JDBC reader reads the window.
#
# Caveats:
#
# - Late rows. Windows are planned by digests (`windows/by_value.py`): rows that share the mark's value are found, rows
#   that commit late below it only with `late: {lookback: …}`; the plan says so. These databases have concurrent writers.
# - One view. Planning reads in one REPEATABLE READ (MySQL, MariaDB), SNAPSHOT (SQL Server, where the database
#   allows it), or READ ONLY transaction (Oracle); executors open their own. A row that changes between the two
#   leaves this window and is in a later one, as its cursor grows.
# - Types: see `types.py`. Times are read as text in UTC sessions and parsed exactly; a value without an exact
#   form (MySQL's '0000-00-00') stops the read.
# - Strings as cursors are compared as bytes, which no index serves; SQL Server needs version 2019 for it, Oracle
#   a database in AL32UTF8. SQL Server's uniqueidentifier and rowversion cannot be cursors.
# - A `query` stands in a FROM clause: on SQL Server without ORDER BY and WITH.
# - `jdbc:sqlite:` trusts declared cursor types where `sqlite:///` checks what is stored; `jdbc:postgresql:` has no
#   transaction ids. The native addresses are better; these serve to compare the two readers.


class JdbcDatabase:
    """One connection for planning; `spark` returns the session whose JVM it lives in."""

    def __init__(self, settings: SqlSourceSettings, folder: Path, spark: Callable[[], SparkSession]) -> None:
        self._settings = settings
        self._session = JdbcSession(jdbc_address(settings.url.reveal(), folder), settings.jdbc, folder, spark)

    @property
    def address(self) -> str:
        return self._session.address.text

    @property
    def shares_views(self) -> bool:
        return False

    def is_unchanged(self, marks: Mapping[str, ColumnMark]) -> bool:  # noqa: ARG002 - there is no cheap way to know
        self._session.ping()
        return False

    def remember_unchanged(self, marks: Mapping[str, ColumnMark]) -> None:
        """Every poll queries the tables."""

    def relations(self) -> list[Relation]:
        return relations_of(self._session, self._settings)

    def view(self, relations: Sequence[Relation], marks: Mapping[str, ColumnMark]) -> JdbcView:  # noqa: ARG002
        self._session.begin_view()
        return JdbcView(self._session)

    def reopen_view(self, ends: Mapping[str, ColumnMark]) -> JdbcView:  # noqa: ARG002 - no identity to compare
        self._session.begin_view()
        return JdbcView(self._session)

    def finish_plan(self) -> None:
        """With one writer at a time, a read transaction blocks its commit."""
        if self._session.address.vendor.one_writer:
            self._session.end_view()

    def end_view(self) -> None:
        self._session.end_view()

    def close(self) -> None:
        self._session.close()


@dataclass(frozen=True)
class JdbcView:
    """A read-only transaction. Executors open their own: marks and digests bound their reads."""

    session: JdbcSession

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return self.session.fetch(sql)

    def split(self, sql: str, relation: Relation, rows: int | None, flags: int = 0) -> Split:
        from headwater.sources.sql.jdbc.rows import JdbcSplit

        return JdbcSplit(relation.stream, self.session, sql, relation.columns, flags, rows)

    def rows_of(self, relation: Relation, splits: tuple[Split, ...]) -> Rows:
        from headwater.sources.sql.jdbc.rows import jdbc_rows

        return jdbc_rows(relation, splits)

    def ranges(
        self, relation: Relation, conditions: Sequence[Condition], rows: int | None, limits: Limits
    ) -> list[tuple[list[Condition], int | None]]:
        """By cursor values that divide the rows evenly; an index on the cursor serves the search."""
        count = split_count(rows, limits)
        if count == 1 or rows is None:
            return [([], rows)]
        subject = relation.subject
        numbers = sorted({rows * number // count for number in range(1, count)} - {0})
        cuts = {
            parse_value(relation, row[0])
            for number in numbers
            for row in self.fetch(statements.nth_value(subject, conditions, number))
        }
        ranges = statements.cursor_ranges(subject, sorted(cuts, key=subject.cursor_type.order))
        return [(cursor_range, rows // len(ranges)) for cursor_range in ranges]


def relations_of(session: JdbcSession, settings: SqlSourceSettings) -> list[Relation]:
    """The streams as the catalog has them now: new tables that a pattern matches appear on their own."""
    if settings.query is not None:
        subject = _subject(session, settings, query=settings.query)
        return [_relation(session, settings, "query", subject, None)]
    if settings.table is not None:
        return [_table_relation(session, settings, settings.table, _table(session, settings.table))]
    streams: dict[str, TableName] = {}
    for written in settings.tables or []:
        if is_pattern(written):
            matches = _match_tables(session, written)
            streams |= {f"{table.schema}.{table.name}": table for table in matches if table not in streams.values()}
        else:
            streams[written] = _table(session, written)
    return [_table_relation(session, settings, stream, table) for stream, table in sorted(streams.items())]


def _table(session: JdbcSession, written: str) -> TableName:
    """The table of that exact name, or else the only one that differs in case alone."""
    identifiers = split_name(written)
    schema = identifiers[0] if len(identifiers) > 1 else session.default_schema
    exact = session.tables(schema, identifiers[-1])
    exact = [table for table in exact if table.name == identifiers[-1] and (not schema or table.schema in ("", schema))]
    if exact:
        return exact[0]
    tables = session.tables(None if len(identifiers) > 1 else schema, None)
    folded = [
        table
        for table in tables
        if table.name.lower() == identifiers[-1].lower()
        and (len(identifiers) == 1 or table.schema.lower() == schema.lower())
    ]
    if len(folded) == 1:
        return folded[0]
    names = [f"{table.schema}.{table.name}" if table.schema else table.name for table in tables]
    raise UnknownName(f"{session.address.text}: table {written} does not exist", hint=did_you_mean(written, names))


def _match_tables(session: JdbcSession, pattern: str) -> list[TableName]:
    default = session.default_schema
    tables = {(table.schema, table.name): table for table in session.tables(None, None)}
    names = match_names(pattern, tables, default)
    if not names:
        schemas = sorted({f"{schema}.*" for schema, _ in tables})
        raise UnknownName(f"{session.address.text}: no table matches {pattern!r}", hint=did_you_mean(pattern, schemas))
    return [tables[name] for name in names]


def _table_relation(session: JdbcSession, settings: SqlSourceSettings, stream: str, table: TableName) -> Relation:
    name = (table.schema, table.name) if table.schema else (table.name,)
    return _relation(session, settings, stream, _subject(session, settings, name=name), table)


def _subject(session: JdbcSession, settings: SqlSourceSettings, name: tuple[str, ...] = (), query: str = "") -> Subject:
    dialect, where = session.address.vendor.dialect, settings.where or ""
    return Subject(dialect, settings.cursor, CursorType.INTEGER, name, query.strip().rstrip(";"), where)


def _relation(
    session: JdbcSession, settings: SqlSourceSettings, stream: str, subject: Subject, table: TableName | None
) -> Relation:
    vendor, dialect = session.address.vendor, subject.dialect
    result_columns = session.describe(describe(subject))
    names = _ColumnNames(stream, {column.name: column for column in result_columns})
    cursor = names.resolve(settings.cursor)
    as_text = {names.resolve(name) for name in settings.as_text}
    key = tuple(names.resolve(name) for name in settings.key or ())
    selected = (
        {names.resolve(name) for name in settings.columns} | {cursor, *key} if settings.columns else set(names.columns)
    )
    # Only tables are trusted: an outer join makes NULLs in columns that a driver calls NOT NULL.
    is_table = table is not None and "VIEW" not in table.type.upper()
    columns = tuple(
        column_of(dialect, column if is_table else replace(column, nullable=True), stream, text=column.name in as_text)
        for column in result_columns
        if column.name in selected
    )
    cursor_column = names.columns[cursor]
    choice = _choose_late(settings, stream, vendor)
    return Relation(
        stream=stream,
        subject=replace(
            subject,
            cursor=cursor,
            cursor_type=cursor_of(dialect, cursor_column, stream),
            padded=dialect == "postgres" and cursor_column.word == "BPCHAR",
            declared=cursor_column.word,
        ),
        columns=columns,
        key=key or (session.primary_key(table) if table is not None else ()),
        nullable_cursor=next(column.nullable for column in columns if column.name == cursor),
        late=choice.strategy,
        why=choice.why,
        warnings=choice.warnings,
    )


@dataclass(frozen=True)
class _ColumnNames:
    """The columns of a stream, by their exact name, or by the only one that differs in case alone."""

    stream: str
    columns: dict[str, ResultColumn]

    def resolve(self, written: str) -> str:
        if written in self.columns:
            return written
        folded = [name for name in self.columns if name.lower() == written.lower()]
        if len(folded) == 1:
            return folded[0]
        raise UnknownName(f"{self.stream} has no column {written}", hint=did_you_mean(written, list(self.columns)))


def _choose_late(settings: SqlSourceSettings, stream: str, vendor: Vendor) -> Choice:
    if settings.late == "scan":
        raise InputError(
            f"{stream}: late: scan needs transaction ids, which JDBC drivers do not show",
            hint="write late: {lookback: …} to read rows shortly below the mark again",
        )
    if choice := choice_of_setting(settings.late):
        return choice
    if vendor.one_writer:
        why = f"late rows: those that share the mark's value; {vendor.name}'s writers commit one after the other"
        return Choice("digest", why)
    alternative = ", or a postgresql:// address, which finds all of them" if vendor.dialect == "postgres" else ""
    warning = (
        f"{stream}: rows that commit late below the mark are only found with late: {{lookback: …}}{alternative}; "
        f"{vendor.name} has concurrent writers, and its driver shows no transaction ids"
    )
    return Choice("digest", "late rows: only those that share the mark's value", warnings=(warning,))
