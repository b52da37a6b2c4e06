"""Column types in both directions: what a source brings as an Iceberg type, an Iceberg table as an Arrow schema.

Iceberg types are kept in the spelling of its JSON: `long`, `decimal(12, 2)`, `{"type": "list", …}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

IcebergType = str | Mapping[str, Any]
FIELD_ID = b"PARQUET:field_id"

_MOST_DIGITS = 38
_FIXED = re.compile(r"fixed\[(\d+)\]")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")

_TO_ARROW: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "uuid": pa.uuid(),
    "binary": pa.binary(),
}


class UnknownType(Exception):
    """A type that has no exact counterpart; the text says which."""


@dataclass(frozen=True)
class Column:
    """A top-level column of an Iceberg table."""

    id: int
    name: str
    required: bool
    type: IcebergType

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "required": self.required, "type": self.type}


@dataclass(frozen=True)
class TableSchema:
    """The current schema of a table."""

    columns: tuple[Column, ...]
    identifiers: tuple[int, ...] = ()  # field ids of Iceberg's own notion of a key

    @classmethod
    def from_json(cls, text: str) -> TableSchema:
        data = json.loads(text)
        columns = tuple(Column(f["id"], f["name"], f["required"], f["type"]) for f in data["fields"])
        return cls(columns, tuple(data.get("identifier-field-ids", ())))

    def to_json(self) -> str:
        fields = [column.to_json() for column in self.columns]
        data = {"type": "struct", "schema-id": 0, "fields": fields, "identifier-field-ids": list(self.identifiers)}
        return json.dumps(data)

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def to_arrow(self) -> pa.Schema:
        """What a Parquet file of this table looks like, with the field ids by which Iceberg finds columns."""
        return pa.schema([_arrow_field(column.to_json()) for column in self.columns])


def table_schema(rows: pa.Schema, key: tuple[str, ...]) -> TableSchema:
    """The schema of a new table for these rows. Raises UnknownType; see `unknown_types` for all at once."""
    ids = iter(range(len(rows) + 1, 1 << 30))
    columns = tuple(
        Column(place, field.name, not field.nullable, iceberg_type(field.type, ids))
        for place, field in enumerate(rows, start=1)
    )
    named = {column.name: column for column in columns}
    # Iceberg allows as identifiers only columns that are never NULL and compare exactly.
    usable = all(named[name].required and named[name].type not in {"float", "double"} for name in key)
    return TableSchema(columns, tuple(named[name].id for name in key) if usable else ())


def iceberg_type(kind: pa.DataType, ids: Iterator[int]) -> IcebergType:
    """The Iceberg type that keeps every value of an Arrow type. Raises UnknownType."""
    nested = _nested_type(kind, ids)
    return nested if nested is not None else _primitive_type(kind)


def _nested_type(kind: pa.DataType, ids: Iterator[int]) -> IcebergType | None:
    if pa.types.is_struct(kind):
        fields = [(next(ids), field) for field in kind]
        made = [
            {"id": n, "name": f.name, "required": not f.nullable, "type": iceberg_type(f.type, ids)} for n, f in fields
        ]
        return {"type": "struct", "fields": made}
    if pa.types.is_map(kind):
        key, value = next(ids), next(ids)
        return {
            "type": "map",
            "key-id": key,
            "key": iceberg_type(kind.key_type, ids),
            "value-id": value,
            "value-required": not kind.item_field.nullable,
            "value": iceberg_type(kind.item_type, ids),
        }
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return {
            "type": "list",
            "element-id": next(ids),
            "element-required": not kind.value_field.nullable,
            "element": iceberg_type(kind.value_type, ids),
        }
    return None


def _primitive_type(kind: pa.DataType) -> str:  # noqa: C901, PLR0911, PLR0912 - one line per type is the clearest form
    t = pa.types
    if isinstance(kind, pa.UuidType):
        return "uuid"
    if isinstance(kind, pa.BaseExtensionType):
        return _primitive_type(kind.storage_type)
    if t.is_dictionary(kind):
        return _primitive_type(kind.value_type)
    if t.is_boolean(kind):
        return "boolean"
    if t.is_uint32(kind):
        return "long"
    if t.is_uint64(kind):
        return "decimal(20, 0)"  # the only exact type that reaches 2^64
    if t.is_int64(kind):
        return "long"
    if t.is_integer(kind):
        return "int"
    if t.is_float64(kind):
        return "double"
    if t.is_floating(kind):
        return "float"
    if t.is_decimal(kind) and kind.precision <= _MOST_DIGITS and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision}, {kind.scale})"
    if t.is_date(kind):
        return "date"
    if t.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    # Spark cannot open a table that has a column of Iceberg's `time`; its ISO text keeps every digit.
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind) or t.is_null(kind) or t.is_time(kind):
        return "string"
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind):
        return "binary"
    if t.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    raise UnknownType(str(kind))


def arrow_type(kind: IcebergType) -> pa.DataType:
    """The Arrow type whose Parquet form Iceberg expects. Raises UnknownType."""
    if not isinstance(kind, str):
        return _arrow_nested(kind)
    if kind in _TO_ARROW:
        return _TO_ARROW[kind]
    if fixed := _FIXED.fullmatch(kind):
        return pa.binary(int(fixed[1]))
    if number := digits(kind):
        return pa.decimal128(*number)
    raise UnknownType(kind)


def digits(kind: IcebergType) -> tuple[int, int] | None:
    """Precision and scale of a decimal type."""
    found = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    return (int(found[1]), int(found[2])) if found else None


def _arrow_nested(kind: Mapping[str, Any]) -> pa.DataType:
    match kind["type"]:
        case "struct":
            return pa.struct([_arrow_field(field) for field in kind["fields"]])
        case "list":
            return pa.list_(_field("element", kind["element"], kind["element-id"], required=kind["element-required"]))
        case "map":
            key = _field("key", kind["key"], kind["key-id"], required=True)
            return pa.map_(key, _field("value", kind["value"], kind["value-id"], required=kind["value-required"]))
        case other:
            raise UnknownType(str(other))


def _arrow_field(field: Mapping[str, Any]) -> pa.Field:
    return _field(field["name"], field["type"], field["id"], required=field["required"])


def _field(name: str, kind: IcebergType, number: int, *, required: bool) -> pa.Field:
    return pa.field(name, arrow_type(kind), nullable=not required, metadata={FIELD_ID: str(number).encode()})


def shape(kind: IcebergType) -> object:
    """A type without its ids, for comparing."""
    if isinstance(kind, str):
        return kind.replace(" ", "")
    if kind["type"] == "struct":
        return ("struct", tuple((f["name"], f["required"], shape(f["type"])) for f in kind["fields"]))
    if kind["type"] == "map":
        return ("map", shape(kind["key"]), kind["value-required"], shape(kind["value"]))
    return ("list", kind["element-required"], shape(kind["element"]))


def type_text(kind: IcebergType) -> str:
    """A type for people."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return "struct<" + ", ".join(f"{f['name']}: {type_text(f['type'])}" for f in kind["fields"]) + ">"
    if kind["type"] == "map":
        return f"map<{type_text(kind['key'])}, {type_text(kind['value'])}>"
    return f"list<{type_text(kind['element'])}>"
