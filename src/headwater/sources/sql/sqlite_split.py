"""A part of a window that is read from a SQLite file, in a read transaction of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.sources.sql.relation import Column
from headwater.sources.sql.sqlite_file import open_sqlite, unreachable
from headwater.sources.sql.sqlite_types import Value, converter

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 20_000


@dataclass(frozen=True)
class SqliteSplit:
    """One statement on one file."""

    stream: str
    path: str
    sql: str = field(repr=False)  # holds values of the cursor
    columns: tuple[Column, ...] = field(repr=False)
    flags: int = 0
    rows: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - an idle poll reads values, and needs no Arrow

        from headwater.sources.sql.types import arrow_schema  # noqa: PLC0415

        schema = arrow_schema(self._shown)
        for columns in self.read_values():
            arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def read_values(self) -> Iterator[list[list[Any]]]:
        """The same rows as Python values: some rows at a time, column by column."""
        try:
            with closing(open_sqlite(self.path)) as connection:
                cursor = connection.execute(self.sql)
                while rows := cursor.fetchmany(_BATCH_ROWS):
                    columns = zip(self._shown, zip(*rows, strict=True), strict=True)
                    yield [_exact(values, column, self.stream) for column, values in columns]
        except sqlite3.Error as error:
            raise unreachable(self.path, error) from None

    @property
    def _shown(self) -> list[Column]:
        flags = (Column(f"headwater_flag_{number}", "int64", nullable=True) for number in range(self.flags))
        return [*self.columns, *flags]


def _exact(values: Sequence[Value], column: Column, stream: str) -> list[Any]:
    take = converter(column.kind)
    converted = []
    for value in values:
        try:
            converted.append(take(value))
        except ValueError:
            from headwater.sources.sql.types import not_kept  # noqa: PLC0415 - as above

            raise not_kept(stream, column, 1, f"stored as {_storage(value)}{_example(value)}") from None
    return converted


def _storage(value: Value) -> str:
    return {int: "a whole number", float: "a real", str: "a text", bytes: "a blob"}.get(type(value), "NULL")


def _example(value: Value) -> str:
    return f" of {len(value)} bytes" if isinstance(value, bytes) else ""
