"""Arrow columns as values that text formats hold exactly: ISO times, decimals as text, bytes in base64."""

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

_AS_TEXT = "add the column to the source's as_text:, or land it as Parquet"


def is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind))


def check_types(schema: pa.Schema, target: str) -> None:
    """Refuse, by name, the columns that a text format has no exact form for (G8)."""
    for field in schema:
        if not _has_form(field.type):
            raise SchemaRefused(
                f"column {field.name} has type {field.type}, which {target} cannot keep exactly", hint=_AS_TEXT
            )
    twice = {name for name in schema.names if schema.names.count(name) > 1}
    if twice:
        raise SchemaRefused(f"{target} needs columns with names of their own; twice: {', '.join(sorted(twice))}")


def flat_column(column: pa.Array) -> pa.Array:  # noqa: PLR0911 - one line per kind of column
    """A column that is not nested, as Arrow booleans, numbers or texts."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        if pa.types.is_fixed_size_binary(kind.storage_type):  # UUID is the one such type that sources give
            return pa.array(
                [None if value is None else str(_plain(value)) for value in column.to_pylist()], pa.string()
            )
        return flat_column(column.storage)
    if pa.types.is_dictionary(kind):
        return flat_column(column.dictionary_decode())
    if pa.types.is_decimal(kind):
        return _decimals(column)
    if pa.types.is_timestamp(kind):
        # Arrow keeps zoned instants in UTC; the zone is only how they are shown, and to show one takes twenty times
        # as long as to show none.
        text = column.cast(pa.timestamp(kind.unit)).cast(pa.string())
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
        return pc.binary_join_element_wise(text, "Z", "") if kind.tz else text
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return column.cast(pa.string())
    if _is_bytes(kind):
        return pa.array([_plain(value) for value in column.to_pylist()], pa.string())
    return column


def plain_column(column: pa.Array, name: str) -> Sequence[Plain]:
    """Any column as Python values that JSON can hold; raises ValueNotKept for one that it cannot."""
    if not is_nested(column.type):
        return list(flat_column(column).to_pylist())
    try:
        return [_plain(value) for value in column.to_pylist(maps_as_pydicts="strict")]
    except KeyError:
        raise ValueNotKept(f"column {name}: a map holds one key twice", hint=_AS_TEXT) from None
    except (ValueError, OverflowError) as error:
        raise ValueNotKept(f"column {name}: {error}", hint=_AS_TEXT) from error


def refuse_not_finite(values: Sequence[Plain], name: str) -> None:
    """G8: JSON has no NaN and no infinity; a reader would fail on them or guess."""
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueNotKept(f"column {name} holds {value}, for which JSON has no number", hint=_AS_TEXT)
        if isinstance(value, list):
            refuse_not_finite(value, name)
        elif isinstance(value, dict):
            refuse_not_finite(list(value.values()), name)


def _plain(value: object) -> Plain:  # noqa: PLR0911 - one line per kind of value
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
            return {str(_plain(name)): _plain(part) for name, part in value.items()}
        case list():
            return [_plain(part) for part in value]
        case _:
            raise ValueError(f"a value of type {type(value).__name__} has no exact form")


def _instant(value: dt.datetime) -> str:
    return value.astimezone(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _decimals(column: pa.Array) -> pa.Array:
    text = column.cast(pa.string())
    if pc.any(pc.match_substring(text, "E")).as_py():
        return pa.array([_plain(value) for value in column.to_pylist()], pa.string())
    return text


def _has_form(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_form(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _has_form(kind.value_type)
    if is_nested(kind):
        return all(_has_form(kind.field(index).type) for index in range(kind.num_fields))
    return not (pa.types.is_duration(kind) or pa.types.is_interval(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )
