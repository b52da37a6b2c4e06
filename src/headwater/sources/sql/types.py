"""Column types: what each database type becomes in Arrow, and the exact conversion of batches (G8).

The kinds are those that Arrow, Iceberg and Spark all know: bool, int32, int64, float32, float64, decimal(p,s),
date, timestamp, timestamptz (both in microseconds), string, binary. What fits none of them exactly is read as
the database's own text: numeric without precision or with more than 38 digits, json, uuid, time, interval,
money, network types, enums, ranges, composites, and arrays (`{1,2,NULL}`; PostgreSQL does not fix their
number of dimensions, Arrow does).

Values that the kind has no room for (NaN in a decimal, infinity in a time, years before 1 or after 9999) stop
the read with their column and number, and nothing is altered; `as_text` or `where` is the way out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import ValueNotKept
from headwater.sources.sql.relation import Column

_SIMPLE = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
# The years 1 to 9999, in days and in microseconds since 1970.
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)


def arrow_type(kind: str) -> pa.DataType:
    decimal = _DECIMAL.fullmatch(kind)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _SIMPLE[kind]


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The exact schema of a stream; nullability is true to the catalog."""
    return pa.schema([pa.field(column.name, arrow_type(column.kind), column.nullable) for column in columns])


def exact_batch(batch: pa.RecordBatch, columns: Sequence[Column], schema: pa.Schema, stream: str) -> pa.RecordBatch:
    """The batch in the stream's schema. Raises ValueNotKept where a value has no place in it."""
    arrays = [
        _exact(batch.column(number), column, schema.field(number).type, stream) for number, column in enumerate(columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _exact(array: pa.Array, column: Column, target: pa.DataType, stream: str) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_decimal(target):
        return _decimals(array, column, target, stream)
    if pa.types.is_date(target):
        _within(array.view(pa.int32()), _DAYS, column, stream)
    elif pa.types.is_timestamp(target):
        _within(array.view(pa.int64()), _MICROSECONDS, column, stream)
    return array if array.type == target else array.cast(target, safe=True)


def _decimals(array: pa.Array, column: Column, target: pa.DataType, stream: str) -> pa.Array:
    if array.type == target:
        return array
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        texts = pc.utf8_lower(array.cast(pa.string()))
        special = pc.is_in(texts, value_set=pa.array(["nan", "inf", "-inf", "infinity", "-infinity"]))
        count = pc.sum(special).as_py() or 0
        if count:
            raise not_kept(stream, column, count, "NaN or infinity") from None
        raise not_kept(stream, column, 1, "with more digits than the type has") from None


def _within(numbers: pa.Array, limits: tuple[int, int], column: Column, stream: str) -> None:
    found = pc.min_max(numbers).as_py()
    if found["min"] is None or (found["min"] >= limits[0] and found["max"] <= limits[1]):
        return
    outside = pc.or_(pc.less(numbers, limits[0]), pc.greater(numbers, limits[1]))
    raise not_kept(stream, column, pc.sum(outside).as_py(), "infinite, or outside the years 1 to 9999")


def not_kept(stream: str, column: Column, count: int, what: str) -> ValueNotKept:
    """The error for values that a column's type cannot hold."""
    return ValueNotKept(
        f"{stream}: column {column.name} ({column.declared or column.kind}) has at least {count} "
        f"value{'s' if count != 1 else ''} {what}; {column.kind} cannot keep such values exactly",
        hint=f"read the column as text (as_text: [{column.name}]), or leave those rows out (where: …)",
    )
