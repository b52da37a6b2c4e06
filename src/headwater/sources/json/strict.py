"""One JSON message at a time: its row, or the reason why it has none (G8). What it says is the rule.

| column | takes |
| --- | --- |
| boolean | true, false |
| tinyint … bigint | a number without a fraction that fits: 5, 5.0, 5e0 |
| float, double | a number: the nearest one that the type has; beyond its range is a reject |
| decimal | a number, or a text that is one, if every digit fits |
| string | a text; any other value as its JSON text |
| binary | a text in base64 |
| date | 2026-03-02 |
| timestamp | ISO with a zone, at most microseconds: 2026-03-02T08:00:00.123456Z |
| timestamp_ntz | ISO without a zone |
| array, struct, map | an array; an object, fields by name; an object whose keys are texts |

A field that is missing is NULL. A field that stands twice in an object is a reject, if a column wants it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from headwater.sources.values import Misfit, utf8

_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)
_NEEDLESS_ZEROS = re.compile(r"(\.\d{6})0+(?!\d)")
_MOST_DIGITS = 400  # beyond this no type has room, and writing out the number would take all memory
_EXACT = Context(prec=2 * _MOST_DIGITS)  # Python's own rounds to 28 digits
_FLOAT32_MAX = 3.4028235677973366e38  # what rounds to infinity in `float`
_MAX_PREVIEW = 40
_BOOLEANS = {"true": True, "false": False}
_CONSTANTS = ("NaN", "Infinity", "-Infinity")  # numbers that texts have, and JSON has not


class _Number(str):
    """A number as it was written: no digit is lost on the way."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """An object's fields as they were written, twice or not."""


def _no_constant(text: str) -> None:
    raise Misfit(f"{text} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Object, parse_float=_Number, parse_int=_Number, parse_constant=_no_constant
)

Convert = Callable[[Any], Any]


class StrictJson:
    """Parses for one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._fields = _struct(list(schema))

    def row(self, value: bytes) -> tuple[Any, ...]:
        """The values of the columns, ready for `table`. Raises Misfit."""
        parsed = document(value)
        row: tuple[Any, ...] = self._fields(parsed)
        return row

    def batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        """The rows as Arrow."""
        columns = [
            pa.array([_named(row[position], field.type) for row in rows], field.type)
            for position, field in enumerate(self._schema)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class Texts:
    """The same rules for one column of a format that has nothing but texts: numbers and constants without quotes."""

    def __init__(self, field: pa.Field) -> None:
        self._type, self._nullable = field.type, field.nullable
        self._convert = _of_text(field.type)

    def value(self, text: str | None) -> Any:
        """Ready for `array`. Raises Misfit."""
        if text is None:
            if not self._nullable:
                raise Misfit("NULL, and the schema says NOT NULL")
            return None
        return self._convert(text)

    def array(self, values: Sequence[Any]) -> pa.Array:
        return pa.array([_named(value, self._type) for value in values], self._type)


def is_number(value: Any) -> bool:
    """Numbers are kept as they were written: a kind of text."""
    return isinstance(value, _Number)


def rule_of(data_type: pa.DataType) -> Convert:
    """What a type accepts of the values that `document` returns. Raises Misfit."""
    return _of_type(data_type)


def document(value: bytes) -> _Object:
    """The one object that a message holds. Raises Misfit."""
    text = utf8(value)
    try:
        parsed = _decoded(text)
    except json.JSONDecodeError as error:
        raise Misfit(f"no JSON: {error.msg} at character {error.pos:,}" if text.strip() else "empty") from None
    except RecursionError:
        raise Misfit("nested too deeply") from None
    if not isinstance(parsed, _Object):
        raise Misfit(f"expected an object, found {_kind(parsed)}")
    return parsed


def _decoded(text: str) -> Any:
    stripped = text.strip(" \t\r\n")  # what JSON calls white space, and nothing else
    parsed, end = _DECODER.raw_decode(stripped)
    if end != len(stripped):
        raise json.JSONDecodeError("more after the value", text, end)
    return parsed


def _converter(field: pa.Field) -> Convert:
    convert = _of_type(field.type)

    def checked(value: Any) -> Any:
        if value is None:
            if not field.nullable:
                raise Misfit("NULL or missing, and the schema says NOT NULL")
            return None
        return convert(value)

    return checked


def _of_type(data_type: pa.DataType) -> Convert:  # noqa: PLR0911 - one line per type is the clearest form
    t = pa.types
    if t.is_boolean(data_type):
        return _boolean
    if t.is_integer(data_type):
        return _integer(data_type)
    if t.is_floating(data_type):
        return _floating(data_type)
    if t.is_decimal(data_type):
        return _decimal(data_type)
    if t.is_string(data_type):
        return _text
    if t.is_binary(data_type):
        return _binary
    if t.is_date(data_type) or t.is_timestamp(data_type):
        return _moment(data_type)
    if t.is_list(data_type):
        return _list(data_type)
    if t.is_map(data_type):
        return _map(data_type)
    return _struct(list(data_type))


def _of_text(data_type: pa.DataType) -> Convert:
    convert = _of_type(data_type)

    def converted(text: str) -> Any:
        if pa.types.is_boolean(data_type):
            return convert(_BOOLEANS.get(text.lower(), text))
        if pa.types.is_floating(data_type) and text in _CONSTANTS:
            return float(text)
        if pa.types.is_integer(data_type) or pa.types.is_floating(data_type):
            return convert(_Number(text) if _DECIMAL.fullmatch(text) else text)
        if pa.types.is_nested(data_type):
            try:
                return convert(_decoded(text))
            except json.JSONDecodeError as error:
                raise Misfit(f"no JSON: {error.msg} at character {error.pos:,}") from None
            except RecursionError:
                raise Misfit("nested too deeply") from None
        return convert(text)

    return converted


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _unexpected("true or false", value)
    return value


def _integer(data_type: pa.DataType) -> Convert:
    low, high = -(1 << (data_type.bit_width - 1)), (1 << (data_type.bit_width - 1)) - 1

    def convert(value: Any) -> int:
        if not isinstance(value, _Number):
            raise _unexpected("a number", value)
        number = _digits(value)
        if number != number.to_integral_value() or not low <= number <= high:
            raise Misfit(f"{_short(value)} is no {data_type}")
        return int(number)

    return convert


def _floating(data_type: pa.DataType) -> Convert:
    most = _FLOAT32_MAX if pa.types.is_float32(data_type) else math.inf

    def convert(value: Any) -> float:
        if not isinstance(value, _Number):
            raise _unexpected("a number", value)
        number = float(value)
        if abs(number) >= most:
            raise Misfit(f"{_short(value)} is beyond {data_type}")
        return number

    return convert


def _decimal(data_type: pa.DataType) -> Convert:
    def convert(value: Any) -> Decimal:
        if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
            raise _unexpected("a number or a text that is one", value)
        number = _digits(value)
        scaled = number.scaleb(data_type.scale, _EXACT)
        if scaled != scaled.to_integral_value() or scaled.copy_abs() >= _EXACT.power(10, data_type.precision):
            raise Misfit(f"{_short(value)} does not fit decimal({data_type.precision},{data_type.scale})")
        return number.quantize(Decimal((0, (1,), -data_type.scale)), context=_EXACT)

    return convert


def _digits(text: str) -> Decimal:
    number = Decimal(text)
    if number and abs(number.adjusted()) > _MOST_DIGITS:
        raise Misfit(f"{_short(text)} is beyond every type")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, _Number):
        value = json_text(value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Misfit("a text holds half of a surrogate pair") from None
    text: str = value
    return text


def _binary(value: Any) -> bytes:
    if not isinstance(value, str) or isinstance(value, _Number):
        raise _unexpected("a text in base64", value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Misfit("no base64") from None


def _moment(data_type: pa.DataType) -> Convert:
    wanted = "a date such as 2026-03-02" if pa.types.is_date(data_type) else "an ISO timestamp"
    if pa.types.is_timestamp(data_type):
        wanted += " with a zone" if data_type.tz else " without a zone"
    storage = pa.int32() if pa.types.is_date(data_type) else pa.int64()

    def convert(value: Any) -> int:
        if not isinstance(value, str) or isinstance(value, _Number):
            raise _unexpected(wanted, value)
        try:
            moments = pa.array([_NEEDLESS_ZEROS.sub(r"\1", value)], pa.string()).cast(data_type)
        except (pa.ArrowInvalid, UnicodeEncodeError):
            raise _unexpected(wanted, value) from None
        number: int = moments.cast(storage)[0].as_py()
        return number

    return convert


def _list(data_type: pa.ListType) -> Convert:
    convert = _converter(data_type.value_field)

    def converted(value: Any) -> list[Any]:
        if not isinstance(value, list) or isinstance(value, _Object):
            raise _unexpected("an array", value)
        return [_placed(f"[{number}]", convert, item) for number, item in enumerate(value)]

    return converted


def _map(data_type: pa.MapType) -> Convert:
    convert = _converter(data_type.item_field)

    def converted(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, _Object):
            raise _unexpected("an object", value)
        if len({name for name, _ in value}) != len(value):
            raise Misfit("a key stands twice")
        return [(_text(name), _placed(name, convert, item)) for name, item in value]

    return converted


def _struct(fields: list[pa.Field]) -> Convert:
    converters = {field.name: _converter(field) for field in fields}

    def converted(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, _Object):
            raise _unexpected("an object", value)
        by_name = {name: item for name, item in value if name in converters}
        if len(by_name) != sum(name in converters for name, _ in value):
            names = [name for name, _ in value if name in converters]
            raise Misfit(f"{next(name for name in names if names.count(name) > 1)} stands twice")
        return tuple(_placed(name, convert, by_name.get(name)) for name, convert in converters.items())

    return converted


def _placed(name: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except Misfit as misfit:
        reason = str(misfit)
        separator = "" if reason.startswith(("[", ".")) else ": "
        raise Misfit(f"{name}{separator}{reason}") from None


def json_text(value: Any) -> str:
    """A parsed value as JSON again, numbers as they were written."""
    if isinstance(value, _Object):
        return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{json_text(item)}" for name, item in value) + "}"
    if isinstance(value, list):
        return f"[{','.join(json_text(item) for item in value)}]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)


def _named(value: Any, data_type: pa.DataType) -> Any:
    """Structs as the mappings that Arrow takes."""
    if value is None:
        return None
    if pa.types.is_struct(data_type):
        return {field.name: _named(item, field.type) for field, item in zip(data_type, value, strict=True)}
    if pa.types.is_list(data_type):
        return [_named(item, data_type.value_type) for item in value]
    if pa.types.is_map(data_type):
        return [(name, _named(item, data_type.item_type)) for name, item in value]
    return value


def _unexpected(wanted: str, value: Any) -> Misfit:
    return Misfit(f"expected {wanted}, found {_kind(value)}")


def _kind(value: Any) -> str:
    if isinstance(value, _Number):
        return f"the number {_short(value)}"
    if isinstance(value, _Object):
        return "an object"
    if isinstance(value, str):
        return f"the text {_short(value)!r}"
    return {bool: str(value).lower(), list: "an array"}.get(type(value), "null")


def _short(text: str) -> str:
    return text if len(text) <= _MAX_PREVIEW else f"{text[:_MAX_PREVIEW]}…"
