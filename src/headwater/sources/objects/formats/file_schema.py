"""The schemas of Parquet and Avro files: the columns for their types, and exact casts; other rows are rejects (G8).

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

import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headwater.model.bisect import bisect
from headwater.model.types import MAX_DECIMAL_DIGITS, can_widen
from headwater.sources.ddl_schema import ddl_of
from headwater.sources.objects.content import BadRow, ObjectFailed
from headwater.sources.objects.formats.base import Decoded, DecodedRows

FileColumns = Mapping[str, pa.DataType]

_MOMENT = pa.timestamp("us")


def file_columns(schema: pa.Schema) -> dict[str, pa.DataType]:
    """The columns for a file's schema, without columns of type null.

    Raises ObjectFailed.
    """
    folded = [name.lower() for name in schema.names]
    if duplicates := [name for name in schema.names if not name or folded.count(name.lower()) > 1]:
        raise ObjectFailed(f"columns with empty or ambiguous names: {', '.join(map(repr, duplicates))}")
    columns = {}
    for field in schema:
        if not pa.types.is_null(field.type):
            try:
                columns[field.name] = column_type(field.type)
            except ValueError as error:
                raise ObjectFailed(f"column {field.name}: {error}") from None
    return columns


def column_type(data_type: pa.DataType) -> pa.DataType:  # noqa: C901, PLR0911, PLR0912 - one line per type is the clearest form
    """The column type that represents all values exactly. Raises ValueError."""
    t = pa.types
    if isinstance(data_type, pa.UuidType):
        return pa.string()
    if isinstance(data_type, pa.BaseExtensionType):
        return column_type(data_type.storage_type)
    if t.is_dictionary(data_type) or t.is_run_end_encoded(data_type):
        return column_type(data_type.value_type)
    if t.is_boolean(data_type) or t.is_float64(data_type):
        return data_type
    if t.is_integer(data_type):
        return _integer_type(data_type)
    if t.is_floating(data_type):
        return pa.float32()
    if t.is_decimal(data_type):
        if data_type.precision > MAX_DECIMAL_DIGITS or not 0 <= data_type.scale <= data_type.precision:
            raise ValueError(
                f"{data_type}: at most {MAX_DECIMAL_DIGITS} digits are supported, with a scale within them"
            )
        return pa.decimal128(data_type.precision, data_type.scale)
    if t.is_string(data_type) or t.is_large_string(data_type) or t.is_string_view(data_type) or t.is_time(data_type):
        return pa.string()
    if (
        t.is_binary(data_type)
        or t.is_large_binary(data_type)
        or t.is_binary_view(data_type)
        or t.is_fixed_size_binary(data_type)
    ):
        return pa.binary()
    if t.is_date(data_type):
        return pa.date32()
    if t.is_timestamp(data_type):
        return _MOMENT if data_type.tz is None else pa.timestamp("us", "UTC")
    if t.is_map(data_type):
        return pa.map_(column_type(data_type.key_type), column_type(data_type.item_type))
    if t.is_struct(data_type) and data_type.num_fields:
        return pa.struct([pa.field(field.name, column_type(field.type)) for field in data_type])
    if t.is_nested(data_type) and not t.is_struct(data_type) and not t.is_union(data_type):
        return pa.list_(pa.field("element", column_type(data_type.value_type)))
    raise ValueError(f"{data_type} has no exact column type")


def _integer_type(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_uint64(data_type):
        return pa.decimal128(20, 0)
    return pa.int64() if data_type.bit_width == 64 or pa.types.is_uint32(data_type) else pa.int32()  # noqa: PLR2004


def fits(file_type: pa.DataType, column: pa.DataType) -> bool:
    """True if a column of type `column` represents all values of `file_type`."""
    return bool(file_type == column) or can_widen(file_type, column)


def misfit(name: str, file_type: pa.DataType, column: pa.DataType) -> str:
    """Why a column of an object does not fit the stream."""
    return f"column {name} is {ddl_of(file_type)} in the object and {ddl_of(column)} in the stream"


class Conformer:
    """For one schema of the stream."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def check(self, columns: FileColumns) -> None:
        """Raise ObjectFailed if an object's columns do not fit the stream's.

        Inference has seen all objects of the window: a missing column did not fit.
        """
        for name, file_type in columns.items():
            if name not in self._schema.names:
                raise ObjectFailed(f"column {name} does not fit among {', '.join(self._schema.names)}")
            column = self._schema.field(name).type
            if not fits(file_type, column):
                raise ObjectFailed(misfit(name, file_type, column))

    def rows(self, batch: pa.RecordBatch, numbers: np.ndarray) -> Decoded:
        """The rows of one object; `numbers` are their numbers in it."""
        columns, reasons = [], dict[int, str]()
        for field in self._schema:
            index = batch.schema.get_field_index(field.name)
            if index < 0 or pa.types.is_null(batch.column(index).type):
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            misfits: dict[int, str] = {}
            parts = _cast_exactly(batch.column(index), field.type, misfits)
            columns.append(parts[0] if len(parts) == 1 else pa.concat_arrays(parts))
            reasons = {**{n: f"{field.name}: {reason}" for n, reason in misfits.items()}, **reasons}
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if not reasons:
            return Decoded([DecodedRows.of_one(rows, numbers)])
        good = np.ones(batch.num_rows, bool)
        good[list(reasons)] = False
        bad = [BadRow(0, int(numbers[n]), reasons[n], _preview(batch, n)) for n in sorted(reasons)]
        return Decoded([DecodedRows.of_one(rows.filter(pa.array(good)), numbers[good])], bad)


def _cast_exactly(values: pa.Array, type_: pa.DataType, misfits: dict[int, str]) -> list[pa.Array]:
    """The values in order; misfits are NULL."""
    try:
        parts = list(bisect(values, lambda some: _cast(some, type_), pa.ArrowInvalid))
    except pa.ArrowNotImplementedError as error:
        raise ObjectFailed(f"{values.type} cannot be read as {type_}: {error}") from None
    misfits.update({part.begin: str(part.error).splitlines()[0] for part in parts if part.result is None})
    return [pa.nulls(1, type_) if part.result is None else part.result for part in parts]


def _cast(values: pa.Array, type_: pa.DataType) -> pa.Array:
    if isinstance(values.type, pa.UuidType):
        return pa.array([None if value is None else str(value) for value in values.to_pylist()], type_)
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    return values.cast(type_)


def _preview(batch: pa.RecordBatch, row: int) -> bytes:
    """For people; a replay reads the object again."""
    values = {name: _text(batch.column(index)[row]) for index, name in enumerate(batch.schema.names)}
    return json.dumps(values, ensure_ascii=False).encode()


def _text(value: pa.Scalar) -> str:
    try:
        return str(value)
    except (ValueError, OverflowError):  # timestamps beyond Python's range
        return f"{value.type} {value.value}"
