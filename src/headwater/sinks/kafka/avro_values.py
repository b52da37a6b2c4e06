"""Batches → Avro records, each as the bare binary form of the agreed schema (no file header, no schema number).

A record is its fields' bytes one after the other, so a column at a time can be encoded by numpy and joined by Arrow;
fastavro, a value at a time, takes twenty times as long. It still encodes what is nested.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fastavro import parse_schema, schemaless_writer

from headwater.model.errors import ValueNotKept
from headwater.sinks.plain_values import flat_column, is_nested

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
        if index < 0:  # a field that the source does not have: its default
            return pa.array([_by_fastavro(field["type"])(field["default"])] * batch.num_rows, pa.binary())
        column, kind = batch.column(index), field["type"]
        if not isinstance(kind, list):
            if column.null_count and kind != "null":
                raise ValueNotKept(
                    f"column {field['name']} holds NULL, and its Avro field has no room for it",
                    hint='write ["null", …] as the type of the field in avro_schema',
                )
            return encoded(column, kind)
        # A union is the number of the branch, then the value.
        null, value = kind.index("null"), 1 - kind.index("null")
        made = pc.binary_join_element_wise(pa.scalar(bytes([2 * value])), encoded(column, kind[value]), pa.scalar(b""))
        return pc.fill_null(made, bytes([2 * null]))


def encoded(column: pa.Array, kind: Any) -> pa.Array:
    """Each value in Avro's binary form; NULL stays NULL."""
    made = _flat(column, kind) if not is_nested(column.type) else None
    if made is None:
        write = _by_fastavro(kind)
        values = column.to_pylist(maps_as_pydicts="strict")
        return pa.array([None if value is None else write(value) for value in values], pa.binary())
    return pc.if_else(column.is_valid(), made, pa.scalar(None, pa.binary())) if column.null_count else made


def _flat(column: pa.Array, kind: Any) -> pa.Array | None:  # noqa: PLR0911 - one line per kind of column
    """What stands at NULLs does not matter; None for a type that is not known here."""
    name = kind["type"] if isinstance(kind, dict) else kind
    if isinstance(kind, dict) and kind.get("logicalType") == "decimal":
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
    for place in range(_LONGEST_VARINT):
        digits[:, place] = rest & np.uint64(0x7F)
        rest >>= np.uint64(7)
        more = rest != 0
        digits[more, place] |= 0x80
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


def _by_fastavro(kind: Any) -> Callable[[Any], bytes]:
    parsed = parse_schema(kind)

    def write(value: Any) -> bytes:
        buffer = io.BytesIO()
        try:
            schemaless_writer(buffer, parsed, value)
        except (ValueError, TypeError, OverflowError) as error:
            # The text of the error may hold the row (G11).
            raise ValueNotKept(
                f"a value does not fit its Avro type {kind} ({type(error).__name__})",
                hint="cast the column in a transform, or use format: json",
            ) from None
        return buffer.getvalue()

    return write
