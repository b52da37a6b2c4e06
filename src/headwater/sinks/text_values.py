"""Arrow columns as values that text formats represent exactly: ISO times, decimals as text, bytes in base64."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
import uuid
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import SchemaRefused, ValueNotKept

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]

_AS_TEXT = "add the column to as_text: of the source, or land it as Parquet"


def is_nested(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_nested(data_type))


def check_types(schema: pa.Schema, target: str) -> None:
    """Refuse columns that a text format cannot represent exactly (G8)."""
    for field in schema:
        if not _is_exact(field.type):
            raise SchemaRefused(
                f"column {field.name} has type {field.type}, which {target} cannot represent exactly", hint=_AS_TEXT
            )
    repeated = {name for name in schema.names if schema.names.count(name) > 1}
    if repeated:
        raise SchemaRefused(f"{target} needs distinct column names; repeated: {', '.join(sorted(repeated))}")


def flat_column(column: pa.Array) -> pa.Array:  # noqa: PLR0911 - one line per type
    """A column that is not nested, as Arrow booleans, numbers or texts."""
    data_type = column.type
    if isinstance(data_type, pa.BaseExtensionType):
        if pa.types.is_fixed_size_binary(data_type.storage_type):  # UUID is the only such type that sources have
            return pa.array(
                [None if value is None else str(_plain(value)) for value in column.to_pylist()], pa.string()
            )
        return flat_column(column.storage)
    if pa.types.is_dictionary(data_type):
        return flat_column(column.dictionary_decode())
    if pa.types.is_decimal(data_type):
        return _decimals(column)
    if pa.types.is_timestamp(data_type):
        # Arrow stores zoned instants in UTC, and formatting with a zone takes twenty times as long as without.
        text = column.cast(pa.timestamp(data_type.unit)).cast(pa.string())
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
        return pc.binary_join_element_wise(text, "Z", "") if data_type.tz else text
    if pa.types.is_date(data_type) or pa.types.is_time(data_type):
        return column.cast(pa.string())
    if _is_bytes(data_type):
        return pa.array([_plain(value) for value in column.to_pylist()], pa.string())
    return column


def plain_column(column: pa.Array, name: str) -> Sequence[Plain]:
    """Any column as Python values for JSON. Raises ValueNotKept for a value that JSON cannot represent."""
    if not is_nested(column.type):
        return list(flat_column(column).to_pylist())
    try:
        return [_plain(value) for value in column.to_pylist(maps_as_pydicts="strict")]
    except KeyError:
        raise ValueNotKept(f"column {name}: a map has the same key twice", hint=_AS_TEXT) from None
    except (ValueError, OverflowError) as error:
        raise ValueNotKept(f"column {name}: {error}", hint=_AS_TEXT) from error


def refuse_not_finite(values: Sequence[Plain], name: str) -> None:
    """G8: JSON has no NaN and no infinity; readers would fail or guess."""
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueNotKept(f"column {name} contains {value}, which JSON cannot represent", hint=_AS_TEXT)
        if isinstance(value, list):
            refuse_not_finite(value, name)
        elif isinstance(value, dict):
            refuse_not_finite(list(value.values()), name)


def _plain(value: object) -> Plain:  # noqa: PLR0911 - one line per type
    match value:
        case None | bool() | int() | float() | str():
            return value
        case decimal.Decimal():
            return format(value, "f")
        case dt.datetime():
            return value.isoformat(timespec="microseconds") if value.tzinfo is None else _instant(value)
        case dt.date() | dt.time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case uuid.UUID():
            return str(value)
        case dict():
            return {str(_plain(name)): _plain(item) for name, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            raise ValueError(f"a value of type {type(value).__name__} has no exact representation")


def _instant(value: dt.datetime) -> str:
    return value.astimezone(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _decimals(column: pa.Array) -> pa.Array:
    text = column.cast(pa.string())
    if pc.any(pc.match_substring(text, "E")).as_py():
        return pa.array([_plain(value) for value in column.to_pylist()], pa.string())
    return text


def _is_exact(data_type: pa.DataType) -> bool:
    if isinstance(data_type, pa.BaseExtensionType):
        return _is_exact(data_type.storage_type)
    if pa.types.is_dictionary(data_type):
        return _is_exact(data_type.value_type)
    if is_nested(data_type):
        return all(_is_exact(data_type.field(index).type) for index in range(data_type.num_fields))
    return not (pa.types.is_duration(data_type) or pa.types.is_interval(data_type))


def _is_bytes(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_fixed_size_binary(data_type)
        or pa.types.is_binary_view(data_type)
    )
