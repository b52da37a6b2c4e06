"""Columns that objects declare themselves, as Parquet and Avro do, in the types that the stream's columns can have.

| in the object | column |
| --- | --- |
| whole numbers of up to 32 bits, unsigned of up to 16 | int |
| up to 64 bits, unsigned of 32 | bigint |
| unsigned of 64 bits | decimal(20,0) |
| timestamps of any unit | timestamp, timestamp_ntz: a value with a part of a microsecond is a reject |
| times of day, UUIDs, enums | string |
| fixed bytes | binary |

A column may widen from window to window as Iceberg allows: int to bigint, float to double, decimals to more digits.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from headwater.sources.ddl_schema import ddl_of
from headwater.sources.objects.failures import ObjectFailed

OwnColumns = Mapping[str, pa.DataType]

_MOST_DIGITS = 38
_MOMENT = pa.timestamp("us")
_WIDER = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


def own_columns(schema: pa.Schema) -> dict[str, pa.DataType]:
    """What columns a file's schema gives. Those that hold nothing but NULL have no type, and give none.

    Raises ObjectFailed.
    """
    folded = [name.lower() for name in schema.names]
    if twice := [name for name in schema.names if not name or folded.count(name.lower()) > 1]:
        raise ObjectFailed(f"columns that cannot stand beside each other: {', '.join(map(repr, twice))}")
    found = {}
    for field in schema:
        if not pa.types.is_null(field.type):
            try:
                found[field.name] = kept_type(field.type)
            except ValueError as error:
                raise ObjectFailed(f"column {field.name}: {error}") from None
    return found


def kept_type(kind: pa.DataType) -> pa.DataType:  # noqa: C901, PLR0911, PLR0912 - one line per type is the clearest form
    """The type that keeps its values. Raises ValueError."""
    t = pa.types
    if isinstance(kind, pa.UuidType):
        return pa.string()
    if isinstance(kind, pa.BaseExtensionType):
        return kept_type(kind.storage_type)
    if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        return kept_type(kind.value_type)
    if t.is_boolean(kind) or t.is_float64(kind):
        return kind
    if t.is_integer(kind):
        return _whole(kind)
    if t.is_floating(kind):
        return pa.float32()
    if t.is_decimal(kind):
        if kind.precision > _MOST_DIGITS or not 0 <= kind.scale <= kind.precision:
            raise ValueError(f"{kind}: at most {_MOST_DIGITS} digits can be kept, the scale within them")
        return pa.decimal128(kind.precision, kind.scale)
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind) or t.is_time(kind):
        return pa.string()
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind) or t.is_fixed_size_binary(kind):
        return pa.binary()
    if t.is_date(kind):
        return pa.date32()
    if t.is_timestamp(kind):
        return _MOMENT if kind.tz is None else pa.timestamp("us", "UTC")
    if t.is_map(kind):
        return pa.map_(kept_type(kind.key_type), kept_type(kind.item_type))
    if t.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(field.name, kept_type(field.type)) for field in kind])
    if t.is_nested(kind) and not t.is_struct(kind) and not t.is_union(kind):
        return pa.list_(pa.field("element", kept_type(kind.value_type)))
    raise ValueError(f"{kind} is no type that can be kept exactly")


def _whole(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    return pa.int64() if kind.bit_width == 64 or pa.types.is_uint32(kind) else pa.int32()  # noqa: PLR2004


def fits(held: pa.DataType, column: pa.DataType) -> bool:
    """Whether a column of a type takes all values of another."""
    if held == column or (held, column) in _WIDER:
        return True
    if pa.types.is_decimal(held) and pa.types.is_decimal(column):
        return bool(held.scale == column.scale and held.precision <= column.precision)
    return False


def misfit(name: str, held: pa.DataType, column: pa.DataType) -> str:
    """Why a column of an object does not belong to the stream."""
    return f"column {name} is {ddl_of(held)}, and {ddl_of(column)} in the stream"
