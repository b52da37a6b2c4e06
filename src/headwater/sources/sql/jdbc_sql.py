"""The SQL of MySQL, MariaDB, SQL Server and Oracle where it differs from that of PostgreSQL and SQLite.

Strings are compared as bytes of UTF-8: a collation would fold case, and even binary ones of MySQL and SQL
Server ignore blanks at the end. Times travel as text, so that no driver and no JVM moves them between time
zones. A literal has the column's own type where that can hold the value, so that an index serves the comparison.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.model.cursor import CursorType, CursorValue
from headwater.sources.sql.relation import Column, Subject

if TYPE_CHECKING:
    Condition = exp.Expr

DIALECTS = ("mysql", "tsql", "oracle")
_BINARY_UTF8 = "Latin1_General_100_BIN2_UTF8"  # SQL Server 2019 and later
_DATETIME_FIRST_YEAR = 1753
_DATETIME_LAST_DIGITS = (0, 3, 7)  # of the milliseconds: SQL Server's datetime counts in 1/300 of a second
_MILLISECOND = 1000
_ORACLE_SECOND, _ORACLE_TIME = "YYYY-MM-DD HH24:MI:SS", "YYYY-MM-DD HH24:MI:SS.FF6"
_KINDS = {
    CursorType.INTEGER: "int64",
    CursorType.DECIMAL: "decimal",
    CursorType.DATE: "date",
    CursorType.TIMESTAMP: "timestamp",
    CursorType.TIMESTAMPTZ: "timestamptz",
    CursorType.STRING: "string",
}


def comparable(subject: Subject, cursor: Condition) -> Condition:
    """The cursor in a form whose order Python and the database agree on."""
    if subject.kind is not CursorType.STRING:
        return cursor
    match subject.dialect:
        case "mysql":
            return _cast(_cast(cursor, "CHAR CHARACTER SET utf8mb4"), "BINARY")
        case "tsql":
            # By way of nvarchar: only from there does the conversion to UTF-8 keep every character.
            encoded = exp.Collate(this=_cast(cursor, "nvarchar(max)"), expression=exp.var(_BINARY_UTF8))
            return _cast(_cast(encoded, "varchar(max)"), "varbinary(max)")
        case _:
            return _call("NLSSORT", cursor, _text("NLS_SORT=BINARY"))


def literal(subject: Subject, value: CursorValue) -> Condition:
    """A cursor value that is no number, as SQL."""
    if isinstance(value, dt.datetime):
        return {"mysql": _mysql_time, "tsql": _tsql_time, "oracle": _oracle_time}[subject.dialect](subject, value)
    if isinstance(value, dt.date):
        return _cast(_text(value.isoformat()), "date")
    if subject.dialect == "oracle":
        # An empty text is NULL there, and nothing is above it.
        return (
            _call("NLSSORT", _text(str(value)), _text("NLS_SORT=BINARY")) if value else _call("HEXTORAW", _text("00"))
        )
    return exp.HexString(this=str(value).encode().hex())


def cursor_text(subject: Subject, cursor: Condition) -> Condition:
    """The cursor as text that `parse_value` reads back exactly."""
    return text(subject.dialect, cursor, _KINDS[subject.kind], subject.declared)


def selected(dialect: str, column: Column, plain: Condition) -> Condition:
    """A column as it is read; where it is not read as it is, under its own name."""
    if column.as_text:
        shown = text(dialect, plain, column.kind, column.declared)
    elif dialect == "mysql" and column.kind == "float32":
        # MySQL sends a FLOAT as text with six digits, a DOUBLE with all of them.
        shown = exp.Mul(this=plain, expression=exp.Literal.number("1E0"))
    elif dialect == "mysql" and column.declared.upper().startswith("BIT"):
        shown = _cast(plain, "UNSIGNED")
    else:
        return plain
    return exp.alias_(shown, column.name, quoted=True)


def text(dialect: str, what: Condition, kind: str, declared: str) -> Condition:
    """A value as text that loses nothing. `kind` string: as the database would show it, offset and all."""
    writer = {"mysql": _mysql_text, "tsql": _tsql_text, "oracle": _oracle_text}[dialect]
    return writer(what, kind, declared.upper())


def _mysql_text(what: Condition, kind: str, declared: str) -> Condition:
    if kind == "string" and any(word in declared for word in ("BINARY", "BLOB")):
        return _call("HEX", what)
    if declared.startswith("BIT"):
        what = _cast(what, "UNSIGNED")
    if declared.startswith("FLOAT"):
        what = exp.Mul(this=what, expression=exp.Literal.number("1E0"))
    return _cast(what, "CHAR")


def _tsql_text(what: Condition, kind: str, declared: str) -> Condition:  # noqa: PLR0911 - one case per type
    def converted(length: str, style: int, value: Condition = what) -> Condition:
        return _call("CONVERT", exp.var(f"nvarchar({length})"), value, exp.Literal.number(style))

    match kind:
        case "date":
            return converted("10", 23)
        case "timestamp":
            return converted("26", 126)
        case "timestamptz":
            return converted("26", 126, _cast(_call("SWITCHOFFSET", what, _text("+00:00")), "datetime2(6)"))
        case _ if declared.startswith(("DATE", "TIME", "SMALLDATETIME")) and declared != "TIMESTAMP":
            return converted("40", 121)
        case _ if declared in ("FLOAT", "REAL"):
            return converted("40", 3)  # every digit that the number needs
        case _ if "MONEY" in declared:
            return converted("40", 2)
        case _ if "BINARY" in declared or declared in ("TIMESTAMP", "IMAGE"):
            return converted("max", 1)
        case _:
            return _cast(what, "nvarchar(max)")


def _oracle_text(what: Condition, kind: str, declared: str) -> Condition:  # noqa: PLR0911 - one case per type
    if kind == "timestamptz":
        return _call("TO_CHAR", _call("SYS_EXTRACT_UTC", what), _text(_ORACLE_TIME))
    if declared == "DATE":
        return _call("TO_CHAR", what, _text(_ORACLE_SECOND))
    if declared.startswith("TIMESTAMP"):
        full = "YYYY-MM-DD HH24:MI:SS.FF9" + (" TZH:TZM" if "ZONE" in declared else "")
        return _call("TO_CHAR", what, _text(_ORACLE_TIME if kind == "timestamp" else full))
    if kind in ("int64", "decimal") or declared.startswith(("NUMBER", "FLOAT", "BINARY_")):
        return _call("TO_CHAR", what, _text("TM9"), _text("NLS_NUMERIC_CHARACTERS='.,'"))
    if "RAW" in declared:
        return _call("RAWTOHEX", what)
    if declared in ("CHAR", "NCHAR"):
        return _cast(what, "VARCHAR2(4000)" if declared == "CHAR" else "NVARCHAR2(2000)")
    return what if "CHAR" in declared or "CLOB" in declared else _call("TO_CHAR", what)


def _mysql_time(subject: Subject, value: dt.datetime) -> Condition:  # noqa: ARG001 - one signature for all
    return _cast(_text(_wall(value)), "DATETIME(6)")


def _tsql_time(subject: Subject, value: dt.datetime) -> Condition:
    if subject.kind is CursorType.TIMESTAMPTZ:
        return _cast(_text(f"{_wall(value, 'T')}+00:00"), "datetimeoffset(6)")
    milliseconds, rest = divmod(value.microsecond, _MILLISECOND)
    # Against a finer type a datetime is its exact third of a millisecond, and would be above its own text.
    ticks = subject.declared.lower() == "datetime" and value.year >= _DATETIME_FIRST_YEAR
    if ticks and not rest and milliseconds % 10 in _DATETIME_LAST_DIGITS:
        return _cast(_text(_wall(value, "T")[:-3]), "datetime")
    return _cast(_text(_wall(value, "T")), "datetime2(6)")


def _oracle_time(subject: Subject, value: dt.datetime) -> Condition:
    if subject.kind is CursorType.TIMESTAMPTZ:
        return _call("TO_TIMESTAMP_TZ", _text(f"{_wall(value)} +00:00"), _text(f"{_ORACLE_TIME} TZH:TZM"))
    if subject.declared.upper() == "DATE" and not value.microsecond:
        return _call("TO_DATE", _text(_wall(value)[:19]), _text(_ORACLE_SECOND))
    return _call("TO_TIMESTAMP", _text(_wall(value)), _text(_ORACLE_TIME))


def _wall(value: dt.datetime, separator: str = " ") -> str:
    moment = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
    return moment.isoformat(separator, timespec="microseconds")


def _text(value: str) -> Condition:
    return exp.Literal.string(value)


def _cast(what: Condition, to: str) -> Condition:
    return exp.Cast(this=what, to=exp.DataType(this=exp.DataType.Type.USERDEFINED, kind=to))


def _call(name: str, *arguments: Condition) -> Condition:
    return exp.Anonymous(this=name, expressions=list(arguments))
