"""The Avro schema of a topic's values, and rows in Avro's binary form."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fastavro import parse_schema, schemaless_writer

from headwater.model.errors import SchemaRefused, SettingsError, ValueNotKept
from headwater.sinks.text_values import flat_column, is_nested

AvroType = Any  # a name, a mapping, or a list of both: JSON

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RENAME = "rename the column in a transform (SELECT … AS …), or use format: json"
_SIMPLE: tuple[tuple[Any, AvroType], ...] = (
    (pa.types.is_null, "null"),
    (pa.types.is_boolean, "boolean"),
    (lambda data_type: data_type in {pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()}, "int"),
    (lambda data_type: pa.types.is_integer(data_type) and data_type != pa.uint64(), "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (lambda data_type: pa.types.is_string(data_type) or pa.types.is_large_string(data_type), "string"),
    (lambda data_type: pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type), "bytes"),
    (pa.types.is_date32, {"type": "int", "logicalType": "date"}),
    (lambda data_type: data_type == pa.time32("ms"), {"type": "int", "logicalType": "time-millis"}),
    (lambda data_type: data_type == pa.time64("us"), {"type": "long", "logicalType": "time-micros"}),
)


def avro_schema(schema: pa.Schema, name: str) -> dict[str, AvroType]:
    """A record with a field per column, in order; what may be NULL is a union with null."""
    record = re.sub(r"\W", "_", name)
    record = record if _NAME.fullmatch(record) else f"_{record}"
    return _record(list(schema), record)


def topic_schema(schema: pa.Schema, name: str, file: Path) -> dict[str, AvroType]:
    """The schema in the file, if the columns fit it; a missing file is written."""
    derived = avro_schema(schema, name)
    try:
        # Readers and other processes see the whole file or none.
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = file.with_name(f".{file.name}.draft")
            draft.write_text(json.dumps(derived, indent=2, ensure_ascii=False) + "\n")
            draft.rename(file)
        schema_in_file = json.loads(file.read_text())
    except OSError as error:
        raise SettingsError(f"avro_schema: {file}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"avro_schema: {file} is not JSON: {error}") from error
    check_fits(derived, schema_in_file, str(file))
    return dict(schema_in_file)


def check_fits(derived: dict[str, AvroType], schema: AvroType, file: str) -> None:
    """Refuse columns that the topic's schema cannot represent exactly (G8)."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SettingsError(f"avro_schema: {file} does not contain an Avro record")
    hint = "change the file to a schema that fits and that readers know, or remove it: the next run writes it again"
    fields = {field["name"]: field for field in schema["fields"]}
    columns = {field["name"]: field for field in derived["fields"]}
    for name, field in columns.items():
        if name not in fields:
            raise SchemaRefused(f"column {name} has no field in {file}", hint=hint)
        if not _accepts(_shape(fields[name]["type"]), _shape(field["type"])):
            raise SchemaRefused(
                f"column {name} is {json.dumps(field['type'])}, and {file} says {json.dumps(fields[name]['type'])}",
                hint=hint,
            )
    for name, field in fields.items():
        if name not in columns and "default" not in field:
            raise SchemaRefused(f"{file} has a field {name} without a default, and there is no such column", hint=hint)


def _record(fields: list[pa.Field], name: str) -> dict[str, AvroType]:
    avro_fields = []
    for field in fields:
        if not _NAME.fullmatch(field.name):
            raise SchemaRefused(f"column {field.name!r} has a name that Avro does not allow", hint=_RENAME)
        data_type = _type(field.type, f"{name}_{field.name}", field.name)
        if field.nullable and data_type != "null":
            avro_fields.append({"name": field.name, "type": ["null", data_type], "default": None})
        else:
            avro_fields.append({"name": field.name, "type": data_type})
    return {"type": "record", "name": name, "fields": avro_fields}


def _type(data_type: pa.DataType, name: str, column: str) -> AvroType:  # noqa: PLR0911 - one line per type
    if isinstance(data_type, pa.UuidType):
        return {"type": "string", "logicalType": "uuid"}
    if pa.types.is_dictionary(data_type):
        return _type(data_type.value_type, name, column)
    if pa.types.is_decimal(data_type) and data_type.scale >= 0:
        return {"type": "bytes", "logicalType": "decimal", "precision": data_type.precision, "scale": data_type.scale}
    if pa.types.is_timestamp(data_type) and data_type.unit in {"us", "ms"}:
        unit = "micros" if data_type.unit == "us" else "millis"
        return {"type": "long", "logicalType": f"timestamp-{unit}" if data_type.tz else f"local-timestamp-{unit}"}
    if pa.types.is_map(data_type) and pa.types.is_string(data_type.key_type):
        return {"type": "map", "values": _maybe_null(data_type.item_field, name, column)}
    if pa.types.is_struct(data_type):
        return _record([data_type.field(index) for index in range(data_type.num_fields)], name)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return {"type": "array", "items": _maybe_null(data_type.value_field, name, column)}
    for matches, simple in _SIMPLE:
        if matches(data_type):
            return simple
    raise SchemaRefused(
        f"column {column} has type {data_type}, which Avro cannot represent exactly",
        hint="add the column to as_text: of the source, cast it in a transform, or use format: json",
    )


def _maybe_null(field: pa.Field, name: str, column: str) -> AvroType:
    data_type = _type(field.type, f"{name}_item", column)
    return ["null", data_type] if field.nullable else data_type


def _shape(data_type: AvroType) -> AvroType:
    """A type without names, defaults and documentation, for comparison."""
    if isinstance(data_type, list):
        return {"union": sorted((_shape(branch) for branch in data_type), key=str)}
    if not isinstance(data_type, dict):
        return {"type": data_type}
    shape = {name: data_type[name] for name in ("type", "logicalType", "precision", "scale") if name in data_type}
    for inner in ("items", "values"):
        if inner in data_type:
            shape[inner] = _shape(data_type[inner])
    if "fields" in data_type:
        shape["fields"] = [(field["name"], _shape(field["type"])) for field in data_type["fields"]]
    return shape


def _accepts(schema: AvroType, shape: AvroType) -> bool:
    """The same type, or the same with null."""
    return bool(schema == shape or schema == {"union": sorted([{"type": "null"}, shape], key=str)})


Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

_LONGEST_VARINT = 10
_DECIMAL_BYTES = 16
_SIGN = 0x80


@dataclass(frozen=True)
class AvroValues:
    """Writes rows in one schema; sent to the tasks."""

    schema: dict[str, Any]

    def __call__(self, batch: pa.RecordBatch) -> list[bytes]:
        pieces = [self._field(batch, field) for field in self.schema["fields"]]
        return list(pc.binary_join_element_wise(*pieces, pa.scalar(b"")).to_pylist())

    def _field(self, batch: pa.RecordBatch, field: dict[str, Any]) -> pa.Array:
        index = batch.schema.get_field_index(field["name"])
        if index < 0:  # the source has no such column: the field's default
            return pa.array([_by_fastavro(field["type"])(field["default"])] * batch.num_rows, pa.binary())
        column, data_type = batch.column(index), field["type"]
        if not isinstance(data_type, list):
            if column.null_count and data_type != "null":
                raise ValueNotKept(
                    f"column {field['name']} contains NULL, which its Avro field does not allow",
                    hint='write ["null", …] as the type of the field in avro_schema',
                )
            return encode(column, data_type)
        # A union is the number of the branch, then the value.
        null, value = data_type.index("null"), 1 - data_type.index("null")
        branch = pa.scalar(bytes([2 * value]))
        values = pc.binary_join_element_wise(branch, encode(column, data_type[value]), pa.scalar(b""))
        return pc.fill_null(values, bytes([2 * null]))


def encode(column: pa.Array, data_type: Any) -> pa.Array:
    """Each value in Avro's binary form; NULL stays NULL."""
    encoded = _flat(column, data_type) if not is_nested(column.type) else None
    if encoded is None:
        write = _by_fastavro(data_type)
        values = column.to_pylist(maps_as_pydicts="strict")
        return pa.array([None if value is None else write(value) for value in values], pa.binary())
    return pc.if_else(column.is_valid(), encoded, pa.scalar(None, pa.binary())) if column.null_count else encoded


def _flat(column: pa.Array, data_type: Any) -> pa.Array | None:  # noqa: PLR0911 - one line per type
    """The bytes at NULLs do not matter; None: a type for fastavro."""
    name = data_type["type"] if isinstance(data_type, dict) else data_type
    if isinstance(data_type, dict) and data_type.get("logicalType") == "decimal":
        return _decimals(column) if pa.types.is_decimal128(column.type) else None
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    match name:
        case "null":
            return pa.array([b""] * len(column), pa.binary())
        case "boolean":
            return _of_one_width(pc.fill_null(column, False).cast(pa.uint8()).to_numpy())  # noqa: FBT003 - Arrow's
        case "int" | "long":
            narrow = column.cast(pa.int32()) if column.type.bit_width == 32 else column  # noqa: PLR2004 - dates, times
            return _varints(pc.fill_null(narrow.cast(pa.int64()), 0).to_numpy())
        case "float" | "double":
            return _of_one_width(pc.fill_null(column, 0.0).to_numpy())
        case "string" | "bytes":
            text = flat_column(column) if name == "string" else column
            data = pc.fill_null(text.cast(pa.binary()), b"")
            return _with_lengths(pc.binary_length(data).to_numpy().astype(np.int64), data)
    return None


def _of_one_width(values: npt.NDArray[Any]) -> pa.Array:
    data = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<")))
    return _binary(np.full(len(values), data.itemsize, np.int64), data.view(np.uint8).reshape(-1))


def _varints(numbers: Numbers) -> pa.Array:
    """Zigzag, then seven bits a byte, the lowest first; the highest bit says that more follow."""
    rest = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    digits = np.empty((len(numbers), _LONGEST_VARINT), np.uint8)
    lengths = np.ones(len(numbers), np.int64)
    for byte in range(_LONGEST_VARINT):
        digits[:, byte] = rest & np.uint64(0x7F)
        rest >>= np.uint64(7)
        more = rest != 0
        digits[more, byte] |= 0x80
        lengths += more
    return _binary(lengths, digits[np.arange(_LONGEST_VARINT) < lengths[:, None]])


def _decimals(column: pa.Array) -> pa.Array:
    """The unscaled number, highest byte first, without bytes that only repeat the sign."""
    stored = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, _DECIMAL_BYTES)
    big = stored[column.offset : column.offset + len(column), ::-1]
    negative = big[:, :1] >= _SIGN
    repeats = (big[:, :-1] == np.where(negative, 0xFF, 0)) & ((big[:, 1:] >= _SIGN) == negative)
    leading = np.logical_and.accumulate(repeats, axis=1).sum(axis=1)
    lengths = _DECIMAL_BYTES - leading
    return _with_lengths(lengths, _binary(lengths, big[np.arange(_DECIMAL_BYTES) >= leading[:, None]]))


def _with_lengths(lengths: Numbers, data: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_varints(lengths), data, pa.scalar(b""))


def _binary(lengths: Numbers, data: Bytes) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _by_fastavro(data_type: Any) -> Callable[[Any], bytes]:
    parsed = parse_schema(data_type)

    def write(value: Any) -> bytes:
        buffer = io.BytesIO()
        try:
            schemaless_writer(buffer, parsed, value)
        except (ValueError, TypeError, OverflowError) as error:
            # The text of the error may contain the row (G11).
            raise ValueNotKept(
                f"a value does not fit its Avro type {data_type} ({type(error).__name__})",
                hint="cast the column in a transform, or use format: json",
            ) from None
        return buffer.getvalue()

    return write
