"""How a column is written in events, and what it becomes.

An event's schema decides. Without one, the column's type and the settings do.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.sources.kafka import DebeziumSettings
from headwater.model.bisect import bisect
from headwater.model.types import MAX_DECIMAL_DIGITS, can_widen
from headwater.sources.ddl_schema import ddl_of
from headwater.sources.debezium import conversions
from headwater.sources.debezium import conversions as to
from headwater.sources.json.strict import is_number, json_text, rule_of
from headwater.sources.values import Misfit

ExactParser = Callable[[Any], Any]

MILLI, MICRO, NANO = 10**3, 10**6, 10**9
_UNITS = {"millis": MILLI, "micros": MICRO, "nanos": NANO}
_CONSTANTS = ("NaN", "Infinity", "-Infinity")  # how Connect writes them: as texts
_MAX_PREVIEW = 40


@dataclass(frozen=True)
class FieldType:
    """One column."""

    wire: pa.DataType  # as it is read from JSON
    column: pa.DataType  # as it is stored
    exact: ExactParser  # one value, for the strict parser: ready for an array of `wire`; raises Misfit
    convert: to.Convert | None = None  # None: both are the same

    def converted(self, array: pa.Array) -> pa.Array:
        """Raises ArrowInvalid or ValueError where the column cannot represent a value."""
        return array if self.convert is None else self.convert(array)


def field_type_of_column(column: pa.DataType, settings: DebeziumSettings) -> FieldType:  # noqa: PLR0911 - one line per type is the clearest form
    """By a column's type, for events that have no schema; the settings are those of the column."""
    t = pa.types
    if t.is_boolean(column) or t.is_integer(column):
        return same(column)
    if t.is_floating(column):
        return floating(column)
    if t.is_decimal(column):
        return decimal_of(column, as_text=settings.decimals == "text")
    if t.is_binary(column):
        return text(pa.binary(), _BINARY[settings.binary])
    if t.is_date(column):
        return text(column, to.iso_days) if settings.times == "iso" else number_as(pa.int32(), column, to.days)
    if t.is_timestamp(column):
        return _moment(column, settings)
    if t.is_list(column):
        return array_of(field_type_of_column(column.value_type, settings))
    if t.is_map(column):
        return map_of(field_type_of_column(column.item_type, settings))
    if t.is_struct(column):
        return struct_of({field.name: field_type_of_column(field.type, settings) for field in column})
    return FieldType(pa.string(), pa.string(), rule_of(pa.string()))


def fit_column(
    field_type: FieldType, column: pa.DataType, settings: DebeziumSettings | None = None
) -> FieldType | None:
    """The same for a column of another type; None: it cannot hold all values.

    With settings the user declared the column: then a narrower type is accepted too, as long as the values fit.
    """
    if field_type.column == column:
        return field_type
    if is_wider(column, field_type.column) or (settings and _declarable(field_type.column, column)):
        return FieldType(
            field_type.wire, column, field_type.exact, lambda array: field_type.converted(array).cast(column)
        )
    if settings and pa.types.is_string(field_type.column):
        as_text = field_type_of_column(column, settings.model_copy(update={"decimals": "text", "times": "iso"}))
        if pa.types.is_string(as_text.wire):
            return FieldType(
                field_type.wire, column, field_type.exact, lambda array: as_text.converted(field_type.converted(array))
            )
    return None


def is_wider(column: pa.DataType, than: pa.DataType) -> bool:
    """Whether a column can be widened so, as Iceberg allows it."""
    if can_widen(than, column):
        return True
    if pa.types.is_list(than) and pa.types.is_list(column):
        return is_wider(column.value_type, than.value_type)
    return False


def _declarable(source: pa.DataType, column: pa.DataType) -> bool:
    t = pa.types
    numbers = t.is_integer(source) and (t.is_integer(column) or t.is_decimal(column))
    return bool(numbers or (t.is_decimal(source) and t.is_decimal(column)))


def same(column: pa.DataType) -> FieldType:
    """Written as it is stored."""
    return FieldType(column, column, rule_of(column))


def number_as(wire: pa.DataType, column: pa.DataType, convert: to.Convert) -> FieldType:
    """Written as a whole number."""
    return FieldType(wire, column, rule_of(wire), convert)


def text(column: pa.DataType | None = None, convert: to.Convert | None = None) -> FieldType:
    """Written as a text, and nothing else."""
    return FieldType(pa.string(), column or pa.string(), _exact_text, convert)


def _exact_text(value: Any) -> str:
    if not isinstance(value, str) or is_number(value):
        raise Misfit(f"expected a text, found {json_text(value)[:_MAX_PREVIEW]}")
    text: str = rule_of(pa.string())(value)
    return text


def floating(column: pa.DataType) -> FieldType:
    """Written as a number, or as the text of what JSON has no number for."""
    rule = rule_of(pa.float64())

    def exact(value: Any) -> float:
        if isinstance(value, str) and not is_number(value) and value in _CONSTANTS:
            return float(value)
        number: float = rule(value)
        return number

    return FieldType(pa.float64(), column, exact, to.floats if pa.types.is_float32(column) else None)


def decimal_of(column: pa.DataType, *, as_text: bool = False) -> FieldType:
    """Written as its unscaled bytes in base64, or as a number; with `as_text` as the text of one."""

    def exact(value: Any) -> str:
        return conversions.NUMBER + value if is_number(value) else _exact_text(value)

    convert = (conversions.texts_to_decimals if as_text else conversions.decimals)(column.precision, column.scale)
    return FieldType(pa.string(), column, exact, convert)


def _moment(column: pa.DataType, settings: DebeziumSettings) -> FieldType:
    if column.tz is not None:
        return text(column, to.zoned_moments)
    if settings.times == "iso":
        return text(column, to.iso_moments)
    return number_as(pa.int64(), column, to.moments(_UNITS[str(settings.times)]))


def array_of(element: FieldType) -> FieldType:
    """A column of arrays."""
    wire, column = (pa.list_(pa.field("element", field_type)) for field_type in (element.wire, element.column))

    def exact(value: Any) -> list[Any]:
        if not isinstance(value, list) or type(value) is not list:
            raise Misfit(f"expected an array, found {json_text(value)[:_MAX_PREVIEW]}")
        return [None if item is None else element.exact(item) for item in value]

    def convert(array: pa.Array) -> pa.Array:
        lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
        values = element.converted(array.flatten())
        return pa.ListArray.from_arrays(offsets, values, type=column, mask=array.is_null())

    return FieldType(wire, column, exact, convert if element.convert else None)


def map_of(item: FieldType) -> FieldType:
    """Written as an object whose names are the keys."""
    wire, column = pa.map_(pa.string(), item.wire), pa.map_(pa.string(), item.column)

    def exact(value: Any) -> list[tuple[str, Any]]:
        fields = _fields(value)
        return [(_exact_text(name), None if value is None else item.exact(value)) for name, value in fields.items()]

    def convert(array: pa.Array) -> pa.Array:
        maps = array.to_pylist()
        items = item.converted(pa.array([value for one in maps for _, value in one or ()], item.wire)).to_pylist()
        left = iter(items)
        converted = [None if one is None else [(name, next(left)) for name, _ in one] for one in maps]
        return pa.array(converted, column)

    return FieldType(wire, column, exact, convert if item.convert else None)


def struct_of(fields: Mapping[str, FieldType]) -> FieldType:
    """A column of columns; so is an event itself."""
    wire, column = (
        pa.struct([pa.field(name, getattr(field_type, side)) for name, field_type in fields.items()])
        for side in ("wire", "column")
    )

    def exact(value: Any) -> dict[str, Any]:
        values = _fields(value, fields)
        return {name: placed(name, field_type.exact, values.get(name)) for name, field_type in fields.items()}

    def convert(array: pa.Array) -> pa.Array:
        columns = [
            field_type.converted(values) for field_type, values in zip(fields.values(), array.flatten(), strict=True)
        ]
        return pa.StructArray.from_arrays(columns, fields=list(column), mask=array.is_null())

    return FieldType(
        wire, column, exact, convert if any(field_type.convert for field_type in fields.values()) else None
    )


def _fields(value: Any, wanted: Container[str] | None = None) -> dict[str, Any]:
    """Of an object; each that is wanted stands there once."""
    if not isinstance(value, list) or type(value) is list:
        raise Misfit(f"expected an object, found {json_text(value)[:_MAX_PREVIEW]}")
    pairs = [pair for pair in value if wanted is None or pair[0] in wanted]
    by_name = dict(pairs)
    if len(by_name) != len(pairs):
        raise Misfit("a field stands twice")
    return by_name


def placed(name: str, exact: ExactParser, value: Any) -> Any:
    """A value of that name, or the reason, with the name."""
    if value is None:
        return None
    try:
        return exact(value)
    except Misfit as misfit:
        raise Misfit(f"{name}: {misfit}") from None


_BINARY = {"base64": to.from_base64, "base64url": to.from_base64url, "hex": to.from_hex}


Schema = Mapping[str, Any]  # as JSON


def field_type_of(schema: Schema) -> FieldType:
    """By what an event's schema says of a column. One that makes no sense leaves the value as its JSON text."""
    type_, name = schema.get("type"), str(schema.get("name") or "").rpartition(".")[2]
    factory = _NAMED.get((type_, name)) or _PLAIN.get(type_)
    try:
        return factory(schema) if factory is not None else _as_json()
    except (KeyError, TypeError, ValueError, AttributeError):
        return _as_json()


def _as_json() -> FieldType:
    return FieldType(pa.string(), pa.string(), rule_of(pa.string()))


def _connect_decimal(schema: Schema) -> FieldType:
    parameters = schema.get("parameters") or {}
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", MAX_DECIMAL_DIGITS))
    if not 0 <= scale <= min(precision, MAX_DECIMAL_DIGITS) or not precision <= MAX_DECIMAL_DIGITS:
        return FieldType(pa.string(), pa.string(), decimal_of(pa.decimal128(1)).exact, conversions.decimal_texts(scale))
    return decimal_of(pa.decimal128(precision, scale))


def _variable_scale(schema: Schema) -> FieldType:  # noqa: ARG001 - as all of the table
    wire = struct_of({"scale": same(pa.int32()), "value": text()})
    return FieldType(wire.wire, pa.string(), wire.exact, conversions.variable_scale)


def _connect_map(schema: Schema) -> FieldType:
    if schema["keys"]["type"] != "string":
        return _as_json()
    return map_of(field_type_of(schema["values"]))


_DATE = number_as(pa.int32(), pa.date32(), to.days)
_NTZ = pa.timestamp("us")

_PLAIN: Mapping[Any, Callable[[Schema], FieldType]] = {
    "boolean": lambda _: same(pa.bool_()),
    **{name: lambda _: same(pa.int32()) for name in ("int8", "int16", "int32")},
    "int64": lambda _: same(pa.int64()),
    **{name: lambda _: floating(pa.float32()) for name in ("float", "float32")},
    **{name: lambda _: floating(pa.float64()) for name in ("double", "float64")},
    "string": lambda _: text(),
    "bytes": lambda _: text(pa.binary(), to.from_base64),
    "array": lambda schema: array_of(field_type_of(schema["items"])),
    "map": _connect_map,
    "struct": lambda schema: struct_of({field["field"]: field_type_of(field) for field in schema["fields"]}),
}
_NAMED: Mapping[tuple[Any, str], Callable[[Schema], FieldType]] = {
    ("bytes", "Decimal"): _connect_decimal,
    ("struct", "VariableScaleDecimal"): _variable_scale,
    ("int32", "Date"): lambda _: _DATE,
    ("string", "IsoDate"): lambda _: text(pa.date32(), to.iso_days),
    ("int32", "Time"): lambda _: number_as(pa.int32(), pa.string(), to.times(MILLI)),
    ("int64", "MicroTime"): lambda _: number_as(pa.int64(), pa.string(), to.times(MICRO)),
    ("int64", "NanoTime"): lambda _: number_as(pa.int64(), pa.string(), to.times(NANO)),
    ("string", "IsoTime"): lambda _: text(pa.string(), to.without_z),
    ("int64", "Timestamp"): lambda _: number_as(pa.int64(), _NTZ, to.moments(MILLI)),
    ("int64", "MicroTimestamp"): lambda _: number_as(pa.int64(), _NTZ, to.moments(MICRO)),
    ("int64", "NanoTimestamp"): lambda _: number_as(pa.int64(), _NTZ, to.moments(NANO)),
    ("string", "IsoTimestamp"): lambda _: text(_NTZ, to.iso_moments),
    ("string", "ZonedTimestamp"): lambda _: text(pa.timestamp("us", "UTC"), to.zoned_moments),
}


def convert_exact(field_type: FieldType, array: pa.Array) -> tuple[pa.Array, list[int]]:
    """The column, NULL in place of values that have none; and their places (G8)."""
    parts = list(bisect(array, field_type.converted, (ValueError, ArithmeticError)))
    columns = [pa.nulls(len(part.items), field_type.column) if part.result is None else part.result for part in parts]
    bad = [part.begin for part in parts if part.result is None and len(part.items)]
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns), bad


def conversion_error(name: str, field_type: FieldType, value: pa.Scalar) -> str:
    """The reason, with the column and the value as it was written."""
    text = str(value.as_py())
    return f"{name}: {text if len(text) <= _MAX_PREVIEW else f'{text[:_MAX_PREVIEW]}…'} cannot be kept as {ddl_of(field_type.column)}"
