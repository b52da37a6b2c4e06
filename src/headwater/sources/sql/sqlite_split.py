"""A part of a window that is read from a SQLite file, in a read transaction of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.model.rejects import SetAside
from headwater.sources.sql.relation import Column
from headwater.sources.sql.sqlite_file import open_sqlite, unreachable
from headwater.sources.sql.sqlite_types import Value, converter, own_text
from headwater.sources.sql.unkept import Part, RowNames, Unkept, Written, kept_rows, kept_whole, not_kept

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 20_000


@dataclass(frozen=True)
class SqliteSplit:
    """One statement on one file."""

    names: RowNames
    path: str
    sql: str = field(repr=False)  # holds values of the cursor
    flags: int = 0
    rows: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        return kept_whole(self.read_parts(), self.names)

    def read_setting_aside(self, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        return kept_rows(self.read_parts(), self.names, set_aside)

    def read_parts(self) -> Iterator[Part]:
        import pyarrow as pa  # noqa: PLC0415 - an idle poll reads values, and needs no Arrow

        from headwater.sources.sql.types import arrow_schema  # noqa: PLC0415

        schema = arrow_schema(self._shown)
        for stored in self._stored():
            columns, unkept = stored.exact(self._shown)
            arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
            yield Part(pa.RecordBatch.from_arrays(arrays, schema=schema), tuple(unkept), stored.written)

    def read_values(self) -> Iterator[list[list[Any]]]:
        """The same rows as Python values, some rows at a time, column by column; what is not kept, as its text."""
        for stored in self._stored():
            columns, unkept = stored.exact(self._shown)
            for one in unkept:
                if self._shown[one.position].name == self.names.cursor:
                    raise not_kept(self.names.stream, self._shown[one.position], len(one.texts), one.what)
                for row, text in one.texts.items():
                    columns[one.position][row] = text
            yield columns

    def _stored(self) -> Iterator[_Stored]:
        try:
            with closing(open_sqlite(self.path)) as connection:
                cursor = connection.execute(self.sql)
                while rows := cursor.fetchmany(_BATCH_ROWS):
                    yield _Stored(rows)
        except sqlite3.Error as error:
            raise unreachable(self.path, error) from None

    @property
    def _shown(self) -> list[Column]:
        flags = (Column(f"headwater_flag_{number}", "int64", nullable=True) for number in range(self.flags))
        return [*self.names.columns, *flags]


@dataclass(frozen=True)
class _Stored:
    """Some rows as they are in the file."""

    rows: Sequence[tuple[Value, ...]]

    def exact(self, columns: Sequence[Column]) -> tuple[list[list[Any]], list[Unkept]]:
        """Column by column in the exact types, None in place of what is not kept; and that."""
        exact: list[list[Any]] = []
        unkept: list[Unkept] = []
        for position, values in enumerate(zip(*self.rows, strict=True)):
            converted, wrong = _converted(values, columns[position].kind)
            exact.append(converted)
            unkept += (Unkept(position, f"stored as {what}", texts) for what, texts in wrong.items())
        return exact, unkept

    def written(self, row: int) -> Written:
        return [own_text(value) for value in self.rows[row]]


def _converted(values: Sequence[Value], kind: str) -> tuple[list[Any], dict[str, dict[int, str]]]:
    take = converter(kind)
    converted = []
    wrong: dict[str, dict[int, str]] = {}
    for row, value in enumerate(values):
        try:
            converted.append(take(value))
        except ValueError:
            converted.append(None)
            wrong.setdefault(_storage(value), {})[row] = own_text(value) or ""
    return converted, wrong


def _storage(value: Value) -> str:
    return {int: "a whole number", float: "a real", str: "a text", bytes: "a blob"}.get(type(value), "NULL")
