"""What one stream reads: a table or a query with its columns, its cursor and its way to find late rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from headwater.model.cursor import CursorType

if TYPE_CHECKING:
    import pyarrow as pa

# How rows that commit late are found (G6).
#   bounded  by transaction number, above a value below which nothing can come any more
#   scan     by transaction number, over the whole table
#   edge     by digests of the rows at (and shortly below) the mark
#   off      not at all
LateWay = Literal["bounded", "scan", "edge", "off"]


@dataclass(frozen=True)
class Column:
    """A column as it is read. `kind` is a word of `types.py`; `as_text` has the database make a text of it."""

    name: str
    kind: str
    nullable: bool
    as_text: bool = False
    is_jsonb: bool = False  # PostgreSQL sends its text after one byte; with a cast the server would copy it once more
    declared: str = ""  # the database's own name of the type, for messages


@dataclass(frozen=True)
class Subject:
    """What is read, in the words that SQL text is made of."""

    dialect: str  # sqlglot's name
    cursor: str
    kind: CursorType
    name: tuple[str, ...] = ()  # schema and table
    query: str = ""  # instead of a table
    where: str = ""
    padded: bool = False  # char(n): compared as text, without the padding
    declared: str = ""  # the cursor's type in the database's words, where literals follow it (JDBC)


@dataclass(frozen=True)
class Ticker:
    """What numbers a bounded cursor: a sequence or the clock of the server."""

    kind: Literal["sequence", "instant", "wall clock", "any wall clock", "date"]
    sequence: int = 0  # its oid


@dataclass(frozen=True)
class Relation:
    """One stream's subject with all that the catalog says about it."""

    stream: str
    subject: Subject
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    nullable_cursor: bool
    late: LateWay
    why: str  # of the way to find late rows, for `headwater plan`
    ticker: Ticker | None = None
    rows: int | None = None  # the database's own estimate
    pages: int | None = None  # None: cannot be split by place
    row_numbers: bool = False  # the cursor is the very number of the row (SQLite)
    storage: str = ""  # of the sequence; changes when it was restarted or altered
    warnings: tuple[str, ...] = field(default=())

    @property
    def cursor_declared(self) -> str:
        return next(column.declared for column in self.columns if column.name == self.subject.cursor)

    @property
    def schema(self) -> pa.Schema:
        from headwater.sources.sql.types import arrow_schema  # noqa: PLC0415 - an idle poll needs no Arrow

        return arrow_schema(self.columns)
