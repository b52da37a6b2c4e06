"""The types of databases behind JDBC, as the words of `types.py`; what fits none of them exactly is read as text (G8).

Read as text: TIME, YEAR, JSON, intervals, uniqueidentifier, xml, and numbers without a bound of at most 38 digits
(Oracle's NUMBER and FLOAT, PostgreSQL's bare numeric, MySQL's DECIMAL(65)). MySQL's TINYINT(1) is a number,
BIT(1) a truth value. SQL Server's rowversion is binary. Times with more than six digits of a second are refused:
`as_text` keeps all of them, a CAST in a `query` drops them on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.model.cursor import CursorType
from headwater.model.errors import InputError
from headwater.sources.sql import sqlite_types
from headwater.sources.sql.relation import Column

_MAX_DIGITS, _MAX_INT64_DIGITS, _MICROSECONDS = 38, 18, 6
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
_BY_WORD = {dialect: {word: kind for kind, ws in kinds.items() for word in ws} for dialect, kinds in _WORDS.items()}
_UNBOUNDED = {"oracle": ("NUMBER", "FLOAT"), "postgres": ("NUMERIC",)}
_CURSORS = {
    "int32": CursorType.INTEGER,
    "int64": CursorType.INTEGER,
    "date": CursorType.DATE,
    "timestamp": CursorType.TIMESTAMP,
    "timestamptz": CursorType.TIMESTAMPTZ,
    "string": CursorType.STRING,
}
_BY_TEXT = ("date", "timestamp", "timestamptz")
# Spark would fill them up with blanks to their declared length, which databases count in other units, or not at all.
_FIXED = {"mysql": ("CHAR", "ENUM", "SET"), "tsql": ("CHAR", "NCHAR"), "oracle": ("CHAR", "NCHAR")}


@dataclass(frozen=True)
class Described:
    """A column of a result, in the driver's words."""

    name: str
    declared: str
    precision: int
    scale: int
    nullable: bool
    signed: bool

    @property
    def word(self) -> str:
        """The type alone: `int identity`, `BIGINT UNSIGNED` and `TIMESTAMP(6)` lose what is said beside it."""
        upper = self.declared.upper().replace(" UNSIGNED", "").replace(" ZEROFILL", "").replace(" IDENTITY", "")
        head, opened, rest = upper.partition("(")
        return (head + rest.partition(")")[2] if opened else upper).strip()


def column_of(dialect: str, found: Described, stream: str, *, text: bool) -> Column:
    """The column as it is read. Raises InputError where its values could only be kept in part (G12)."""
    kind = None if text else _kind(dialect, found, stream)
    if kind is None:
        return Column(found.name, "string", found.nullable, as_text=True, declared=found.word)
    by_text = kind in _BY_TEXT or found.word in _FIXED.get(dialect, ())
    by_text = by_text or (dialect == "sqlite" and kind not in ("binary", "float64"))
    return Column(found.name, kind, found.nullable, as_text=by_text, declared=found.word)


def cursor_of(dialect: str, found: Described, stream: str) -> CursorType:
    """The cursor type of a column. Raises InputError where its order cannot be relied on."""
    kind = None
    if dialect == "sqlite":
        kind = sqlite_types.cursor_type(_sqlite_declared(found))
    elif found.word in _UNBOUNDED.get(dialect, ()):
        kind = CursorType.DECIMAL
    elif dialect == "postgres" and found.word == "UUID":
        kind = CursorType.UUID
    elif dialect == "oracle" and found.word in ("NCHAR", "NVARCHAR2", "CLOB", "NCLOB", "LONG"):
        kind = None
    elif not found.word.startswith("BIT"):
        word = _kind(dialect, found, stream) or ""
        kind = CursorType.DECIMAL if word.startswith("decimal") else _CURSORS.get(word)
        kind = CursorType.INTEGER if "BIGINT" in found.word else kind
    if kind is None:
        raise InputError(
            f"{stream}: column {found.name} is of type {found.declared}, which is no cursor", hint=_way_out(found)
        )
    return kind


def _way_out(found: Described) -> str:
    if found.word in ("UNIQUEIDENTIFIER", "UUID"):
        return (
            "this database sorts UUIDs in an order of its own; use an id or a time, or in a query CAST it to CHAR(36)"
        )
    if found.word.startswith("N") or "CLOB" in found.word:
        return "in a query, CAST it to VARCHAR2(…), or use an id or a time"
    return "a cursor is an integer, decimal, date, time or string; in a query, CAST can make one"


def _kind(dialect: str, found: Described, stream: str) -> str | None:
    if dialect == "sqlite":
        return sqlite_types.kind_of(_sqlite_declared(found))
    word = found.word
    if dialect == "mysql" and word == "BIT":
        return "bool" if found.precision <= 1 else "decimal(20,0)"
    kind = _BY_WORD[dialect].get(word)
    if kind == "decimal":
        return _decimal(dialect, found)
    if kind in ("int32", "int64") and dialect == "mysql" and not found.signed:
        return _unsigned(word)
    if kind in ("timestamp", "timestamptz") and dialect in ("tsql", "oracle") and found.scale > _MICROSECONDS:
        raise InputError(
            f"{stream}: column {found.name} ({found.declared} with {found.scale} digits of a second) is finer than microseconds",
            hint=f"keep all digits as text (as_text: [{found.name}]), or read a query that CASTs it to six digits",
        )
    return kind


def _unsigned(word: str) -> str:
    if word == "BIGINT":
        return "decimal(20,0)"
    return "int64" if word in ("INT", "INTEGER") else "int32"


def _decimal(dialect: str, found: Described) -> str | None:
    if found.word in ("MONEY", "SMALLMONEY"):
        return "decimal(19,4)" if found.word == "MONEY" else "decimal(10,4)"
    precision, scale = found.precision, found.scale
    if precision <= 0 or (found.word in _UNBOUNDED.get(dialect, ()) and not -_MAX_DIGITS <= scale <= _MAX_DIGITS):
        return None
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    if precision > _MAX_DIGITS:
        return None
    if dialect == "oracle" and scale == 0 and precision <= _MAX_INT64_DIGITS:
        return "int64"
    return f"decimal({precision},{scale})"


def _sqlite_declared(found: Described) -> str:
    """The driver takes a type apart; `DECIMAL(10,2)` is put together again."""
    if found.word in ("DECIMAL", "NUMERIC", "NUMBER") and found.precision > 0:
        return f"{found.word}({found.precision},{found.scale})"
    return found.word
