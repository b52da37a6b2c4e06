"""Arrow's schemas as Spark's, and back: the types in which both mean the same values.

A timestamp with a zone is Spark's `timestamp`, one without is its `timestamp_ntz`; Spark counts both in microseconds.
PySpark has such a map too, but only as a private one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.model.errors import SchemaRefused
from headwater.model.types import MAX_DECIMAL_DIGITS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

# Spark's word → Arrow's, for types that have no parts; an idle poll imports neither of the two.
_ATOMS = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "string": "string",
    "binary": "binary",
    "date": "date32",
    "void": "null",
}


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns as Spark's. Raises SchemaRefused."""
    from pyspark.sql.types import StructType

    columns = StructType()
    for field in schema:
        columns.add(field.name, spark_type(field.type), field.nullable)
    return columns


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns as Arrow's. Raises SchemaRefused."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, arrow_type(field.dataType), field.nullable) for field in schema])


def spark_type(kind: pa.DataType) -> DataType:
    """Arrow's type as Spark's; encodings and sizes that Spark does not tell apart become one. Raises SchemaRefused."""
    import pyarrow as pa
    import pyspark.sql.types as sql

    t = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return spark_type(kind.storage_type)  # a UUID is 16 bytes
    if t.is_dictionary(kind):
        return spark_type(kind.value_type)
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return sql.ArrayType(spark_type(kind.value_type), kind.value_field.nullable)
    if t.is_map(kind):
        return sql.MapType(spark_type(kind.key_type), spark_type(kind.item_type), kind.item_field.nullable)
    if t.is_struct(kind):
        return sql.VariantType() if _is_variant(kind) else spark_schema(kind)
    return _spark_atom(kind)


def arrow_type(kind: DataType) -> pa.DataType:
    """Spark's type as Arrow's, as Spark itself sends its rows. Raises SchemaRefused."""
    import pyarrow as pa
    import pyspark.sql.types as sql

    match kind:
        case sql.ArrayType():
            return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
        case sql.MapType():
            value = pa.field("value", arrow_type(kind.valueType), kind.valueContainsNull)
            return pa.map_(arrow_type(kind.keyType), value)
        case sql.StructType():
            return pa.struct(arrow_schema(kind))
        case sql.VariantType():
            return _variant()
        case sql.UserDefinedType():
            return arrow_type(kind.sqlType())
    return _arrow_atom(kind)


def _spark_atom(kind: pa.DataType) -> DataType:  # noqa: PLR0911 - one line per type
    import pyarrow as pa
    import pyspark.sql.types as sql

    t = pa.types
    if t.is_decimal(kind) and kind.precision <= MAX_DECIMAL_DIGITS:
        return sql.DecimalType(kind.precision, kind.scale)
    if t.is_timestamp(kind):
        return sql.TimestampNTZType() if kind.tz is None else sql.TimestampType()
    if t.is_time64(kind):
        return sql.TimeType()
    if t.is_duration(kind):
        return sql.DayTimeIntervalType()
    if t.is_large_string(kind):
        return sql.StringType()
    if t.is_large_binary(kind) or t.is_fixed_size_binary(kind):
        return sql.BinaryType()
    if kind not in _spark_atoms():
        raise SchemaRefused(
            f"Spark has no type for Arrow's {kind}", hint="leave the column out, or cast it in the source"
        )
    return _spark_atoms()[kind]


def _arrow_atom(kind: DataType) -> pa.DataType:  # noqa: PLR0911 - as above
    import pyarrow as pa
    import pyspark.sql.types as sql

    match kind:
        case sql.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case sql.StringType():
            return pa.string()  # whatever its collation
        case sql.TimestampType():
            return pa.timestamp("us", "UTC")
        case sql.TimestampNTZType():
            return pa.timestamp("us")
        case sql.TimeType():
            return pa.time64("ns")
        case sql.DayTimeIntervalType():
            return pa.duration("us")
    atom = _ATOMS.get(kind.simpleString())
    if atom is None:
        raise SchemaRefused(f"Arrow has no type for Spark's {kind.simpleString()}", hint="cast it in the transform")
    return pa.type_for_alias(atom)


@functools.cache
def _spark_atoms() -> Mapping[pa.DataType, DataType]:
    import pyarrow as pa
    import pyspark.sql.types as sql

    atoms = (
        sql.BooleanType(), sql.ByteType(), sql.ShortType(), sql.IntegerType(), sql.LongType(), sql.FloatType(),
        sql.DoubleType(), sql.StringType(), sql.BinaryType(), sql.DateType(), sql.NullType(),
    )  # fmt: skip
    return {pa.type_for_alias(_ATOMS[atom.simpleString()]): atom for atom in atoms}


def _variant() -> pa.DataType:
    """As Spark sends a VARIANT: a struct whose second field is marked."""
    import pyarrow as pa

    mark = {b"variant": b"true"}
    return pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata=mark),
        ]
    )


def _is_variant(kind: pa.DataType) -> bool:
    return bool(kind.equals(_variant(), check_metadata=True))
