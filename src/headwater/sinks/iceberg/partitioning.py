"""Partition values of Arrow batches, computed exactly as Iceberg does. Runs in tasks."""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import SchemaRefused

_TRANSFORM = re.compile(r"(?P<name>identity|year|month|day|hour|void|bucket|truncate)(?:\[(?P<width>\d+)\])?")
_BUCKET = re.compile(r"bucket\[(\d+)\]")
_DAY_MICROS = 86_400_000_000
_HOUR_MICROS = 3_600_000_000
_EPOCH_YEAR = 1970


@dataclass(frozen=True)
class PartitionColumn:
    """One field of a table's partition spec, bound to a column of its schema."""

    column: str
    transform: str

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """The partition value of every row."""
        source = batch.column(batch.schema.get_field_index(self.column))
        return partition_values(source, self.transform)


def partition_columns(spec: Mapping[str, Any], columns: Mapping[int, str], table: str) -> tuple[PartitionColumn, ...]:
    """The fields of a spec in Iceberg's JSON. Raises SchemaRefused for an unknown transform."""
    fields = []
    for field in spec["fields"]:
        if not _TRANSFORM.fullmatch(field["transform"]) or field["source-id"] not in columns:
            raise SchemaRefused(
                f"{table} is partitioned by {field['transform']!r}, which Headwater cannot write",
                hint="replace the partition field with one of identity, year, month, day, hour, bucket, truncate",
            )
        fields.append(PartitionColumn(columns[field["source-id"]], field["transform"]))
    return tuple(fields)


def by_partition(
    batch: pa.RecordBatch, columns: Sequence[PartitionColumn]
) -> Iterator[tuple[tuple[object, ...], pa.RecordBatch]]:
    """The batch split by partition: the values in JSON form, and the rows."""
    if batch.num_rows == 0:
        return
    codes: npt.NDArray[np.int64] = np.zeros(batch.num_rows, dtype=np.int64)
    dictionaries = []
    for column in columns:
        encoded = column.values(batch).dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        dictionaries.append(encoded.dictionary)
    distinct, inverse = np.unique(codes, return_inverse=True)
    for number, code in enumerate(distinct):
        rows = batch if len(distinct) == 1 else batch.filter(pa.array(inverse == number))
        yield _values_of(int(code), dictionaries), rows


def _values_of(code: int, dictionaries: Sequence[pa.Array]) -> tuple[object, ...]:
    values: list[object] = []
    for dictionary in reversed(dictionaries):
        code, index = divmod(code, len(dictionary))
        values.append(single_value(dictionary[index].as_py()))
    return tuple(reversed(values))


def single_value(value: object) -> object:
    """A value in Iceberg's JSON form for single values."""
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


def partition_values(source: pa.Array, transform: str) -> pa.Array:  # noqa: PLR0911 - one line per transform
    """The values of a transform. NULL stays NULL."""
    parsed = _TRANSFORM.fullmatch(transform)
    if parsed is None:
        raise ValueError(transform)
    width = int(parsed["width"] or 0)
    match parsed["name"]:
        case "identity":
            return _uuid_texts(source) if isinstance(source.type, pa.UuidType) else source
        case "void":
            return pa.nulls(len(source), source.type)
        case "bucket":
            return _buckets(source, width)
        case "truncate":
            return _truncated(source, width)
        case "day":
            return source if pa.types.is_date(source.type) else _floored(source, _DAY_MICROS).cast(pa.date32())
        case "hour":
            return _floored(source, _HOUR_MICROS)
        case "month":
            months = (np.asarray(pc.year(source).fill_null(_EPOCH_YEAR)) - _EPOCH_YEAR) * 12
            months = months + np.asarray(pc.month(source).fill_null(1)) - 1
            return pa.array(months.astype(np.int32), mask=_nulls(source))
        case _:
            return pc.subtract(pc.year(source), _EPOCH_YEAR).cast(pa.int32())


def _floored(source: pa.Array, unit: int) -> pa.Array:
    micros = source.cast(pa.int64()).fill_null(0).to_numpy()
    return pa.array((micros // unit).astype(np.int32), mask=_nulls(source))  # floors below 1970 too, as Iceberg does


def _truncated(source: pa.Array, width: int) -> pa.Array:
    data_type = source.type
    if pa.types.is_integer(data_type):
        values = source.fill_null(0).to_numpy()
        return pa.array(values - values % width, type=data_type, mask=_nulls(source))
    if pa.types.is_string(data_type):
        return pc.utf8_slice_codeunits(source, 0, width)
    if pa.types.is_decimal(data_type):
        step = decimal.Decimal(width).scaleb(-data_type.scale)
        return _mapped(source, data_type, lambda value: value - (value % step + step) % step)
    return pc.binary_slice(source, 0, width)


def _buckets(source: pa.Array, width: int) -> pa.Array:
    data_type = source.type
    if pa.types.is_date(data_type):
        source = source.cast(pa.int32())
    if pa.types.is_timestamp(data_type) or pa.types.is_time64(data_type):
        source = source.cast(pa.int64())
    if pa.types.is_integer(source.type):
        hashes = murmur3_of_longs(source.fill_null(0).to_numpy().astype(np.int64))
        buckets = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(width)
        return pa.array(buckets.astype(np.int32), mask=_nulls(source))
    if isinstance(data_type, pa.UuidType):
        source = source.storage
    import mmh3

    return _mapped(source, pa.int32(), lambda value: (mmh3.hash(hash_input(value)) & 0x7FFFFFFF) % width)


def hash_input(value: str | bytes | decimal.Decimal) -> bytes:
    """The bytes that Iceberg hashes."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, decimal.Decimal):
        unscaled = int(value.scaleb(-int(value.as_tuple().exponent)))
        magnitude = unscaled if unscaled >= 0 else ~unscaled
        return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
    return value


def _mapped(source: pa.Array, data_type: pa.DataType, function: Any) -> pa.Array:
    """Apply a function to each distinct value."""
    encoded = source.dictionary_encode()
    values = pa.array([None if v is None else function(v) for v in encoded.dictionary.to_pylist()], type=data_type)
    return values.take(encoded.indices)


def _uuid_texts(source: pa.Array) -> pa.Array:
    return pa.array([None if value is None else str(value) for value in source.to_pylist()], type=pa.string())


def _nulls(source: pa.Array) -> npt.NDArray[np.bool_] | None:
    return np.asarray(source.is_null()) if source.null_count else None


def murmur3_of_longs(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Murmur3 (x86, 32 bits, seed 0) of each value as eight little-endian bytes."""
    bits = values.view(np.uint64)
    hashes: npt.NDArray[np.uint32] = np.zeros(len(bits), dtype=np.uint32)
    for word in (bits & np.uint64(0xFFFFFFFF), bits >> np.uint64(32)):
        mixed = word.astype(np.uint32) * np.uint32(0xCC9E2D51)
        mixed = _rotated(mixed, 15) * np.uint32(0x1B873593)
        hashes = _rotated(hashes ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashes = hashes ^ np.uint32(8)
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


def _rotated(words: npt.NDArray[np.uint32], by: int) -> npt.NDArray[np.uint32]:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))


@dataclass(frozen=True)
class Bucket:
    """One value of one bucket field of a file's partition."""

    column: int  # the id of the column
    width: int
    number: int


def buckets_of(spec: Mapping[str, Any], partition: Sequence[Any]) -> tuple[Bucket, ...]:
    """From Iceberg's JSON of a file's spec and partition. The bucket of NULL is -1: no key belongs to it."""
    fields = zip(spec["fields"], partition, strict=True)
    buckets = [(_BUCKET.fullmatch(field["transform"]), field["source-id"], value) for field, value in fields]
    return tuple(
        Bucket(column, int(width[1]), -1 if number is None else int(number))
        for width, column, number in buckets
        if width
    )
