"""SQLite as a database of the `sql` source: its catalog and its views, read with Python's own driver, never written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.config.sources.sql import SqlSourceSettings
from headwater.model.errors import HeadwaterError, InputError, UnknownName, ValueNotKept
from headwater.model.position.marks import ColumnMark
from headwater.model.rows import Rows, Split
from headwater.model.types import Column
from headwater.pg.names import did_you_mean, is_pattern, match_names, split_name
from headwater.sources.sql import statements
from headwater.sources.sql.database import Limits, Relation, Subject, rows_of, split_count
from headwater.sources.sql.dialects import malformed_cursor, strays
from headwater.sources.sql.sqlite.connection import SqliteFile, SqliteSplit
from headwater.sources.sql.sqlite.types import column_type, cursor_type
from headwater.sources.sql.windows.late_rows import Choice, choice_of_setting

if TYPE_CHECKING:
    from headwater.sources.sql.dialects import Condition

# SQLite's writers commit one after the other, so numbers that SQLite assigns (INTEGER PRIMARY KEY) become visible
# in their order, and comparing digests at the mark's value is complete. Times that applications write may still
# commit late: `late: {lookback: …}` covers them.


class SqliteDatabase:
    """One connection to one file."""

    def __init__(self, settings: SqlSourceSettings, path: str) -> None:
        self._settings, self._file = settings, SqliteFile(path)
        self._version = 0
        self._unchanged: tuple[int, Mapping[str, ColumnMark]] | None = None

    @property
    def address(self) -> str:
        return f"sqlite:///{self._file.path}"

    @property
    def shares_views(self) -> bool:
        return False

    def is_unchanged(self, marks: Mapping[str, ColumnMark]) -> bool:
        """SQLite counts the changes of other connections; this process makes none."""
        version = self._file.data_version()
        return bool(marks) and self._unchanged == (version, marks)

    def remember_unchanged(self, marks: Mapping[str, ColumnMark]) -> None:
        self._unchanged = (self._version, dict(marks))

    def relations(self) -> list[Relation]:
        return relations_of(self._file, self._settings)

    def view(self, relations: Sequence[Relation], marks: Mapping[str, ColumnMark]) -> SqliteView:
        self._version = self._file.data_version()
        self._file.begin_view()
        view = SqliteView(self._file)
        for relation in relations:
            if relation.nullable_cursor or not relation.cursor_is_rowid:
                check_cursor_storage(relation, marks.get(relation.stream), view)
        return view

    def reopen_view(self, ends: Mapping[str, ColumnMark]) -> SqliteView:  # noqa: ARG002 - files have no identity
        self._file.begin_view()
        return SqliteView(self._file)

    def finish_plan(self) -> None:
        """A read transaction would block commits."""
        self._file.end_view()

    def end_view(self) -> None:
        self._file.end_view()

    def close(self) -> None:
        self._unchanged = None
        self._file.close()


@dataclass(frozen=True)
class SqliteView:
    """A read transaction. Executors open their own: marks and digests bound their reads."""

    file: SqliteFile

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return self.file.fetch(sql)

    def split(self, sql: str, relation: Relation, rows: int | None, flags: int = 0) -> Split:
        return SqliteSplit(relation.row_identity, self.file.path, sql, flags, rows)

    def rows_of(self, relation: Relation, splits: tuple[Split, ...]) -> Rows:
        return rows_of(relation, splits)

    def ranges(
        self, relation: Relation, conditions: Sequence[Condition], rows: int | None, limits: Limits
    ) -> list[tuple[list[Condition], int | None]]:
        """By rowids, if the table has them."""
        count = split_count(rows, limits)
        if count == 1 or relation.pages is None:
            return [([], rows)]
        first, last = self.fetch(statements.rowid_span(relation.subject, conditions))[0]
        if first is None:
            return [([], rows)]
        step = max(1, -(-(last - first + 1) // count))
        starts = list(range(first, last + 1, step))
        ends = [*starts[1:], None]
        share = None if rows is None else rows // len(starts)
        return [
            (statements.rowid_range(None if begin == first else begin, end), share)
            for begin, end in zip(starts, ends, strict=True)
        ]


def check_cursor_storage(relation: Relation, mark: ColumnMark | None, view: SqliteView) -> None:
    """Refuse cursor values that do not sort as their type does: windows would skip them silently (G6)."""
    subject = relation.subject
    newer = [statements.with_value(subject)]
    if mark is not None and mark.value is not None:
        newer = [statements.after_value(subject, mark.value)]
    malformed = malformed_cursor(subject)
    for conditions in [*([stray] for stray in strays(subject)), *([] if malformed is None else [[*newer, malformed]])]:
        rows = view.fetch(statements.storage_of_one(subject, conditions))
        if rows:
            raise ValueNotKept(
                f"{relation.stream}: the cursor {subject.cursor} is declared {relation.cursor_declared}, but a row holds "
                f"a value of storage class {rows[0][0]} that is not a {subject.cursor_type.value} in its usual form",
                hint="correct the row, or exclude such rows with where",
            )


DIALECT = "sqlite"
_VIEW = "headwater_query"
_HIDDEN = 1  # columns of virtual tables that a star does not show


def relations_of(file: SqliteFile, settings: SqlSourceSettings) -> list[Relation]:
    """The streams as the file has them now."""
    if settings.query is not None:
        query = settings.query.strip().rstrip(";")
        file.fetch(f"DROP VIEW IF EXISTS temp.{_VIEW}")
        file.fetch(f"CREATE TEMP VIEW {_VIEW} AS SELECT * FROM (\n{query}\n)")  # noqa: S608 - the user's own SQL
        return [_relation(file, settings, "query", ("temp", _VIEW), query=query)]
    if settings.table is not None:
        return [_relation(file, settings, settings.table, _resolve_table(file, settings.table))]
    names = _table_names(file)
    streams: dict[str, tuple[str, ...]] = {}
    for written in settings.tables or []:
        if not is_pattern(written):
            streams[written] = _resolve_table(file, written)
            continue
        matches = match_names(written, [("main", name) for name in names], "main")
        if not matches:
            raise UnknownName(
                f"sqlite file {file.path}: no table matches {written!r}", hint=did_you_mean(written, names)
            )
        streams |= {name: (schema, name) for schema, name in matches}
    return [_relation(file, settings, stream, identifiers) for stream, identifiers in sorted(streams.items())]


def _table_names(file: SqliteFile) -> list[str]:
    sql = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite@_%' ESCAPE '@'"
    return sorted(name for (name,) in file.fetch(sql))


def _resolve_table(file: SqliteFile, written: str) -> tuple[str, ...]:
    identifiers = split_name(written)
    names = _table_names(file)
    exact = {name.lower(): name for name in names}.get(identifiers[-1].lower())  # SQLite's names ignore case
    if exact is None or (len(identifiers) > 1 and identifiers[0].lower() != "main"):
        raise UnknownName(f"sqlite file {file.path}: table {written} does not exist", hint=did_you_mean(written, names))
    return ("main", exact)


def _relation(
    file: SqliteFile, settings: SqlSourceSettings, stream: str, identifiers: tuple[str, ...], query: str = ""
) -> Relation:
    rows = file.fetch(
        'SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?, ?) WHERE hidden <> ?',
        [identifiers[1], identifiers[0], _HIDDEN],
    )
    declared = {name: str(type_ or "") for name, type_, _, _ in rows}
    for name in [settings.cursor, *(settings.columns or []), *settings.as_text, *(settings.key or [])]:
        if name not in declared:
            raise UnknownName(f"{stream} has no column {name}", hint=did_you_mean(name, list(declared)))
    key_columns = [name for _, name in sorted((pk, name) for name, _, _, pk in rows if pk)]
    has_rowids = _has_rowids(file, identifiers, declared) and not query
    alias = (
        key_columns[0]
        if has_rowids and len(key_columns) == 1 and declared[key_columns[0]].upper() == "INTEGER"
        else None
    )
    type_ = cursor_type(declared[settings.cursor])
    if type_ is None:
        raise InputError(
            f"{stream}: column {settings.cursor} is declared {declared[settings.cursor] or 'without a type'}, which cannot be a cursor",
            hint="a cursor is declared INTEGER, DECIMAL, DATE, TIMESTAMP, TEXT or UUID; in a query use CAST, or name the table",
        )
    wanted_names = {*settings.columns, settings.cursor, *(settings.key or [])} if settings.columns else set(declared)
    columns = tuple(
        Column(
            name,
            "string" if name in settings.as_text else column_type(type_),
            nullable=not notnull and name != alias,
            declared=str(type_ or "no type"),
        )
        for name, type_, notnull, _ in rows
        if name in wanted_names
    )
    subject = Subject(DIALECT, settings.cursor, type_, () if query else identifiers, query, settings.where or "")
    nullable = next(column.nullable for column in columns if column.name == settings.cursor)
    choice = _choose_late(settings, stream)
    return Relation(
        stream=stream,
        subject=subject,
        columns=columns,
        key=tuple(settings.key or key_columns),
        nullable_cursor=nullable,
        late=choice.strategy,
        why=choice.why,
        pages=0 if has_rowids else None,
        cursor_is_rowid=alias == settings.cursor,
    )


def _choose_late(settings: SqlSourceSettings, stream: str) -> Choice:
    if settings.late == "scan":
        raise InputError(
            f"{stream}: late: scan needs transaction ids, which SQLite does not have",
            hint="remove late (SQLite's writers commit one after the other), or write late: {lookback: …}",
        )
    why = "late rows: those that share the mark's value; SQLite's writers commit one after the other"
    return choice_of_setting(settings.late) or Choice("digest", why)


def _has_rowids(file: SqliteFile, identifiers: tuple[str, ...], declared: dict[str, str]) -> bool:
    """False for views, WITHOUT ROWID tables, and tables with a column named rowid."""
    if any(name.lower() == "rowid" for name in declared) or identifiers[0] == "temp":
        return False
    if not file.fetch("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [identifiers[1]]):
        return False
    quoted = identifiers[1].replace('"', '""')
    try:
        file.fetch(f'SELECT rowid FROM "{quoted}" LIMIT 0')  # noqa: S608 - a quoted name
    except HeadwaterError:
        return False
    return True
