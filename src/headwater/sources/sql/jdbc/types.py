"""The types of databases behind JDBC, as the words of `model/types.py`; what fits none of them is read as text (G8).

Read as text: TIME, YEAR, JSON, intervals, uniqueidentifier, xml, and numbers without a bound of at most 38 digits
(Oracle's NUMBER and FLOAT, PostgreSQL's bare numeric, MySQL's DECIMAL(65)). MySQL's TINYINT(1) is a number,
BIT(1) a truth value. SQL Server's rowversion is binary. Times with more than six digits of a second are refused:
`as_text` keeps all of them, a CAST in a `query` drops them on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.model.errors import InputError
from headwater.model.types import MAX_DECIMAL_DIGITS, Column, CursorType, cursor_type_of, decimal_type
from headwater.sources.sql.sqlite import types as sqlite_types

_MAX_INT64_DIGITS, _SECOND_DIGITS = 18, 6
_WORDS = {
    "mysql": {
        "int32": ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER"),
        "int64": ("BIGINT",),
        "float32": ("FLOAT",),
        "float64": ("DOUBLE", "REAL"),
        "decimal": ("DECIMAL", "NUMERIC"),
        "date": ("DATE",),
        "timestamp": ("DATETIME",),
        "timestamptz": ("TIMESTAMP",),
        "string": ("CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET"),
        "binary": ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "GEOMETRY"),
    },
    "tsql": {
        "bool": ("BIT",),
        "int32": ("TINYINT", "SMALLINT", "INT"),
        "int64": ("BIGINT",),
        "float32": ("REAL",),
        "float64": ("FLOAT",),
        "decimal": ("DECIMAL", "NUMERIC", "MONEY", "SMALLMONEY"),
        "date": ("DATE",),
        "timestamp": ("DATETIME", "DATETIME2", "SMALLDATETIME"),
        "timestamptz": ("DATETIMEOFFSET",),
        "string": ("CHAR", "VARCHAR", "NCHAR", "NVARCHAR", "TEXT", "NTEXT", "SYSNAME"),
        "binary": ("BINARY", "VARBINARY", "IMAGE", "TIMESTAMP", "ROWVERSION"),
    },
    "oracle": {
        "float32": ("BINARY_FLOAT",),
        "float64": ("BINARY_DOUBLE",),
        "decimal": ("NUMBER",),
        "timestamp": ("DATE", "TIMESTAMP"),  # Oracle's DATE has a time of day
        "timestamptz": ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE"),
        "string": ("CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2", "CLOB", "NCLOB", "LONG"),
        "binary": ("RAW", "LONG RAW", "BLOB"),
    },
    "postgres": {
        "bool": ("BOOL",),
        "int32": ("INT2", "INT4", "SERIAL", "SMALLSERIAL"),
        "int64": ("INT8", "BIGSERIAL"),
        "float32": ("FLOAT4",),
        "float64": ("FLOAT8",),
        "decimal": ("NUMERIC",),
        "date": ("DATE",),
        "timestamp": ("TIMESTAMP",),
        "timestamptz": ("TIMESTAMPTZ",),
        "string": ("TEXT", "VARCHAR", "BPCHAR", "NAME"),
        "binary": ("BYTEA",),
    },
}
_BY_WORD = {dialect: {word: type_ for type_, ws in types.items() for word in ws} for dialect, types in _WORDS.items()}
_UNBOUNDED = {"oracle": ("NUMBER", "FLOAT"), "postgres": ("NUMERIC",)}
_AS_TEXT = ("date", "timestamp", "timestamptz")
# Spark would pad them with blanks to their declared length, which databases count in other units, or not at all.
_FIXED = {"mysql": ("CHAR", "ENUM", "SET"), "tsql": ("CHAR", "NCHAR"), "oracle": ("CHAR", "NCHAR")}


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result, as the driver describes it."""

    name: str
    declared: str
    precision: int
    scale: int
    nullable: bool
    signed: bool

    @property
    def word(self) -> str:
        """The type alone, without the rest of `int identity`, `BIGINT UNSIGNED` and `TIMESTAMP(6)`."""
        upper = self.declared.upper().replace(" UNSIGNED", "").replace(" ZEROFILL", "").replace(" IDENTITY", "")
        head, opened, rest = upper.partition("(")
        return (head + rest.partition(")")[2] if opened else upper).strip()


def column_of(dialect: str, column: ResultColumn, stream: str, *, text: bool) -> Column:
    """The column as it is read. Raises InputError where its values could not be read exactly (G12)."""
    type_ = None if text else _column_type(dialect, column, stream)
    if type_ is None:
        return Column(column.name, "string", column.nullable, as_text=True, declared=column.word)
    as_text = type_ in _AS_TEXT or column.word in _FIXED.get(dialect, ())
    as_text = as_text or (dialect == "sqlite" and type_ not in ("binary", "float64"))
    return Column(column.name, type_, column.nullable, as_text=as_text, declared=column.word)


def cursor_of(dialect: str, column: ResultColumn, stream: str) -> CursorType:
    """The cursor type of a column. Raises InputError where its order cannot be relied on."""
    cursor_type = None
    if dialect == "sqlite":
        cursor_type = sqlite_types.cursor_type(_sqlite_declared(column))
    elif column.word in _UNBOUNDED.get(dialect, ()):
        cursor_type = CursorType.DECIMAL
    elif dialect == "postgres" and column.word == "UUID":
        cursor_type = CursorType.UUID
    elif dialect == "oracle" and column.word in ("NCHAR", "NVARCHAR2", "CLOB", "NCLOB", "LONG"):
        cursor_type = None
    elif "BIGINT" in column.word:
        cursor_type = CursorType.INTEGER
    elif not column.word.startswith("BIT"):
        cursor_type = cursor_type_of(_column_type(dialect, column, stream) or "")
    if cursor_type is None:
        raise InputError(
            f"{stream}: column {column.name} is of type {column.declared}, which cannot be a cursor",
            hint=_cursor_hint(column),
        )
    return cursor_type


def _cursor_hint(column: ResultColumn) -> str:
    if column.word in ("UNIQUEIDENTIFIER", "UUID"):
        return "this database sorts UUIDs in its own order; use an id or a time, or in a query CAST it to CHAR(36)"
    if column.word.startswith("N") or "CLOB" in column.word:
        return "in a query, CAST it to VARCHAR2(…), or use an id or a time"
    return "a cursor is an integer, decimal, date, time or string; in a query, CAST can make one"


def _column_type(dialect: str, column: ResultColumn, stream: str) -> str | None:
    if dialect == "sqlite":
        return sqlite_types.column_type(_sqlite_declared(column))
    word = column.word
    if dialect == "mysql" and word == "BIT":
        return "bool" if column.precision <= 1 else "decimal(20,0)"
    type_ = _BY_WORD[dialect].get(word)
    if type_ == "decimal":
        return _decimal(dialect, column)
    if type_ in ("int32", "int64") and dialect == "mysql" and not column.signed:
        return _unsigned(word)
    if type_ in ("timestamp", "timestamptz") and dialect in ("tsql", "oracle") and column.scale > _SECOND_DIGITS:
        raise InputError(
            f"{stream}: column {column.name} ({column.declared} with {column.scale} digits of a second) is finer than microseconds",
            hint=f"keep all digits as text (as_text: [{column.name}]), or read a query that CASTs it to six digits",
        )
    return type_


def _unsigned(word: str) -> str:
    if word == "BIGINT":
        return "decimal(20,0)"
    return "int64" if word in ("INT", "INTEGER") else "int32"


def _decimal(dialect: str, column: ResultColumn) -> str | None:
    if column.word in ("MONEY", "SMALLMONEY"):
        return "decimal(19,4)" if column.word == "MONEY" else "decimal(10,4)"
    precision, scale = column.precision, column.scale
    if precision <= 0 or (
        column.word in _UNBOUNDED.get(dialect, ()) and not -MAX_DECIMAL_DIGITS <= scale <= MAX_DECIMAL_DIGITS
    ):
        return None
    if scale < 0:
        precision, scale = precision - scale, 0
    if dialect == "oracle" and scale == 0 and precision <= _MAX_INT64_DIGITS:
        return "int64"
    return decimal_type(max(precision, scale), scale)


def _sqlite_declared(column: ResultColumn) -> str:
    """The declared type; the driver splits `DECIMAL(10,2)`."""
    if column.word in ("DECIMAL", "NUMERIC", "NUMBER") and column.precision > 0:
        return f"{column.word}({column.precision},{column.scale})"
    return column.word
