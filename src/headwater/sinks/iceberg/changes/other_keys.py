"""Keys in other forms: former ones, which events bring as JSON, and those that Spark is given."""

from __future__ import annotations

import base64
import datetime as dt
import uuid
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from headwater.sinks.iceberg.keyset import plain

_EXACT = Context(prec=76)  # Python's own rounds to 28 digits


def old_key_values(keys: Sequence[Sequence[Any]], types: Sequence[pa.DataType]) -> list[pa.Array]:
    """Column by column, as `plain` arrays."""
    return [
        plain(pa.array([_value(key[place], kind) for key in keys], _storage(kind))) for place, kind in enumerate(types)
    ]


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _value(value: Any, kind: pa.DataType) -> Any:  # noqa: PLR0911 - one line per type is the clearest form
    if isinstance(kind, pa.BaseExtensionType):
        return uuid.UUID(value).bytes if isinstance(value, str) else value
    if pa.types.is_decimal(kind):
        return Decimal(str(value)).quantize(Decimal((0, (1,), -kind.scale)), context=_EXACT)
    if pa.types.is_date(kind) and isinstance(value, str):
        return dt.date.fromisoformat(value)
    if pa.types.is_timestamp(kind) and isinstance(value, str):
        return dt.datetime.fromisoformat(value)
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else str(value)
    if pa.types.is_binary(kind):
        return base64.b64decode(value) if isinstance(value, str) else value
    return value


def as_text(kind: pa.DataType, values: pa.Array) -> pa.Array:
    """As Spark knows them: UUIDs are texts there."""
    if not isinstance(kind, pa.BaseExtensionType):
        return values
    return pa.array([str(uuid.UUID(bytes=value)) for value in values.to_pylist()], pa.string())
