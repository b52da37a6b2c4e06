"""The cursor and its values in the SQL of each database, and the expressions that all statements use.

Strings are compared as bytes of UTF-8: a collation would fold case, and even binary ones of MySQL and SQL
Server ignore blanks at the end. Times travel as text, so that no driver and no JVM moves them between time
zones. A literal has the column's own type where that can hold the value, so that an index serves the comparison.
"""

from __future__ import annotations

import datetime as dt
import uuid
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.model.types import Column, CursorType, CursorValue
from headwater.sources.sql.database import Subject

if TYPE_CHECKING:
    Condition = exp.Expr

_CASTS = {
    CursorType.DATE: "date",
    CursorType.TIMESTAMP: "timestamp",
    CursorType.TIMESTAMPTZ: "timestamptz",
    CursorType.UUID: "uuid",
}
_TIMES = (CursorType.TIMESTAMP, CursorType.TIMESTAMPTZ)
_DIGIT, _HEX = "[0-9]", "[0-9a-f]"
_DATE_SHAPE = f"{_DIGIT * 4}-{_DIGIT * 2}-{_DIGIT * 2}"
_SHAPES = {
    CursorType.DATE: _DATE_SHAPE,
    CursorType.TIMESTAMP: f"{_DATE_SHAPE} {_DIGIT * 2}:{_DIGIT * 2}:{_DIGIT * 2}.{_DIGIT * 6}",
    CursorType.TIMESTAMPTZ: f"{_DATE_SHAPE} {_DIGIT * 2}:{_DIGIT * 2}:{_DIGIT * 2}.{_DIGIT * 6}",
    CursorType.UUID: f"{_HEX * 8}-{_HEX * 4}-{_HEX * 4}-{_HEX * 4}-{_HEX * 12}",
}


def comparable(subject: Subject) -> Condition:
    """The cursor in a form whose order Python and the database agree on."""
    cursor: Condition = cursor_column(subject)
    if subject.dialect in DIALECTS:
        return vendor_comparable(subject, cursor)
    if subject.cursor_type is CursorType.STRING:
        if subject.padded:
            cursor = cast(cursor, "text")
        order = exp.var("BINARY") if subject.dialect == "sqlite" else exp.column("C", quoted=True)
        return exp.Collate(this=cursor, expression=order)
    if subject.dialect == "sqlite" and subject.cursor_type in _TIMES:
        plain = _plain_time(subject)
        dot = exp.Case(
            ifs=[exp.If(this=exp.EQ(this=call("length", plain), expression=number_(19)), true=exp.Literal.string("."))],
            default=exp.Literal.string(""),
        )
        padded = exp.DPipe(this=exp.DPipe(this=plain, expression=dot), expression=exp.Literal.string("000000"))
        return call("substr", padded, number_(1), number_(26))
    return cursor


def literal(subject: Subject, value: CursorValue) -> Condition:
    """A cursor value as SQL."""
    if subject.cursor_type in (CursorType.INTEGER, CursorType.DECIMAL):
        return exp.Literal.number(f"{value:f}" if subject.cursor_type is CursorType.DECIMAL else str(value))
    if subject.dialect in DIALECTS:
        return vendor_literal(subject, value)
    if subject.dialect == "sqlite":
        return exp.Literal.string(sqlite_text(subject.cursor_type, value))
    text = exp.Literal.string(subject.cursor_type.to_text(value))
    return cast(text, _CASTS[subject.cursor_type]) if subject.cursor_type in _CASTS else text


def sqlite_text(cursor_type: CursorType, value: CursorValue) -> str:
    """A value in the form of `comparable` in SQLite."""
    if isinstance(value, uuid.UUID):
        return str(value)
    text = cursor_type.to_text(value)
    return text.replace("T", " ")[:26] if cursor_type in _TIMES else text


def index_bound(subject: Subject, value: CursorValue) -> list[Condition]:
    """For SQLite's times a second bound on the bare column, never tighter than the first, that an index serves."""
    if subject.dialect != "sqlite" or subject.cursor_type not in _TIMES:
        return []
    # Up to the second, with a blank: it sorts before both "T" and every longer text of that second.
    second = sqlite_text(subject.cursor_type, value)[:19]
    return [exp.GTE(this=cursor_column(subject), expression=exp.Literal.string(second))]


def strays(subject: Subject) -> list[Condition]:
    """Conditions for cursor values of another storage class than the type's (SQLite).

    SQLite sorts NULL, numbers, texts and blobs one after the other, so an index finds them.
    """
    texts = exp.GTE(this=cursor_column(subject), expression=exp.Literal.string(""))
    if subject.cursor_type in (CursorType.INTEGER, CursorType.DECIMAL):
        return [texts]
    numbers = exp.LT(this=cursor_column(subject), expression=exp.Literal.string(""))
    return [numbers, exp.GTE(this=cursor_column(subject), expression=exp.HexString(this=""))]


def malformed_cursor(subject: Subject) -> Condition | None:
    """The condition for cursor values whose order is not the order of their type (SQLite); None: there are none."""
    if subject.cursor_type is CursorType.INTEGER:
        return exp.EQ(this=call("typeof", cursor_column(subject)), expression=exp.Literal.string("real"))
    shape = _SHAPES.get(subject.cursor_type)
    if shape is None:
        return None
    malformed: Condition = exp.Not(this=exp.Glob(this=comparable(subject), expression=exp.Literal.string(shape)))
    if subject.cursor_type in _TIMES:
        # More than six digits of a second would be cut off.
        malformed = exp.or_(malformed, exp.GT(this=call("length", _plain_time(subject)), expression=number_(26)))
    return malformed


def cursor_column(subject: Subject) -> exp.Column:
    return exp.column(identifier(subject.cursor))


def identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def cast(value: Condition, to: str) -> exp.Cast:
    return exp.Cast(this=value, to=exp.DataType(this=exp.DataType.Type.USERDEFINED, kind=to))


def call(name: str, *arguments: Condition) -> Condition:
    return exp.Anonymous(this=name, expressions=list(arguments))


def number_(value: int) -> Condition:
    return exp.Literal.number(value)


def _plain_time(subject: Subject) -> Condition:
    """SQLite's times are texts: one separator, no zone, so that their order is the order of times."""
    plain = call("replace", cursor_column(subject), exp.Literal.string("T"), exp.Literal.string(" "))
    if subject.cursor_type is CursorType.TIMESTAMPTZ:
        for zone in ("Z", "+00:00"):
            plain = call("replace", plain, exp.Literal.string(zone), exp.Literal.string(""))
    return plain


DIALECTS = ("mysql", "tsql", "oracle")
_BINARY_UTF8 = "Latin1_General_100_BIN2_UTF8"  # SQL Server 2019 and later
_DATETIME_FIRST_YEAR = 1753
_DATETIME_LAST_DIGITS = (0, 3, 7)  # of the milliseconds: SQL Server's datetime counts in 1/300 of a second
_MILLISECOND = 1000
_ORACLE_SECOND, _ORACLE_TIME = "YYYY-MM-DD HH24:MI:SS", "YYYY-MM-DD HH24:MI:SS.FF6"
_TYPES = {
    CursorType.INTEGER: "int64",
    CursorType.DECIMAL: "decimal",
    CursorType.DATE: "date",
    CursorType.TIMESTAMP: "timestamp",
    CursorType.TIMESTAMPTZ: "timestamptz",
    CursorType.STRING: "string",
}


def vendor_comparable(subject: Subject, cursor: Condition) -> Condition:
    """The cursor in a form whose order Python and the database agree on."""
    if subject.cursor_type is not CursorType.STRING:
        return cursor
    match subject.dialect:
        case "mysql":
            return cast(cast(cursor, "CHAR CHARACTER SET utf8mb4"), "BINARY")
        case "tsql":
            # By way of nvarchar: only from there does the conversion to UTF-8 keep every character.
            encoded = exp.Collate(this=cast(cursor, "nvarchar(max)"), expression=exp.var(_BINARY_UTF8))
            return cast(cast(encoded, "varchar(max)"), "varbinary(max)")
        case _:
            return call("NLSSORT", cursor, _text("NLS_SORT=BINARY"))


def vendor_literal(subject: Subject, value: CursorValue) -> Condition:
    """A cursor value that is no number, as SQL."""
    if isinstance(value, dt.datetime):
        return {"mysql": _mysql_time, "tsql": _tsql_time, "oracle": _oracle_time}[subject.dialect](subject, value)
    if isinstance(value, dt.date):
        return cast(_text(value.isoformat()), "date")
    if subject.dialect == "oracle":
        # An empty text is NULL there, and nothing is above it.
        return call("NLSSORT", _text(str(value)), _text("NLS_SORT=BINARY")) if value else call("HEXTORAW", _text("00"))
    return exp.HexString(this=str(value).encode().hex())


def cursor_text(subject: Subject, cursor: Condition) -> Condition:
    """The cursor as text that `parse_value` reads back exactly."""
    return text(subject.dialect, cursor, _TYPES[subject.cursor_type], subject.declared)


def output_column(dialect: str, column: Column, plain: Condition) -> Condition:
    """A column as the statement reads it; an expression has the column's name."""
    if column.as_text:
        value = text(dialect, plain, column.type, column.declared)
    elif dialect == "mysql" and column.type == "float32":
        # MySQL sends a FLOAT as text with six digits, a DOUBLE with all of them.
        value = exp.Mul(this=plain, expression=exp.Literal.number("1E0"))
    elif dialect == "mysql" and column.declared.upper().startswith("BIT"):
        value = cast(plain, "UNSIGNED")
    else:
        return plain
    return exp.alias_(value, column.name, quoted=True)


def text(dialect: str, value: Condition, type_: str, declared: str) -> Condition:
    """A value as exact text. `type_` string: as the database prints it, offset included."""
    writer = {"mysql": _mysql_text, "tsql": _tsql_text, "oracle": _oracle_text}[dialect]
    return writer(value, type_, declared.upper())


def _mysql_text(value: Condition, type_: str, declared: str) -> Condition:
    if type_ == "string" and any(word in declared for word in ("BINARY", "BLOB")):
        return call("HEX", value)
    if declared.startswith("BIT"):
        value = cast(value, "UNSIGNED")
    if declared.startswith("FLOAT"):
        value = exp.Mul(this=value, expression=exp.Literal.number("1E0"))
    return cast(value, "CHAR")


def _tsql_text(source: Condition, type_: str, declared: str) -> Condition:  # noqa: PLR0911 - one case per type
    def convert(length: str, style: int, value: Condition = source) -> Condition:
        return call("CONVERT", exp.var(f"nvarchar({length})"), value, exp.Literal.number(style))

    match type_:
        case "date":
            return convert("10", 23)
        case "timestamp":
            return convert("26", 126)
        case "timestamptz":
            return convert("26", 126, cast(call("SWITCHOFFSET", source, _text("+00:00")), "datetime2(6)"))
        case _ if declared.startswith(("DATE", "TIME", "SMALLDATETIME")) and declared != "TIMESTAMP":
            return convert("40", 121)
        case _ if declared in ("FLOAT", "REAL"):
            return convert("40", 3)  # every digit that the number needs
        case _ if "MONEY" in declared:
            return convert("40", 2)
        case _ if "BINARY" in declared or declared in ("TIMESTAMP", "IMAGE"):
            return convert("max", 1)
        case _:
            return cast(source, "nvarchar(max)")


def _oracle_text(value: Condition, type_: str, declared: str) -> Condition:  # noqa: PLR0911 - one case per type
    if type_ == "timestamptz":
        return call("TO_CHAR", call("SYS_EXTRACT_UTC", value), _text(_ORACLE_TIME))
    if declared == "DATE":
        return call("TO_CHAR", value, _text(_ORACLE_SECOND))
    if declared.startswith("TIMESTAMP"):
        full = "YYYY-MM-DD HH24:MI:SS.FF9" + (" TZH:TZM" if "ZONE" in declared else "")
        return call("TO_CHAR", value, _text(_ORACLE_TIME if type_ == "timestamp" else full))
    if type_ in ("int64", "decimal") or declared.startswith(("NUMBER", "FLOAT", "BINARY_")):
        return call("TO_CHAR", value, _text("TM9"), _text("NLS_NUMERIC_CHARACTERS='.,'"))
    if "RAW" in declared:
        return call("RAWTOHEX", value)
    if declared in ("CHAR", "NCHAR"):
        return cast(value, "VARCHAR2(4000)" if declared == "CHAR" else "NVARCHAR2(2000)")
    return value if "CHAR" in declared or "CLOB" in declared else call("TO_CHAR", value)


def _mysql_time(subject: Subject, value: dt.datetime) -> Condition:  # noqa: ARG001 - one signature for all
    return cast(_text(_wall(value)), "DATETIME(6)")


def _tsql_time(subject: Subject, value: dt.datetime) -> Condition:
    if subject.cursor_type is CursorType.TIMESTAMPTZ:
        return cast(_text(f"{_wall(value, 'T')}+00:00"), "datetimeoffset(6)")
    milliseconds, rest = divmod(value.microsecond, _MILLISECOND)
    # Against a finer type a datetime is its exact third of a millisecond, and would be above its own text.
    ticks = subject.declared.lower() == "datetime" and value.year >= _DATETIME_FIRST_YEAR
    if ticks and not rest and milliseconds % 10 in _DATETIME_LAST_DIGITS:
        return cast(_text(_wall(value, "T")[:-3]), "datetime")
    return cast(_text(_wall(value, "T")), "datetime2(6)")


def _oracle_time(subject: Subject, value: dt.datetime) -> Condition:
    if subject.cursor_type is CursorType.TIMESTAMPTZ:
        return call("TO_TIMESTAMP_TZ", _text(f"{_wall(value)} +00:00"), _text(f"{_ORACLE_TIME} TZH:TZM"))
    if subject.declared.upper() == "DATE" and not value.microsecond:
        return call("TO_DATE", _text(_wall(value)[:19]), _text(_ORACLE_SECOND))
    return call("TO_TIMESTAMP", _text(_wall(value)), _text(_ORACLE_TIME))


def _wall(value: dt.datetime, separator: str = " ") -> str:
    moment = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
    return moment.isoformat(separator, timespec="microseconds")


def _text(value: str) -> Condition:
    return exp.Literal.string(value)
