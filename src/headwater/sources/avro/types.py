"""The columns that an Avro record gives, as an Arrow schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from headwater.model.errors import InputError

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
LOGICAL: Mapping[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "uuid": pa.string(),
}
# The same where moments are read as the numbers that they are (see `container`).
AS_NUMBERS: Mapping[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
}
_MOST_DIGITS = 38


def columns_of(schema: str, where: str, logical: Mapping[str, pa.DataType] = LOGICAL) -> pa.Schema:
    """One column per field of the record; all can be NULL, as a message without a value is a row of NULLs."""
    try:
        record = fastavro.parse_schema(json.loads(schema))  # it spells out the names of types
    except UnknownType as error:
        raise InputError(f"{where}: {error} is no type that is known here") from None
    except (ValueError, TypeError, KeyError, SchemaParseException) as error:
        raise InputError(f"{where} is no Avro schema: {error}") from None
    if not isinstance(record, dict) or record.get("type") != "record":
        raise InputError(f"{where}: the schema is no record", hint="columns are made of the fields of a record")
    types = _Types(where, logical)
    return pa.schema([pa.field(f["name"], types.of(f["type"], f["name"])[0]) for f in record["fields"]])


class _Types:
    """Types by name, within one schema: Avro declares a record once and then refers to it."""

    def __init__(self, where: str, logical: Mapping[str, pa.DataType]) -> None:
        self._where, self._logical, self._declared = where, logical, dict[str, pa.DataType]()

    def of(self, kind: Any, path: str) -> tuple[pa.DataType, bool]:
        """The Arrow type, and whether it can be NULL."""
        if isinstance(kind, list):
            rest = [one for one in kind if one != "null"]
            if len(rest) != 1:
                raise self._refused(path, "a union of several types is no column")
            return self.of(rest[0], path)[0], len(rest) != len(kind)
        if isinstance(kind, str):
            found = _PLAIN.get(kind) or self._declared.get(kind)
            if found is None:
                raise self._refused(path, f"{kind} is no type that is known here")
            return found, False
        return self._complex(kind, path), False

    def _complex(self, kind: Mapping[str, Any], path: str) -> pa.DataType:
        name, logical = kind["type"], kind.get("logicalType")
        if logical == "decimal":
            if kind["precision"] > _MOST_DIGITS:
                raise self._refused(path, f"at most {_MOST_DIGITS} digits can be kept")
            return pa.decimal128(kind["precision"], kind.get("scale", 0))
        if known := self._logical.get(str(logical)):
            return known
        if logical is not None and logical.startswith(("timestamp", "local-timestamp", "time")):
            raise self._refused(path, f"{logical} cannot be kept exactly")
        made = self._declare(kind, name, path)
        if "name" in kind:
            self._declared[kind["name"]] = made
        return made

    def _declare(self, kind: Mapping[str, Any], name: Any, path: str) -> pa.DataType:
        if name == "record":
            fields = [(field["name"], self.of(field["type"], f"{path}.{field['name']}")) for field in kind["fields"]]
            return pa.struct([pa.field(field, made, nullable=nullable) for field, (made, nullable) in fields])
        if name == "array":
            made, nullable = self.of(kind["items"], f"{path}[]")
            return pa.list_(pa.field("element", made, nullable=nullable))
        if name == "map":
            made, nullable = self.of(kind["values"], f"{path}[]")
            return pa.map_(pa.string(), pa.field("value", made, nullable=nullable))
        if name == "enum":
            return pa.string()
        if name == "fixed":
            return pa.binary(kind["size"])
        return self.of(name, path)[0]

    def _refused(self, path: str, why: str) -> InputError:
        return InputError(
            f"{self._where}: {path}: {why}", hint="leave the field out of avro_schema, or change its type"
        )
