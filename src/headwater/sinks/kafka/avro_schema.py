"""Columns → the Avro schema of a topic's values, and whether a schema that stands already fits them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.model.errors import SchemaRefused, SettingsError

AvroType = Any  # a name, a mapping, or a list of both: JSON

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RENAME = "rename the column in a transform (SELECT … AS …), or use format: json"
_SIMPLE: tuple[tuple[Any, AvroType], ...] = (
    (pa.types.is_null, "null"),
    (pa.types.is_boolean, "boolean"),
    (lambda kind: kind in {pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()}, "int"),
    (lambda kind: pa.types.is_integer(kind) and kind != pa.uint64(), "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), "string"),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), "bytes"),
    (pa.types.is_date32, {"type": "int", "logicalType": "date"}),
    (lambda kind: kind == pa.time32("ms"), {"type": "int", "logicalType": "time-millis"}),
    (lambda kind: kind == pa.time64("us"), {"type": "long", "logicalType": "time-micros"}),
)


def avro_schema(schema: pa.Schema, name: str) -> dict[str, AvroType]:
    """A record with a field per column, in order; what may be NULL is a union with null."""
    record = re.sub(r"\W", "_", name)
    record = record if _NAME.fullmatch(record) else f"_{record}"
    return _record(list(schema), record)


def agreed_schema(schema: pa.Schema, name: str, file: Path) -> dict[str, AvroType]:
    """The schema in the file, if the columns fit it; where there is no file, it is written."""
    derived = avro_schema(schema, name)
    try:
        # Readers may look at any time, and another process may write: the file is there whole, or not at all.
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = file.with_name(f".{file.name}.draft")
            draft.write_text(json.dumps(derived, indent=2, ensure_ascii=False) + "\n")
            draft.rename(file)
        agreed = json.loads(file.read_text())
    except OSError as error:
        raise SettingsError(f"avro_schema: {file}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"avro_schema: {file} is no JSON: {error}") from error
    check_fits(derived, agreed, str(file))
    return dict(agreed)


def check_fits(derived: dict[str, AvroType], agreed: AvroType, file: str) -> None:
    """Refuse columns that the agreed schema has no exact place for (G8)."""
    if not isinstance(agreed, dict) or agreed.get("type") != "record":
        raise SettingsError(f"avro_schema: {file} holds no Avro record")
    hint = "change the file to a schema that fits and that readers know, or remove it to have it written anew"
    places = {field["name"]: field for field in agreed["fields"]}
    columns = {field["name"]: field for field in derived["fields"]}
    for name, field in columns.items():
        if name not in places:
            raise SchemaRefused(f"column {name} has no field in {file}", hint=hint)
        if not _holds(_shape(places[name]["type"]), _shape(field["type"])):
            raise SchemaRefused(
                f"column {name} is {json.dumps(field['type'])}, and {file} says {json.dumps(places[name]['type'])}",
                hint=hint,
            )
    for name, field in places.items():
        if name not in columns and "default" not in field:
            raise SchemaRefused(f"{file} has a field {name} without a default, and there is no such column", hint=hint)


def _record(fields: list[pa.Field], name: str) -> dict[str, AvroType]:
    made = []
    for field in fields:
        if not _NAME.fullmatch(field.name):
            raise SchemaRefused(f"column {field.name!r} has a name that Avro does not allow", hint=_RENAME)
        kind = _type(field.type, f"{name}_{field.name}", field.name)
        if field.nullable and kind != "null":
            made.append({"name": field.name, "type": ["null", kind], "default": None})
        else:
            made.append({"name": field.name, "type": kind})
    return {"type": "record", "name": name, "fields": made}


def _type(kind: pa.DataType, name: str, column: str) -> AvroType:  # noqa: PLR0911 - one line per kind
    if isinstance(kind, pa.UuidType):
        return {"type": "string", "logicalType": "uuid"}
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type, name, column)
    if pa.types.is_decimal(kind) and kind.scale >= 0:
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind) and kind.unit in {"us", "ms"}:
        unit = "micros" if kind.unit == "us" else "millis"
        return {"type": "long", "logicalType": f"timestamp-{unit}" if kind.tz else f"local-timestamp-{unit}"}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": _maybe_null(kind.item_field, name, column)}
    if pa.types.is_struct(kind):
        return _record([kind.field(index) for index in range(kind.num_fields)], name)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _maybe_null(kind.value_field, name, column)}
    for fits, simple in _SIMPLE:
        if fits(kind):
            return simple
    raise SchemaRefused(
        f"column {column} has type {kind}, which Avro cannot keep exactly",
        hint="add the column to the source's as_text:, cast it in a transform, or use format: json",
    )


def _maybe_null(field: pa.Field, name: str, column: str) -> AvroType:
    kind = _type(field.type, f"{name}_item", column)
    return ["null", kind] if field.nullable else kind


def _shape(kind: AvroType) -> AvroType:
    """A type without names, defaults and documentation, so that two can be compared."""
    if isinstance(kind, list):
        return {"union": sorted((_shape(one) for one in kind), key=str)}
    if not isinstance(kind, dict):
        return {"type": kind}
    kept = {name: kind[name] for name in ("type", "logicalType", "precision", "scale") if name in kind}
    for inner in ("items", "values"):
        if inner in kind:
            kept[inner] = _shape(kind[inner])
    if "fields" in kind:
        kept["fields"] = [(field["name"], _shape(field["type"])) for field in kind["fields"]]
    return kept


def _holds(place: AvroType, shape: AvroType) -> bool:
    """The same, or the same with room for null as well."""
    return bool(place == shape or place == {"union": sorted([{"type": "null"}, shape], key=str)})
