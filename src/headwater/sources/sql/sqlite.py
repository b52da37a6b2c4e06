"""SQLite as a database of the `sql` source, read with Python's own driver, never written.

Writers come one after the other there, so numbers that SQLite gives out (INTEGER PRIMARY KEY) become visible
in their order, and comparing digests at the mark's value is complete. Times that applications write may still
come late: `late: {lookback: …}` covers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.config.sql_source import SqlSource
from headwater.model.errors import ValueNotKept
from headwater.model.marks import ColumnMark
from headwater.model.rows import Split
from headwater.sources.sql import statements
from headwater.sources.sql.cursor_sql import misshapen, strays
from headwater.sources.sql.relation import Relation
from headwater.sources.sql.sqlite_catalog import relations_of
from headwater.sources.sql.sqlite_file import SqliteFile
from headwater.sources.sql.sqlite_split import SqliteSplit
from headwater.sources.sql.unkept import RowNames
from headwater.sources.sql.view import Limits, part_count

if TYPE_CHECKING:
    from headwater.sources.sql.cursor_sql import Condition


class SqliteDatabase:
    """One connection to one file."""

    def __init__(self, settings: SqlSource, path: str) -> None:
        self._settings, self._file = settings, SqliteFile(path)
        self._version = 0
        self._nothing_new: tuple[int, Mapping[str, ColumnMark]] | None = None

    @property
    def address(self) -> str:
        return f"sqlite:///{self._file.path}"

    @property
    def shares_views(self) -> bool:
        return False

    def unchanged(self, marks: Mapping[str, ColumnMark]) -> bool:
        """SQLite counts the changes that others make to the file; ours are none."""
        version = self._file.data_version()
        return bool(marks) and self._nothing_new == (version, marks)

    def found_nothing(self, marks: Mapping[str, ColumnMark]) -> None:
        self._nothing_new = (self._version, dict(marks))

    def relations(self) -> list[Relation]:
        return relations_of(self._file, self._settings)

    def look(self, relations: Sequence[Relation], marks: Mapping[str, ColumnMark]) -> SqliteView:
        self._version = self._file.data_version()
        self._file.begin_view()
        view = SqliteView(self._file)
        for relation in relations:
            if relation.nullable_cursor or not relation.row_numbers:
                check_storage(relation, marks.get(relation.stream), view)
        return view

    def look_again(self, ends: Mapping[str, ColumnMark]) -> SqliteView:  # noqa: ARG002 - files have no identity
        self._file.begin_view()
        return SqliteView(self._file)

    def planned(self) -> None:
        """A read transaction would keep writers from committing."""
        self._file.end_view()

    def end_view(self) -> None:
        self._file.end_view()

    def close(self) -> None:
        self._nothing_new = None
        self._file.close()


@dataclass(frozen=True)
class SqliteView:
    """A read transaction. Executors open their own: marks and digests keep them to the window."""

    file: SqliteFile

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return self.file.fetch(sql)

    def split(self, sql: str, relation: Relation, rows: int | None, flags: int = 0) -> Split:
        return SqliteSplit(RowNames.of(relation), self.file.path, sql, flags, rows)

    def parts(
        self, relation: Relation, conditions: Sequence[Condition], rows: int | None, limits: Limits
    ) -> list[tuple[list[Condition], int | None]]:
        """By the numbers of the rows, where the table has them."""
        count = part_count(rows, limits)
        if count == 1 or relation.pages is None:
            return [([], rows)]
        first, last = self.fetch(statements.rowid_span(relation.subject, conditions))[0]
        if first is None:
            return [([], rows)]
        step = max(1, -(-(last - first + 1) // count))
        starts = list(range(first, last + 1, step))
        ends = [*starts[1:], None]
        each = None if rows is None else rows // len(starts)
        return [
            (statements.rowid_range(None if begin == first else begin, end), each)
            for begin, end in zip(starts, ends, strict=True)
        ]


def check_storage(relation: Relation, mark: ColumnMark | None, view: SqliteView) -> None:
    """Cursor values that sort elsewhere than their type says would be skipped in silence (G6)."""
    subject = relation.subject
    newer = [statements.with_value(subject)]
    if mark is not None and mark.value is not None:
        newer = [statements.after_value(subject, mark.value)]
    odd = misshapen(subject)
    for conditions in [*([stray] for stray in strays(subject)), *([] if odd is None else [[*newer, odd]])]:
        found = view.fetch(statements.storage_of_one(subject, conditions))
        if found:
            raise ValueNotKept(
                f"{relation.stream}: the cursor {subject.cursor} is declared {relation.cursor_declared}, but a row holds "
                f"a value of storage class {found[0][0]} that is no {subject.kind.value} in its usual form",
                hint="correct the row, or leave such rows out with where",
            )
