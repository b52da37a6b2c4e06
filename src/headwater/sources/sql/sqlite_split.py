"""A part of a window that is read from a SQLite file, in a read transaction of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.sources.sql.relation import Column
from headwater.sources.sql.sqlite_file import open_sqlite, unreachable
from headwater.sources.sql.sqlite_types import Value, converter
from headwater.sources.sql.types import arrow_schema, not_kept

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
        shown = [
            *self.columns,
            *(Column(f"headwater_flag_{number}", "int64", nullable=True) for number in range(self.flags)),
        ]
        schema = arrow_schema(shown)
        try:
            with closing(open_sqlite(self.path)) as connection:
                cursor = connection.execute(self.sql)
                while rows := cursor.fetchmany(_BATCH_ROWS):
                    yield _batch(rows, shown, schema, self.stream)
        except sqlite3.Error as error:
            raise unreachable(self.path, error) from None


def _batch(
    rows: Sequence[tuple[Value, ...]], columns: Sequence[Column], schema: pa.Schema, stream: str
) -> pa.RecordBatch:
    arrays = []
    for number, values in enumerate(zip(*rows, strict=True)):
        column, take = columns[number], converter(columns[number].kind)
        converted: list[Any] = []
        for value in values:
            try:
                converted.append(take(value))
            except ValueError:
                raise not_kept(stream, column, 1, f"stored as {_storage(value)}{_example(value)}") from None
        arrays.append(pa.array(converted, schema.field(number).type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _storage(value: Value) -> str:
    return {int: "a whole number", float: "a real", str: "a text", bytes: "a blob"}.get(type(value), "NULL")


def _example(value: Value) -> str:
    return f" of {len(value)} bytes" if isinstance(value, bytes) else ""
