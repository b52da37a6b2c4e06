"""Avro's files: a header with the schema, and blocks of records. Rewritten so that fastavro can read what it cannot itself.

fastavro needs further libraries for snappy and zstandard, which Arrow brings along. It makes datetimes of moments, which
end with the year 9999, and forget nanoseconds; without their logical types they stay the numbers that they are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_MAGIC = b"Obj\x01"
_SYNC = 16
_LONGEST = 10  # bytes of a number
_SNAPPY_CHECKSUM = 4
_AS_NUMBERS = ("date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos",
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
    reader = _Numbers(data)
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
    pairs = b"".join(_sized(name.encode()) + _sized(value) for name, value in about.items())
    yield _MAGIC + _number(len(about)) + pairs + _number(0) + header.sync
    if rewritten:
        yield from _decompressed(data, header)
    else:
        yield bytes(data[header.end :])


def _decompressed(data: memoryview, header: Header) -> Iterator[bytes]:
    reader = _Numbers(data, header.end)
    while reader.position < len(data):
        count, block = reader.number(), reader.take(reader.number())
        if reader.take(_SYNC) != header.sync:
            raise BadAvro("a block does not end where it should")
        yield _number(count) + _sized(_snappy(block) if header.codec == "snappy" else _zstandard(block)) + header.sync


def _snappy(block: bytes) -> bytes:
    size, shift = 0, 0
    for byte in block[:5]:  # it begins with its size, seven bits a byte
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the last of them
            break
    try:
        made: bytes = pa.decompress(block[:-_SNAPPY_CHECKSUM], size, "snappy", asbytes=True)
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise BadAvro(f"bad snappy: {error}") from None
    if zlib.crc32(made) != int.from_bytes(block[-_SNAPPY_CHECKSUM:], "big"):
        raise BadAvro("bad snappy: the checksum is another")
    return made


def _zstandard(block: bytes) -> bytes:
    try:
        made: bytes = pa.CompressedInputStream(pa.BufferReader(block), "zstd").read()
    except OSError as error:
        raise BadAvro(f"bad zstandard: {error}") from None
    return made


class _Numbers:
    """Numbers and bytes, read from the left."""

    def __init__(self, data: bytes | memoryview, position: int = 0) -> None:
        self._data, self.position = data, position

    def take(self, count: int) -> bytes:
        if count < 0 or self.position + count > len(self._data):
            raise CutShort("it ends too soon")
        self.position += count
        return bytes(self._data[self.position - count : self.position])

    def number(self) -> int:
        value = 0
        for shift in range(0, 7 * _LONGEST, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the last of them
                return (value >> 1) ^ -(value & 1)
        raise BadAvro("a number is too long")


def _number(value: int) -> bytes:
    left, made = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:  # noqa: PLR2004 - seven bits a byte
        made.append((left & 0x7F) | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def _sized(data: bytes) -> bytes:
    return _number(len(data)) + data


def _as_numbers(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_as_numbers(part) for part in schema]
    if isinstance(schema, dict):
        if schema.get("logicalType") in _AS_NUMBERS:
            schema = {name: part for name, part in schema.items() if name != "logicalType"}
        return {name: _as_numbers(part) if name in _NESTED else part for name, part in schema.items()}
    return schema
