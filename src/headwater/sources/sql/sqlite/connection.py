"""Connections to a SQLite file: one for planning, and one for each split, in a read transaction of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.model.errors import HeadwaterError, InputError, SourceUnreachable, UnknownName
from headwater.model.rows import ExactBatch, InexactValues, OnReject, RowIdentity, RowTexts, exact_rows, inexact_error
from headwater.model.types import Column
from headwater.sources.sql.sqlite.types import Value, converter, sql_text

if TYPE_CHECKING:
    import pyarrow as pa

_BUSY_SECONDS = 30.0
_NAME_ERRORS = ("no such table", "no such column")


class SqliteFile:
    """Opens when first needed; between `begin_view` and `end_view` all reads agree."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None

    def fetch(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connect().execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._translate(error) from None

    def data_version(self) -> int:
        """Changes when another connection changed the file. Opens a replaced file again."""
        if self._connection is not None and self._inode != _inode(self.path):
            self.close()
        return int(self.fetch("PRAGMA data_version")[0][0])

    def begin_view(self) -> None:
        self.end_view()
        self.fetch("BEGIN")
        self.fetch("SELECT count(*) FROM sqlite_master")  # the transaction begins with the first read

    def end_view(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._inode = _inode(self.path)
            self._connection = open_sqlite(self.path)
        return self._connection

    def _translate(self, error: sqlite3.Error) -> HeadwaterError:
        text = str(error)
        if any(words in text for words in _NAME_ERRORS):
            return UnknownName(
                f"sqlite file {self.path}: {text}", hint="correct the name in table, query, cursor or where"
            )
        if isinstance(error, sqlite3.OperationalError) and ("syntax error" in text or "incomplete input" in text):
            return InputError(f"sqlite file {self.path}: {text}", hint="correct where or query")
        self.close()
        return unreachable(self.path, error)


def open_sqlite(path: str) -> sqlite3.Connection:
    """Read-only, so that a missing file is an error and nothing is ever created or changed."""
    try:
        uri = Path(path).absolute().as_uri() + "?mode=ro"
        # Autocommit: this module begins and ends read transactions itself.
        return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise unreachable(path, error) from None


def unreachable(path: str, error: sqlite3.Error) -> SourceUnreachable:
    missing = not Path(path).exists()
    return SourceUnreachable(
        f"sqlite file {path}: {'there is no such file' if missing else error}",
        hint="check url; relative paths start at the pipeline file's folder",
    )


def _inode(path: str) -> int | None:
    return Path(path).stat().st_ino if Path(path).exists() else None


_BATCH_ROWS = 20_000


@dataclass(frozen=True)
class SqliteSplit:
    """One statement on one file."""

    identity: RowIdentity
    path: str
    sql: str = field(repr=False)  # holds values of the cursor
    flags: int = 0
    rows: int | None = None

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        return exact_rows(self.read_exact(), self.identity, on_reject)

    def read_exact(self) -> Iterator[ExactBatch]:
        import pyarrow as pa

        from headwater.model.types import arrow_schema

        schema = arrow_schema(self._columns)
        for batch in self._batches():
            columns, inexact = batch.exact(self._columns)
            arrays = [pa.array(values, type_) for values, type_ in zip(columns, schema.types, strict=True)]
            yield ExactBatch(pa.RecordBatch.from_arrays(arrays, schema=schema), tuple(inexact), batch.row_texts)

    def read_values(self) -> Iterator[list[list[Any]]]:
        """The same rows as Python values, in batches, column by column; a value that its type cannot hold, as text."""
        for batch in self._batches():
            columns, inexact = batch.exact(self._columns)
            for column_values in inexact:
                if self._columns[column_values.position].name == self.identity.cursor:
                    raise inexact_error(
                        self.identity.stream,
                        self._columns[column_values.position],
                        len(column_values.texts),
                        column_values.what,
                    )
                for row, text in column_values.texts.items():
                    columns[column_values.position][row] = text
            yield columns

    def _batches(self) -> Iterator[_StoredRows]:
        try:
            with closing(open_sqlite(self.path)) as connection:
                cursor = connection.execute(self.sql)
                while rows := cursor.fetchmany(_BATCH_ROWS):
                    yield _StoredRows(rows)
        except sqlite3.Error as error:
            raise unreachable(self.path, error) from None

    @property
    def _columns(self) -> list[Column]:
        flags = (Column(f"headwater_flag_{number}", "int64", nullable=True) for number in range(self.flags))
        return [*self.identity.columns, *flags]


@dataclass(frozen=True)
class _StoredRows:
    """Some rows as the file stores them."""

    rows: Sequence[tuple[Value, ...]]

    def exact(self, columns: Sequence[Column]) -> tuple[list[list[Any]], list[InexactValues]]:
        """Column by column in the exact types, None for a value that the type cannot hold; and those values."""
        exact: list[list[Any]] = []
        inexact: list[InexactValues] = []
        for position, values in enumerate(zip(*self.rows, strict=True)):
            converted, misfits = _convert(values, columns[position].type)
            exact.append(converted)
            inexact += (InexactValues(position, f"stored as {what}", texts) for what, texts in misfits.items())
        return exact, inexact

    def row_texts(self, row: int) -> RowTexts:
        return [sql_text(value) for value in self.rows[row]]


def _convert(values: Sequence[Value], type_: str) -> tuple[list[Any], dict[str, dict[int, str]]]:
    convert = converter(type_)
    converted = []
    misfits: dict[str, dict[int, str]] = {}
    for row, value in enumerate(values):
        try:
            converted.append(convert(value))
        except ValueError:
            converted.append(None)
            misfits.setdefault(_storage_class(value), {})[row] = sql_text(value) or ""
    return converted, misfits


def _storage_class(value: Value) -> str:
    return {int: "a whole number", float: "a real", str: "a text", bytes: "a blob"}.get(type(value), "NULL")
