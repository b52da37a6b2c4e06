"""What the schemas of Connect and Debezium say of a column: how it is written, and what it becomes.

| Connect's type | semantic name | column |
| --- | --- | --- |
| boolean · string | | boolean · string |
| int8, int16, int32 · int64 | none, Year · MicroDuration, NanoDuration | int · bigint |
| float · double | | float · double |
| bytes | none, Bits (the first bit is the least) | binary |
| bytes | Connect's Decimal | decimal(p,s); beyond 38 digits string |
| struct | VariableScaleDecimal | string: its scale is each value's own |
| int32 · string | Date, Connect's Date · IsoDate | date |
| int32, int64 · string | Time, MicroTime, NanoTime, Connect's Time · IsoTime | string, `08:30:00.000000` |
| int64 · string | Timestamp, MicroTimestamp, NanoTimestamp, Connect's Timestamp · IsoTimestamp | timestamp_ntz |
| string | ZonedTimestamp | timestamp |
| string | Json, Xml, Uuid, Ltree, TsVector, Enum, EnumSet, Interval, ZonedTime, any other | string |
| array · struct · map of texts | vectors · geometry, any other · hstore | array · struct · map |
| any other map | SparseDoubleVector | string: its JSON |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from headwater.sources.debezium import conversions as to
from headwater.sources.debezium import decimals
from headwater.sources.debezium.kinds import (
    MICRO,
    MILLI,
    NANO,
    Kind,
    array_of,
    decimal_of,
    floating,
    map_of,
    number_as,
    same,
    struct_of,
    text,
)
from headwater.sources.json.strict import rule_of

Schema = Mapping[str, Any]  # as JSON

_MOST_DIGITS = 38


def kind_of(schema: Schema) -> Kind:
    """By what an event's schema says of a column. One that makes no sense leaves the value as its JSON text."""
    kind, name = schema.get("type"), str(schema.get("name") or "").rpartition(".")[2]
    made = _NAMED.get((kind, name)) or _PLAIN.get(kind)
    try:
        return made(schema) if made is not None else _as_json()
    except (KeyError, TypeError, ValueError, AttributeError):
        return _as_json()


def _as_json() -> Kind:
    return Kind(pa.string(), pa.string(), rule_of(pa.string()))


def _connect_decimal(schema: Schema) -> Kind:
    parameters = schema.get("parameters") or {}
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", _MOST_DIGITS))
    if not 0 <= scale <= min(precision, _MOST_DIGITS) or not precision <= _MOST_DIGITS:
        return Kind(pa.string(), pa.string(), decimal_of(pa.decimal128(1)).exact, decimals.decimal_texts(scale))
    return decimal_of(pa.decimal128(precision, scale))


def _variable_scale(schema: Schema) -> Kind:  # noqa: ARG001 - as all of the table
    wire = struct_of({"scale": same(pa.int32()), "value": text()})
    return Kind(wire.wire, pa.string(), wire.exact, decimals.variable_scale)


def _connect_map(schema: Schema) -> Kind:
    if schema["keys"]["type"] != "string":
        return _as_json()
    return map_of(kind_of(schema["values"]))


_DATE = number_as(pa.int32(), pa.date32(), to.days)
_NTZ = pa.timestamp("us")

_PLAIN: Mapping[Any, Callable[[Schema], Kind]] = {
    "boolean": lambda _: same(pa.bool_()),
    **{name: lambda _: same(pa.int32()) for name in ("int8", "int16", "int32")},
    "int64": lambda _: same(pa.int64()),
    **{name: lambda _: floating(pa.float32()) for name in ("float", "float32")},
    **{name: lambda _: floating(pa.float64()) for name in ("double", "float64")},
    "string": lambda _: text(),
    "bytes": lambda _: text(pa.binary(), to.from_base64),
    "array": lambda schema: array_of(kind_of(schema["items"])),
    "map": _connect_map,
    "struct": lambda schema: struct_of({field["field"]: kind_of(field) for field in schema["fields"]}),
}
_NAMED: Mapping[tuple[Any, str], Callable[[Schema], Kind]] = {
    ("bytes", "Decimal"): _connect_decimal,
    ("struct", "VariableScaleDecimal"): _variable_scale,
    ("int32", "Date"): lambda _: _DATE,
    ("string", "IsoDate"): lambda _: text(pa.date32(), to.iso_days),
    ("int32", "Time"): lambda _: number_as(pa.int32(), pa.string(), to.times(MILLI)),
    ("int64", "MicroTime"): lambda _: number_as(pa.int64(), pa.string(), to.times(MICRO)),
    ("int64", "NanoTime"): lambda _: number_as(pa.int64(), pa.string(), to.times(NANO)),
    ("string", "IsoTime"): lambda _: text(pa.string(), to.iso_times),
    ("int64", "Timestamp"): lambda _: number_as(pa.int64(), _NTZ, to.moments(MILLI)),
    ("int64", "MicroTimestamp"): lambda _: number_as(pa.int64(), _NTZ, to.moments(MICRO)),
    ("int64", "NanoTimestamp"): lambda _: number_as(pa.int64(), _NTZ, to.moments(NANO)),
    ("string", "IsoTimestamp"): lambda _: text(_NTZ, to.iso_moments),
    ("string", "ZonedTimestamp"): lambda _: text(pa.timestamp("us", "UTC"), to.zoned_moments),
}
