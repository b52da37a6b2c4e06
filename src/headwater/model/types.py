"""The type language of columns: a few words as text, Arrow as value; what fits, what widens, which types a cursor can have (G8)."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

CursorValue = int | decimal.Decimal | dt.date | dt.datetime | str | uuid.UUID


class CursorType(enum.Enum):
    """A column type with a total order that Python and the database agree on."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"  # without zone: a wall clock, in microseconds
    TIMESTAMPTZ = "timestamptz"  # an instant in UTC, in microseconds
    STRING = "string"  # in byte order of UTF-8, never by a locale
    UUID = "uuid"

    def order(self, value: CursorValue) -> Any:
        """What Python compares; strings by code point, which is the byte order of UTF-8."""
        return value.int if isinstance(value, uuid.UUID) else value

    def to_json(self, value: CursorValue) -> int | str:
        """An integer as a JSON number, all else as a text with every digit."""
        if self is CursorType.INTEGER:
            return int(value)  # type: ignore[arg-type]
        return self.to_text(value)

    def to_text(self, value: CursorValue) -> str:
        if isinstance(value, dt.datetime):
            # One instant has one text, in whatever zone a driver returns it.
            moment = value.astimezone(dt.UTC) if value.tzinfo is not None else value
            return moment.isoformat(timespec="microseconds")
        if isinstance(value, dt.date):
            return value.isoformat()
        return str(value)

    def from_json(self, data: int | str) -> CursorValue:
        """The value of `to_json`, or of a user's `start:` and `--to`. Raises ValueError with what was expected."""
        if isinstance(data, bool):
            raise ValueError(f"expected {self.value}, got {data!r}")
        text = str(data).strip() if self is not CursorType.STRING else str(data)
        try:
            return self._parse(text)
        except (ValueError, OverflowError, decimal.InvalidOperation) as error:
            raise ValueError(f"expected {self.value} (for example {_EXAMPLES[self]}), got {data!r}") from error

    def _parse(self, text: str) -> CursorValue:  # noqa: C901, PLR0911 - one case per type
        match self:
            case CursorType.INTEGER:
                return int(text)
            case CursorType.DECIMAL:
                number = decimal.Decimal(text)
                if not number.is_finite():
                    raise ValueError(text)
                return number
            case CursorType.DATE:
                return dt.date.fromisoformat(text)
            case CursorType.TIMESTAMP:
                moment = dt.datetime.fromisoformat(text)
                if moment.tzinfo is not None:
                    raise ValueError("a timestamp without zone")
                return moment
            case CursorType.TIMESTAMPTZ:
                moment = dt.datetime.fromisoformat(text)
                if moment.tzinfo is None:
                    raise ValueError("a zone is missing")
                return moment.astimezone(dt.UTC)
            case CursorType.STRING:
                return text
            case CursorType.UUID:
                return uuid.UUID(text)


_EXAMPLES = {
    CursorType.INTEGER: "-1",
    CursorType.DECIMAL: "12.50",
    CursorType.DATE: "2026-01-31",
    CursorType.TIMESTAMP: "2026-01-31T12:00:00",
    CursorType.TIMESTAMPTZ: "2026-01-31T12:00:00+00:00",
    CursorType.STRING: "A-1001",
    CursorType.UUID: "0190163d-8694-739b-aea5-966c26f8ad91",
}


# The words are those that Arrow, Iceberg and Spark all know: bool, int32, int64, float32, float64, decimal(p,s),
# date, timestamp, timestamptz (both in microseconds), string, binary. What fits none of them exactly is read as
# the database's own text: numeric without precision or with more than 38 digits, json, uuid, time, interval,
# money, network types, enums, ranges, composites, and arrays (`{1,2,NULL}`; PostgreSQL does not fix their
# number of dimensions, Arrow does).
#
# No value is altered: a row with a value that its type cannot hold (NaN in a decimal, infinity in a time, years
# before 1 or after 9999) is rejected, or stops the read (`model/rows.py`); use `as_text` or `where` to avoid it.

MAX_DECIMAL_DIGITS = 38
# The years 1 to 9999, which Python, Spark and Iceberg's readers share: in days and in microseconds since 1970.
DAYS = (-719_162, 2_932_896)
MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
OUTSIDE_YEARS = "infinite, or outside the years 1 to 9999"

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_WIDER = {("int32", "int64"), ("float32", "float64")}
# Called with pyarrow: an idle poll loads this module, and no Arrow.
SIMPLE_TYPES: Mapping[str, Callable[[Any], pa.DataType]] = {
    "bool": lambda arrow: arrow.bool_(),
    "int32": lambda arrow: arrow.int32(),
    "int64": lambda arrow: arrow.int64(),
    "float32": lambda arrow: arrow.float32(),
    "float64": lambda arrow: arrow.float64(),
    "date": lambda arrow: arrow.date32(),
    "timestamp": lambda arrow: arrow.timestamp("us"),
    "timestamptz": lambda arrow: arrow.timestamp("us", tz="UTC"),
    "string": lambda arrow: arrow.string(),
    "binary": lambda arrow: arrow.binary(),
}
_DDL = {
    "bool": "BOOLEAN",
    "int32": "INT",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamptz": "TIMESTAMP",
}
_CURSORS = {
    "int32": CursorType.INTEGER,
    "int64": CursorType.INTEGER,
    "date": CursorType.DATE,
    "timestamp": CursorType.TIMESTAMP,
    "timestamptz": CursorType.TIMESTAMPTZ,
    "string": CursorType.STRING,
}


@dataclass(frozen=True)
class Column:
    """A column as it is read. `type` is a word of this module; `as_text` has the database make a text of it."""

    name: str
    type: str
    nullable: bool
    as_text: bool = False
    is_jsonb: bool = False  # PostgreSQL sends its text after one byte; with a cast the server would copy it once more
    declared: str = ""  # the database's own name of the type, for messages


def arrow_type(word: str) -> pa.DataType:
    """A type as Arrow's."""
    import pyarrow as pa

    digits = decimal_digits(word)
    return pa.decimal128(*digits) if digits else SIMPLE_TYPES[word](pa)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The exact schema of a stream; nullability is true to the catalog."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, arrow_type(column.type), column.nullable) for column in columns])


def ddl_type(word: str) -> str:
    """A type in Spark's DDL."""
    return _DDL.get(word) or word.upper()


def cursor_type_of(word: str) -> CursorType | None:
    """The cursor type of a column's type; None: its order cannot be relied on."""
    return CursorType.DECIMAL if decimal_digits(word) else _CURSORS.get(word)


def decimal_type(precision: int, scale: int) -> str | None:
    """The word of a decimal; None: it does not fit, and is read as text."""
    return f"decimal({precision},{scale})" if 0 <= scale <= precision <= MAX_DECIMAL_DIGITS else None


def decimal_digits(word: str) -> tuple[int, int] | None:
    """Precision and scale; None: the type is not a decimal."""
    digits = _DECIMAL.fullmatch(word)
    return (int(digits[1]), int(digits[2])) if digits else None


def wider_type(one: str, other: str) -> str | None:
    """The type that holds the values of both without a change; None: neither does."""
    if one == other:
        return one
    for narrow, wide in ((one, other), (other, one)):
        if (narrow, wide) in _WIDER:
            return wide
        few, many = decimal_digits(narrow), decimal_digits(wide)
        if few and many and few[1] == many[1] and few[0] <= many[0]:
            return wide
    return None


def can_widen(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether a column of one Arrow type can become one of another, as Iceberg allows it."""
    import pyarrow as pa

    if (narrow, wide) in _wider_arrow_types():
        return True
    if pa.types.is_decimal(narrow) and pa.types.is_decimal(wide):
        return bool(narrow.scale == wide.scale and narrow.precision < wide.precision)
    return False


@cache
def _wider_arrow_types() -> frozenset[tuple[pa.DataType, pa.DataType]]:
    return frozenset((arrow_type(narrow), arrow_type(wide)) for narrow, wide in _WIDER)


def retyped_name(name: str, type_text: str) -> str:
    """The column for values of another type than the column's: `amount__string`, `amount__decimal_12_2`."""
    suffix = re.sub(r"\W+", "_", type_text).strip("_")
    return f"{name}__{suffix}"
