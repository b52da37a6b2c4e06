"""SQLite's declared types, and the exact conversion of what is stored under them (G8).

SQLite stores any value in any column. A value is read only if the declared type can hold it exactly:

    INTEGER …                      int64      whole numbers
    REAL, FLOAT, DOUBLE            float64    reals
    TEXT, CHAR …, CLOB             string     texts
    BLOB                           binary     blobs
    BOOLEAN                        bool       0 and 1
    DECIMAL(p,s), NUMERIC(p,s)     decimal    whole numbers, decimal texts, and reals whose shortest form fits
    DATE                           date       texts 2026-01-31
    DATETIME, TIMESTAMP            timestamp  texts 2026-01-31 12:00:00[.ffffff], with a blank or a T
    TIMESTAMP WITH TIME ZONE       timestamptz  the same, in UTC, with or without Z or +00:00
    all else, and no type at all   string     the value's text form
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable
from typing import Any

from headwater.model.types import MAX_DECIMAL_DIGITS, CursorType, cursor_type_of, decimal_digits, decimal_type

Value = int | float | str | bytes | None
_DECIMAL = re.compile(r"\s*(?:DECIMAL|NUMERIC|NUMBER)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)\s*", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")  # Python would also take a day of a week, 2026-W05-6
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?")


def column_type(declared: str) -> str:
    """The type that a declared type is read as."""
    upper = declared.upper()
    digits = _DECIMAL.fullmatch(declared)
    if digits and (decimal := decimal_type(int(digits[1]), int(digits[2] or 0))):
        return decimal
    for word, type_ in (
        ("BOOL", "bool"),
        ("INT", "int64"),
        ("CHAR", "string"),
        ("CLOB", "string"),
        ("TEXT", "string"),
        ("BLOB", "binary"),
        ("REAL", "float64"),
        ("FLOA", "float64"),
        ("DOUB", "float64"),
        ("TIMESTAMPTZ", "timestamptz"),
        ("WITH TIME ZONE", "timestamptz"),
        ("DATETIME", "timestamp"),
        ("TIMESTAMP", "timestamp"),
        ("DATE", "date"),
    ):
        if word in upper:
            return type_
    return "string"


def cursor_type(declared: str) -> CursorType | None:
    """The cursor type of a declared type; None: it has no order that can be relied on."""
    type_ = column_type(declared)
    if re.match(r"\s*(DECIMAL|NUMERIC)", declared, re.IGNORECASE):
        return CursorType.DECIMAL
    if type_ == "string" and declared.strip().upper() in ("UUID", "GUID"):
        return CursorType.UUID
    if type_ == "string" and not any(word in declared.upper() for word in ("CHAR", "CLOB", "TEXT")):
        return None
    return cursor_type_of(type_)


def converter(type_: str) -> Callable[[Value], Any]:
    """The function that converts a stored value exactly; it raises ValueError for one that does not fit."""
    digits = decimal_digits(type_)
    if digits:
        precision, scale = digits
        return lambda value: _decimal(value, precision, scale)
    return _CONVERTERS[type_]


def text_form(value: Value) -> str | None:
    """A stored value as text, exactly."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        raise ValueError("a blob")
    return repr(value)


def sql_text(value: Value) -> str | None:
    """A stored value as a SQL literal, but texts without quotes."""
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    return text_form(value)


def _instance_of(expected: type) -> Callable[[Value], Any]:
    def check(value: Value) -> Any:
        if value is not None and type(value) is not expected:
            raise ValueError(type(value).__name__)
        return value

    return check


def _bool(value: Value) -> bool | None:
    if value is None:
        return None
    if type(value) is int and value in (0, 1):
        return value == 1
    raise ValueError("not 0 or 1")


def _decimal(value: Value, precision: int, scale: int) -> decimal.Decimal | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        raise ValueError("a blob")
    try:
        # A real in its shortest form: back in SQLite it would be the very same real.
        number = decimal.Decimal(repr(value) if isinstance(value, float) else value)
    except decimal.InvalidOperation:
        raise ValueError("not a decimal") from None
    if not number.is_finite():
        raise ValueError("not a decimal")
    if number and number.adjusted() >= MAX_DECIMAL_DIGITS:
        raise ValueError("too many digits")
    with decimal.localcontext(prec=MAX_DECIMAL_DIGITS * 2):
        fitted = number.quantize(decimal.Decimal(1).scaleb(-scale))
    if fitted != number or len(fitted.as_tuple().digits) > max(precision, 1):
        raise ValueError("too many digits")
    return fitted


def _date(value: Value) -> dt.date | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise ValueError("not a date")
    return dt.date.fromisoformat(value)


def _timestamp(value: Value) -> dt.datetime | None:
    if value is None:
        return None
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ValueError("not a time")
    return dt.datetime.fromisoformat(value)


def _timestamptz(value: Value) -> dt.datetime | None:
    if isinstance(value, str):
        bare = value.removesuffix("Z").removesuffix("+00:00")
        moment = _timestamp(bare)
        return moment.replace(tzinfo=dt.UTC) if moment else None
    return _timestamp(value)


_CONVERTERS: dict[str, Callable[[Value], Any]] = {
    "int64": _instance_of(int),
    "float64": _instance_of(float),
    "string": text_form,
    "binary": _instance_of(bytes),
    "bool": _bool,
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
}
