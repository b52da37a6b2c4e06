"""Column types: what each database type becomes in Arrow (G8).

The kinds are those that Arrow, Iceberg and Spark all know: bool, int32, int64, float32, float64, decimal(p,s),
date, timestamp, timestamptz (both in microseconds), string, binary. What fits none of them exactly is read as
the database's own text: numeric without precision or with more than 38 digits, json, uuid, time, interval,
money, network types, enums, ranges, composites, and arrays (`{1,2,NULL}`; PostgreSQL does not fix their
number of dimensions, Arrow does).

Nothing is altered: a row with a value that the kind has no room for (NaN in a decimal, infinity in a time, years
before 1 or after 9999) is set aside, or stops the read (`unkept`); `as_text` or `where` is the way out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

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


def arrow_type(kind: str) -> pa.DataType:
    decimal = _DECIMAL.fullmatch(kind)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _SIMPLE[kind]


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The exact schema of a stream; nullability is true to the catalog."""
    return pa.schema([pa.field(column.name, arrow_type(column.kind), column.nullable) for column in columns])
