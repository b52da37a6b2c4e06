"""How far below a mark `late: {lookback: …}` reaches, for each type of cursor."""

from __future__ import annotations

import datetime as dt
import decimal

from headwater.config.sql_source import Lookback
from headwater.model.cursor import CursorType, CursorValue
from headwater.model.errors import InputError


def below_by(value: CursorValue, late: str | Lookback, kind: CursorType, stream: str) -> CursorValue:
    """The value itself, or the lookback below it."""
    if not isinstance(late, Lookback):
        return value
    distance = late.lookback
    if isinstance(value, dt.date) and isinstance(distance, dt.timedelta):
        if isinstance(value, dt.datetime):
            earliest = dt.datetime.min.replace(tzinfo=value.tzinfo)
            return value - distance if value - earliest > distance else earliest
        days = dt.timedelta(days=-(-distance // dt.timedelta(days=1)))  # part of a day reaches the day before
        return value - days if value - dt.date.min > days else dt.date.min
    number = _number(distance)
    if number is not None and kind is CursorType.DECIMAL:
        return decimal.Decimal(value) - number  # type: ignore[arg-type]
    if number is not None and kind is CursorType.INTEGER and number == int(number):
        return int(value) - int(number)  # type: ignore[arg-type]
    fitting = {
        CursorType.INTEGER: "a whole number, such as 1000",
        CursorType.DECIMAL: "a number, such as 12.5",
        CursorType.STRING: "none: a string has no distance; use an id or a time as cursor",
        CursorType.UUID: "none: a UUID has no distance; use an id or a time as cursor",
    }.get(kind, "a duration, such as 10m")
    raise InputError(
        f"{stream}: lookback {distance} does not fit a cursor of type {kind.value}", hint=f"write {fitting}"
    )


def _number(distance: dt.timedelta | int | str) -> decimal.Decimal | None:
    if isinstance(distance, dt.timedelta):
        return None
    try:
        number = decimal.Decimal(distance)
    except decimal.InvalidOperation:
        return None
    return number if number.is_finite() and number >= 0 else None
