"""Columns declared as DDL, as an Arrow schema."""

from __future__ import annotations

import pyarrow as pa

from headwater.config.ddl import DdlColumn, DdlType, parse_ddl

_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),  # Spark's `timestamp` is a moment; its `timestamp_ntz` has no zone
    "timestamp_ntz": pa.timestamp("us"),
}


def schema_of(ddl: str) -> pa.Schema:
    """The Arrow schema that a DDL text declares. Raises ValueError."""
    return pa.schema([_field(column) for column in parse_ddl(ddl)])


def ddl_of(data_type: pa.DataType) -> str:
    """A type as DDL; `schema_of` makes the same of it again. Raises ValueError for one that DDL has no word for."""
    if pa.types.is_decimal128(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_list(data_type):
        return f"array<{ddl_of(data_type.value_type)}>"
    if pa.types.is_map(data_type):
        return f"map<{ddl_of(data_type.key_type)},{ddl_of(data_type.item_type)}>"
    if pa.types.is_struct(data_type):
        return f"struct<{','.join(f'{quoted(field.name)}: {ddl_of(field.type)}' for field in data_type)}>"
    name = next((name for name, known in _ARROW.items() if known == data_type), None)
    if name is None:
        raise ValueError(f"{data_type} has no name in DDL")
    return name


def quoted(name: str) -> str:
    """A column's name, whatever it looks like."""
    return f"`{name.replace('`', '``')}`"


def _field(column: DdlColumn) -> pa.Field:
    return pa.field(column.name, _type(column.type), nullable=not column.required)


def _type(ddl_type: DdlType) -> pa.DataType:
    if ddl_type.name == "decimal":
        return pa.decimal128(*ddl_type.digits)
    inside = [_field(column) for column in ddl_type.fields]
    if ddl_type.name == "array":
        return pa.list_(inside[0])
    if ddl_type.name == "map":
        return pa.map_(inside[0].type, inside[1])
    if ddl_type.name == "struct":
        return pa.struct(inside)
    return _ARROW[ddl_type.name]
