"""Column types of a table, and schema evolution: how a table's schema follows its source.

Iceberg types have the form of its JSON: `long`, `decimal(12, 2)`, `{"type": "list", …}`. Columns are added, types
widened, NULLs allowed, decided before anything is written. Everything else could lose or alter values and is refused,
column by column, with a remedy (G12).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa

from headwater.model.errors import SchemaRefused
from headwater.model.types import wider_type

IcebergType = str | Mapping[str, Any]
FIELD_ID = b"PARQUET:field_id"

_MAX_DIGITS = 38
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
    """A type without an exact counterpart; the text names it."""


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
    identifiers: tuple[int, ...] = ()  # Iceberg's identifier fields, by id

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
        """The schema of a Parquet file of this table, with the field ids by which Iceberg finds columns."""
        return pa.schema([_arrow_field(column.to_json()) for column in self.columns])


def table_schema(rows: pa.Schema, key: tuple[str, ...]) -> TableSchema:
    """The schema of a new table for these rows. Raises UnknownType."""
    ids = iter(range(len(rows) + 1, 1 << 30))
    columns = tuple(
        Column(number, field.name, not field.nullable, iceberg_type(field.type, ids))
        for number, field in enumerate(rows, start=1)
    )
    by_name = {column.name: column for column in columns}
    # Iceberg allows as identifiers only columns that are never NULL and compare exactly.
    usable = all(by_name[name].required and by_name[name].type not in {"float", "double"} for name in key)
    return TableSchema(columns, tuple(by_name[name].id for name in key) if usable else ())


def iceberg_type(data_type: pa.DataType, ids: Iterator[int]) -> IcebergType:
    """The Iceberg type that represents every value of an Arrow type exactly. Raises UnknownType."""
    nested = _nested_type(data_type, ids)
    return nested if nested is not None else _primitive_type(data_type)


def _nested_type(data_type: pa.DataType, ids: Iterator[int]) -> IcebergType | None:
    if pa.types.is_struct(data_type):
        fields = [(next(ids), field) for field in data_type]
        children = [
            {"id": n, "name": f.name, "required": not f.nullable, "type": iceberg_type(f.type, ids)} for n, f in fields
        ]
        return {"type": "struct", "fields": children}
    if pa.types.is_map(data_type):
        key, value = next(ids), next(ids)
        return {
            "type": "map",
            "key-id": key,
            "key": iceberg_type(data_type.key_type, ids),
            "value-id": value,
            "value-required": not data_type.item_field.nullable,
            "value": iceberg_type(data_type.item_type, ids),
        }
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type) or pa.types.is_fixed_size_list(data_type):
        return {
            "type": "list",
            "element-id": next(ids),
            "element-required": not data_type.value_field.nullable,
            "element": iceberg_type(data_type.value_type, ids),
        }
    return None


def _primitive_type(data_type: pa.DataType) -> str:  # noqa: C901, PLR0911, PLR0912 - one line per type is the clearest form
    t = pa.types
    if isinstance(data_type, pa.UuidType):
        return "uuid"
    if isinstance(data_type, pa.BaseExtensionType):
        return _primitive_type(data_type.storage_type)
    if t.is_dictionary(data_type):
        return _primitive_type(data_type.value_type)
    if t.is_boolean(data_type):
        return "boolean"
    if t.is_uint32(data_type):
        return "long"
    if t.is_uint64(data_type):
        return "decimal(20, 0)"  # the only exact type that reaches 2^64
    if t.is_int64(data_type):
        return "long"
    if t.is_integer(data_type):
        return "int"
    if t.is_float64(data_type):
        return "double"
    if t.is_floating(data_type):
        return "float"
    if t.is_decimal(data_type) and data_type.precision <= _MAX_DIGITS and 0 <= data_type.scale <= data_type.precision:
        return f"decimal({data_type.precision}, {data_type.scale})"
    if t.is_date(data_type):
        return "date"
    if t.is_timestamp(data_type):
        return "timestamp" if data_type.tz is None else "timestamptz"
    # Spark cannot open a table with a column of Iceberg's `time`; ISO text keeps every digit.
    if (
        t.is_string(data_type)
        or t.is_large_string(data_type)
        or t.is_string_view(data_type)
        or t.is_null(data_type)
        or t.is_time(data_type)
    ):
        return "string"
    if t.is_binary(data_type) or t.is_large_binary(data_type) or t.is_binary_view(data_type):
        return "binary"
    if t.is_fixed_size_binary(data_type):
        return f"fixed[{data_type.byte_width}]"
    raise UnknownType(str(data_type))


def arrow_type(data_type: IcebergType) -> pa.DataType:
    """The Arrow type whose Parquet form Iceberg expects. Raises UnknownType."""
    if not isinstance(data_type, str):
        return _arrow_nested(data_type)
    if data_type in _TO_ARROW:
        return _TO_ARROW[data_type]
    if fixed := _FIXED.fullmatch(data_type):
        return pa.binary(int(fixed[1]))
    if number := digits(data_type):
        return pa.decimal128(*number)
    raise UnknownType(data_type)


def digits(data_type: IcebergType) -> tuple[int, int] | None:
    """Precision and scale of a decimal type."""
    decimal = _DECIMAL.fullmatch(data_type) if isinstance(data_type, str) else None
    return (int(decimal[1]), int(decimal[2])) if decimal else None


def _arrow_nested(data_type: Mapping[str, Any]) -> pa.DataType:
    match data_type["type"]:
        case "struct":
            return pa.struct([_arrow_field(field) for field in data_type["fields"]])
        case "list":
            return pa.list_(
                _field("element", data_type["element"], data_type["element-id"], required=data_type["element-required"])
            )
        case "map":
            key = _field("key", data_type["key"], data_type["key-id"], required=True)
            return pa.map_(
                key, _field("value", data_type["value"], data_type["value-id"], required=data_type["value-required"])
            )
        case other:
            raise UnknownType(str(other))


def _arrow_field(field: Mapping[str, Any]) -> pa.Field:
    return _field(field["name"], field["type"], field["id"], required=field["required"])


def _field(name: str, data_type: IcebergType, number: int, *, required: bool) -> pa.Field:
    return pa.field(name, arrow_type(data_type), nullable=not required, metadata={FIELD_ID: str(number).encode()})


def shape(data_type: IcebergType) -> object:
    """A type without its ids, for comparing."""
    if isinstance(data_type, str):
        return data_type.replace(" ", "")
    if data_type["type"] == "struct":
        return ("struct", tuple((f["name"], f["required"], shape(f["type"])) for f in data_type["fields"]))
    if data_type["type"] == "map":
        return ("map", shape(data_type["key"]), data_type["value-required"], shape(data_type["value"]))
    return ("list", data_type["element-required"], shape(data_type["element"]))


def type_text(data_type: IcebergType) -> str:
    """A type for error messages."""
    if isinstance(data_type, str):
        return data_type
    if data_type["type"] == "struct":
        return "struct<" + ", ".join(f"{f['name']}: {type_text(f['type'])}" for f in data_type["fields"]) + ">"
    if data_type["type"] == "map":
        return f"map<{type_text(data_type['key'])}, {type_text(data_type['value'])}>"
    return f"list<{type_text(data_type['element'])}>"


# Names of Iceberg's and Spark's metadata columns.
_RESERVED = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
# Iceberg's names of the types that `model/types.py` may widen.
_WORDS = {"int": "int32", "long": "int64", "float": "float32", "double": "float64"}


@dataclass(frozen=True)
class Evolution:
    """Changes of the table that the rows need, and columns that are refused."""

    add: tuple[Column, ...] = ()  # their ids are placeholders: the table assigns its own
    widen: tuple[tuple[str, str], ...] = ()  # column, its new type
    relax: tuple[str, ...] = ()  # columns that must allow NULL
    refusals: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return bool(self.add or self.widen or self.relax)

    def check(self, table: str) -> None:
        """Raise SchemaRefused with every refusal."""
        if self.refusals:
            listed = "\n".join(f"  {refusal}" for refusal in self.refusals)
            raise SchemaRefused(
                f"{table} cannot store the source's columns without loss:\n{listed}",
                hint="change the source's columns (columns:, as_text:) or a transform, or land in another table",
            )


def plan_new(rows: pa.Schema) -> Evolution:
    """The refusals for a new table of these rows."""
    return Evolution(refusals=tuple(_bad_names(rows)) + tuple(_bad_types(rows)))


def plan_evolution(table: TableSchema, rows: pa.Schema) -> Evolution:
    """Compare a table with the rows that land in it."""
    refusals = [*_bad_names(rows), *_bad_types(rows), *_other_case(table, rows)]
    bad = {field.name for field in rows if not _has_type(field.type)}
    add, widen, relax = [], [], []
    for field in rows:
        column = table.column(field.name)
        if field.name in bad:
            continue
        data_type = iceberg_type(field.type, count(1))
        if column is None:
            add.append(Column(0, field.name, required=False, type=data_type))
            continue
        if column.required and field.nullable:
            relax.append(column.name)
        step = _step(column.type, data_type)
        if step == "refuse":
            refusals.append(_mismatch(column, data_type))
        elif step == "widen":
            widen.append((column.name, str(data_type)))
    present = set(rows.names)
    relax += [column.name for column in table.columns if column.required and column.name not in present]
    return Evolution(tuple(add), tuple(widen), tuple(relax), tuple(refusals))


def _step(table: IcebergType, rows: IcebergType) -> str:
    """`fits`, `widen` or `refuse`."""
    if shape(table) == shape(rows):
        return "fits"
    if not (isinstance(table, str) and isinstance(rows, str)):
        return "refuse"
    table_type, row_type = _word(table), _word(rows)
    wider = wider_type(table_type, row_type)
    if wider is None:
        return "refuse"
    return "fits" if wider == table_type else "widen"


def _word(name: str) -> str:
    return _WORDS.get(name) or name.replace(" ", "")


def _mismatch(column: Column, data_type: IcebergType) -> str:
    return (
        f"{column.name!r} is {type_text(column.type)} in the table and {type_text(data_type)} in the source: "
        f"cast it in a transform, or rename it to land it as a new column"
    )


def _bad_names(rows: pa.Schema) -> Iterator[str]:
    for name in rows.names:
        if not name:
            yield "a column has no name: name it in the query"
        elif name.lower() in _RESERVED:
            yield f"{name!r} is reserved by Iceberg: rename it in a query or transform"
    for lowered, times in Counter(name.lower() for name in rows.names).items():
        if times > 1:
            same = ", ".join(repr(name) for name in rows.names if name.lower() == lowered)
            yield f"{same} differ only in case, which Spark ignores: rename one in a query or transform"


def _bad_types(rows: pa.Schema) -> Iterator[str]:
    for field in rows:
        if not _has_type(field.type):
            yield f"{field.name!r} is {field.type}, which Iceberg cannot represent exactly: read it as text (as_text:)"


def _has_type(data_type: pa.DataType) -> bool:
    try:
        iceberg_type(data_type, count(1))
    except UnknownType:
        return False
    return True


def _other_case(table: TableSchema, rows: pa.Schema) -> Iterator[str]:
    lowered = {column.name.lower(): column.name for column in table.columns}
    for name in rows.names:
        column = lowered.get(name.lower())
        if column is not None and column != name and column not in rows.names:
            yield f"{name!r} is {column!r} in the table: the names differ only in case; rename one"
