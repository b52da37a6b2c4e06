"""Avro as columns, for Kafka and objects: the Arrow schema of a record, and files with their header and blocks.

Files are rewritten so that fastavro can read what it cannot itself. fastavro needs further libraries for snappy and
zstandard, which Arrow brings along. It makes datetimes of moments, which end with the year 9999, and forget
nanoseconds; without their logical types they stay the numbers that they are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from headwater.model.errors import InputError
from headwater.model.types import MAX_DECIMAL_DIGITS

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


def columns_of(schema: str, where: str, logical: Mapping[str, pa.DataType] = LOGICAL) -> pa.Schema:
    """One column per field of the record; all can be NULL, as a message without a value is a row of NULLs."""
    try:
        record = fastavro.parse_schema(json.loads(schema))  # it spells out the names of types
    except UnknownType as error:
        raise InputError(f"{where}: {error} is not a known type") from None
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

    def of(self, avro_type: Any, path: str) -> tuple[pa.DataType, bool]:
        """The Arrow type, and whether it can be NULL."""
        if isinstance(avro_type, list):
            rest = [one for one in avro_type if one != "null"]
            if len(rest) != 1:
                raise self._refused(path, "a union of several types is no column")
            return self.of(rest[0], path)[0], len(rest) != len(avro_type)
        if isinstance(avro_type, str):
            known = _PLAIN.get(avro_type) or self._declared.get(avro_type)
            if known is None:
                raise self._refused(path, f"{avro_type} is not a known type")
            return known, False
        return self._complex(avro_type, path), False

    def _complex(self, avro_type: Mapping[str, Any], path: str) -> pa.DataType:
        name, logical = avro_type["type"], avro_type.get("logicalType")
        if logical == "decimal":
            if avro_type["precision"] > MAX_DECIMAL_DIGITS:
                raise self._refused(path, f"at most {MAX_DECIMAL_DIGITS} digits can be kept")
            return pa.decimal128(avro_type["precision"], avro_type.get("scale", 0))
        if known := self._logical.get(str(logical)):
            return known
        if logical is not None and logical.startswith(("timestamp", "local-timestamp", "time")):
            raise self._refused(path, f"{logical} cannot be kept exactly")
        declared = self._declare(avro_type, name, path)
        if "name" in avro_type:
            self._declared[avro_type["name"]] = declared
        return declared

    def _declare(self, avro_type: Mapping[str, Any], name: Any, path: str) -> pa.DataType:
        if name == "record":
            fields = [
                (field["name"], self.of(field["type"], f"{path}.{field['name']}")) for field in avro_type["fields"]
            ]
            return pa.struct([pa.field(field, item, nullable=nullable) for field, (item, nullable) in fields])
        if name == "array":
            item, nullable = self.of(avro_type["items"], f"{path}[]")
            return pa.list_(pa.field("element", item, nullable=nullable))
        if name == "map":
            item, nullable = self.of(avro_type["values"], f"{path}[]")
            return pa.map_(pa.string(), pa.field("value", item, nullable=nullable))
        if name == "enum":
            return pa.string()
        if name == "fixed":
            return pa.binary(avro_type["size"])
        return self.of(name, path)[0]

    def _refused(self, path: str, why: str) -> InputError:
        return InputError(
            f"{self._where}: {path}: {why}", hint="leave the field out of avro_schema, or change its type"
        )


def plain(value: Any, avro_type: pa.DataType) -> Any:
    """As Arrow takes it: maps as pairs, UUIDs as text."""
    if value is None:
        return None
    if pa.types.is_map(avro_type):
        return [(name, plain(item, avro_type.item_type)) for name, item in value.items()]
    if pa.types.is_list(avro_type):
        return [plain(item, avro_type.value_type) for item in value]
    if pa.types.is_struct(avro_type):
        return {field.name: plain(value.get(field.name), field.type) for field in avro_type}
    return str(value) if pa.types.is_string(avro_type) else value


_MAGIC = b"Obj\x01"
_SYNC = 16
_LONGEST = 10  # bytes of a number
_SNAPPY_CHECKSUM = 4
_WITHOUT_LOGICAL_TYPE = ("date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos",
               "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos", "uuid")  # fmt: skip

_NESTED = ("type", "fields", "items", "values")


class BadAvro(ValueError):
    """What is wrong with a file."""


class CutShort(BadAvro):
    """It ends too soon."""


@dataclass(frozen=True)
class Header:
    """What stands before the blocks."""

    schema: str
    codec: str
    sync: bytes
    end: int  # where the blocks begin


def read_header(data: bytes | memoryview) -> Header:
    """Of a file's beginning. Raises BadAvro; CutShort where there is less than the whole header."""
    reader = AvroReader(data)
    if reader.take(len(_MAGIC)) != _MAGIC:
        raise BadAvro("it does not begin as Avro files do")
    about: dict[str, bytes] = {}
    while count := reader.number():
        if count < 0:
            reader.number()  # the size of the block, for those who skip it
        for _ in range(abs(count)):
            name = reader.take(reader.number()).decode()
            about[name] = reader.take(reader.number())
    sync = reader.take(_SYNC)
    if "avro.schema" not in about:
        raise BadAvro("its header has no schema")
    return Header(about["avro.schema"].decode(), about.get("avro.codec", b"null").decode(), sync, reader.position)


def readable(data: memoryview, header: Header) -> Iterator[bytes]:
    """The same file for fastavro, in parts: moments as numbers, and compressed as it can read. Raises BadAvro."""
    schema = json.dumps(_as_numbers(json.loads(header.schema)))
    rewritten = header.codec in ("snappy", "zstandard")
    about = {"avro.schema": schema.encode(), "avro.codec": (b"null" if rewritten else header.codec.encode())}
    pairs = b"".join(encode_bytes(name.encode()) + encode_bytes(value) for name, value in about.items())
    yield _MAGIC + encode_long(len(about)) + pairs + encode_long(0) + header.sync
    if rewritten:
        yield from _decompressed(data, header)
    else:
        yield bytes(data[header.end :])


def _decompressed(data: memoryview, header: Header) -> Iterator[bytes]:
    reader = AvroReader(data, header.end)
    while reader.position < len(data):
        count, block = reader.number(), reader.take(reader.number())
        if reader.take(_SYNC) != header.sync:
            raise BadAvro("a block does not end where it should")
        yield (
            encode_long(count)
            + encode_bytes(_snappy(block) if header.codec == "snappy" else _zstandard(block))
            + header.sync
        )


def _snappy(block: bytes) -> bytes:
    size, shift = 0, 0
    for byte in block[:5]:  # the block begins with its size, seven bits a byte, not zigzag
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the last of them
            break
    try:
        content: bytes = pa.decompress(block[:-_SNAPPY_CHECKSUM], size, "snappy", asbytes=True)
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise BadAvro(f"bad snappy: {error}") from None
    if zlib.crc32(content) != int.from_bytes(block[-_SNAPPY_CHECKSUM:], "big"):
        raise BadAvro("bad snappy: the checksum is another")
    return content


def _zstandard(block: bytes) -> bytes:
    try:
        content: bytes = pa.CompressedInputStream(pa.BufferReader(block), "zstd").read()
    except OSError as error:
        raise BadAvro(f"bad zstandard: {error}") from None
    return content


class AvroReader:
    """Longs and bytes in Avro's binary encoding, one after the other."""

    def __init__(self, data: bytes | memoryview, position: int = 0) -> None:
        self._data, self.position = data, position

    def take(self, count: int) -> bytes:
        """So many bytes. Raises CutShort."""
        if count < 0 or self.position + count > len(self._data):
            raise CutShort("it ends too soon")
        self.position += count
        return bytes(self._data[self.position - count : self.position])

    def number(self) -> int:
        """A long. Raises BadAvro."""
        value = 0
        for shift in range(0, 7 * _LONGEST, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the last of them
                return (value >> 1) ^ -(value & 1)
        raise BadAvro("a number is too long")


def encode_long(value: int) -> bytes:
    """In Avro's binary encoding: zigzag, seven bits a byte."""
    rest, encoded = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:  # noqa: PLR2004 - seven bits a byte
        encoded.append((rest & 0x7F) | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def encode_bytes(data: bytes) -> bytes:
    """In Avro's binary encoding: their number first."""
    return encode_long(len(data)) + data


def _as_numbers(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_as_numbers(part) for part in schema]
    if isinstance(schema, dict):
        if schema.get("logicalType") in _WITHOUT_LOGICAL_TYPE:
            schema = {name: part for name, part in schema.items() if name != "logicalType"}
        return {name: _as_numbers(part) if name in _NESTED else part for name, part in schema.items()}
    return schema
