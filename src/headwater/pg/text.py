"""Values as PostgreSQL writes them in our sessions: the text of `value::text`.

For the few rejects, whose values Python and Arrow often cannot hold.
"""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.model.types import Column

_DAY = 86_400_000_000
_EPOCH_DAYS, _EPOCH = 10_957, 10_957 * _DAY  # 2000, seen from 1970
_PADDED = ("character", "bpchar")  # casts to text remove their padding
_SPECIAL = {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}
_GROUP = 4  # decimal digits
# Powers of ten of floats that are written without an exponent.
_PLAIN = {"float32": range(-4, 6), "float64": range(-4, 15)}
_MAX_DIGITS = 17


def text_of(array: pa.Array, row: int, column: Column) -> str | None:  # noqa: PLR0911 - one line per type
    """One value of a column as text, even if its type cannot hold it."""
    value = array[row]
    if not value.is_valid:
        return None
    match column.type:
        case "date":
            return date_text(value.value)
        case "timestamp" | "timestamptz":
            return time_text(value.value, column.type)
        case "float32" | "float64":
            return float_text(value.as_py(), column.type)
        case "bool":
            return "true" if value.as_py() else "false"
        case "binary":
            return f"\\x{value.as_py().hex()}"
        case "string":
            return str(value.as_py()).rstrip(" ") if column.declared in _PADDED else str(value.as_py())
        case "int32" | "int64":
            return str(value.as_py())
        case _:
            return format(value.as_py(), "f")


def date_text(days: int) -> str:
    """A day counted from 1970; PostgreSQL's two infinities are the ends of 32 bits, counted from 2000."""
    infinity = _infinity(days - _EPOCH_DAYS, 32)
    if infinity:
        return infinity
    date, era = _calendar(days)
    return date + era


def time_text(microseconds: int, type_: str) -> str:
    """A time counted from 1970; the latest of PostgreSQL's times overflow 64 bits."""
    since_2000 = _wrapped(microseconds - _EPOCH, 64)
    infinity = _infinity(since_2000, 64)
    if infinity:
        return infinity
    days, rest = divmod(since_2000 + _EPOCH, _DAY)
    date, era = _calendar(days)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    decimals = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{date} {clock}{decimals}{'+00' if type_ == 'timestamptz' else ''}{era}"


def float_text(value: float, type_: str) -> str:
    """The shortest text that identifies the number."""
    if value != value:  # noqa: PLR0124 - NaN
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if np.signbit(value) else ""
    digits, power = _shortest(abs(value), type_)
    if power not in _PLAIN[type_]:
        fraction = f".{digits[1:]}" if digits[1:] else ""
        return f"{sign}{digits[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    integer = digits[: power + 1].ljust(power + 1, "0")
    return f"{sign}{integer}.{digits[power + 1 :]}" if digits[power + 1 :] else sign + integer


def numeric_text(field: bytes) -> str:
    """A numeric as COPY sends it: groups of four digits after their count, first power, sign and scale."""
    count, power, sign, scale = struct.unpack(">hhHH", field[:8])
    if sign in _SPECIAL:
        return _SPECIAL[sign]
    groups = dict(enumerate(struct.unpack(f">{count}h", field[8 : 8 + 2 * count])))
    integer = "".join(f"{groups.get(number, 0):04}" for number in range(power + 1)).lstrip("0") or "0"
    fraction = "".join(f"{groups.get(power + 1 + n, 0):04}" for n in range(-(-scale // _GROUP)))[:scale]
    return f"{'-' if sign else ''}{integer}{'.' if scale else ''}{fraction}"


def _calendar(days: int) -> tuple[str, str]:
    """Year, month and day, and the era: the year before 1 is 1 BC. Numpy's calendar is unbounded."""
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    number = int(year)
    return (f"{number:04}-{month}-{day}", "") if number > 0 else (f"{1 - number:04}-{month}-{day}", " BC")


def _infinity(value: int, bits: int) -> str:
    half = 1 << (bits - 1)
    return {half - 1: "infinity", -half: "-infinity"}.get(_wrapped(value, bits), "")


def _wrapped(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def _shortest(value: float, type_: str) -> tuple[str, int]:
    """The fewest digits that identify the number, and the power of ten of the first.

    Python also accepts a text exactly between two numbers for one of them; PostgreSQL does not.
    """
    number: Any = np.float32(value) if type_ == "float32" else np.float64(value)
    text = np.format_float_scientific(number, unique=True, trim="-")
    if _between(text, number):
        candidates = (np.format_float_scientific(number, precision=n, unique=False) for n in range(_MAX_DIGITS))
        text = next(
            candidate
            for candidate in candidates
            if type(number)(candidate) == number and not _between(candidate, number)
        )
    mantissa, _, power = text.partition("e")
    return mantissa.replace(".", "").rstrip("0") or "0", int(power)


def _between(text: str, number: Any) -> bool:
    exact, type_ = Fraction(text), type(number)
    with np.errstate(over="ignore"):  # behind the largest number comes infinity
        neighbours = (np.nextafter(number, type_(np.inf)), np.nextafter(number, type_(-np.inf)))
    return any(
        np.isfinite(next_) and exact == (Fraction(float(number)) + Fraction(float(next_))) / 2 for next_ in neighbours
    )
