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


def spark_type(data_type: pa.DataType) -> DataType:
    """Arrow's type as Spark's; encodings and sizes that Spark does not tell apart become one. Raises SchemaRefused."""
    import pyarrow as pa
    import pyspark.sql.types as sql

    t = pa.types
    if isinstance(data_type, pa.BaseExtensionType):
        return spark_type(data_type.storage_type)  # a UUID is 16 bytes
    if t.is_dictionary(data_type):
        return spark_type(data_type.value_type)
    if t.is_list(data_type) or t.is_large_list(data_type) or t.is_fixed_size_list(data_type):
        return sql.ArrayType(spark_type(data_type.value_type), data_type.value_field.nullable)
    if t.is_map(data_type):
        return sql.MapType(
            spark_type(data_type.key_type), spark_type(data_type.item_type), data_type.item_field.nullable
        )
    if t.is_struct(data_type):
        return sql.VariantType() if _is_variant(data_type) else spark_schema(data_type)
    return _spark_atom(data_type)


def arrow_type(data_type: DataType) -> pa.DataType:
    """Spark's type as Arrow's, as Spark itself sends its rows. Raises SchemaRefused."""
    import pyarrow as pa
    import pyspark.sql.types as sql

    match data_type:
        case sql.ArrayType():
            return pa.list_(pa.field("element", arrow_type(data_type.elementType), data_type.containsNull))
        case sql.MapType():
            value = pa.field("value", arrow_type(data_type.valueType), data_type.valueContainsNull)
            return pa.map_(arrow_type(data_type.keyType), value)
        case sql.StructType():
            return pa.struct(arrow_schema(data_type))
        case sql.VariantType():
            return _variant()
        case sql.UserDefinedType():
            return arrow_type(data_type.sqlType())
    return _arrow_atom(data_type)


def _spark_atom(data_type: pa.DataType) -> DataType:  # noqa: PLR0911 - one line per type
    import pyarrow as pa
    import pyspark.sql.types as sql

    t = pa.types
    if t.is_decimal(data_type) and data_type.precision <= MAX_DECIMAL_DIGITS:
        return sql.DecimalType(data_type.precision, data_type.scale)
    if t.is_timestamp(data_type):
        return sql.TimestampNTZType() if data_type.tz is None else sql.TimestampType()
    if t.is_time64(data_type):
        return sql.TimeType()
    if t.is_duration(data_type):
        return sql.DayTimeIntervalType()
    if t.is_large_string(data_type):
        return sql.StringType()
    if t.is_large_binary(data_type) or t.is_fixed_size_binary(data_type):
        return sql.BinaryType()
    if data_type not in _spark_atoms():
        raise SchemaRefused(
            f"Spark has no type for Arrow's {data_type}", hint="leave the column out, or cast it in the source"
        )
    return _spark_atoms()[data_type]


def _arrow_atom(data_type: DataType) -> pa.DataType:  # noqa: PLR0911 - as above
    import pyarrow as pa
    import pyspark.sql.types as sql

    match data_type:
        case sql.DecimalType():
            return pa.decimal128(data_type.precision, data_type.scale)
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
    atom = _ATOMS.get(data_type.simpleString())
    if atom is None:
        raise SchemaRefused(
            f"Arrow has no type for Spark's {data_type.simpleString()}", hint="cast it in the transform"
        )
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


def _is_variant(data_type: pa.DataType) -> bool:
    return bool(data_type.equals(_variant(), check_metadata=True))
