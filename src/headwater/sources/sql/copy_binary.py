"""Rows of PostgreSQL's `COPY … (FORMAT binary)` into Arrow, a column at a time.

A chunk holds thousands of rows. Numpy reads the same field of all of them at once: its length, which leads to
the next field, and its value. Texts stay where they arrived until Arrow gathers them. No row is ever an object.

The format: each field is a 32-bit length (-1: NULL) and that many bytes; numbers are big-endian.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.model.errors import RunError
from headwater.sources.sql.copy_wide_decimal import wide_limbs
from headwater.sources.sql.postgres_exact import NOT_FINITE, TOO_LONG
from headwater.sources.sql.postgres_text import numeric_text
from headwater.sources.sql.relation import Column
from headwater.sources.sql.types import arrow_type
from headwater.sources.sql.unkept import Unkept

Numbers = np.ndarray[Any, Any]

PADDING = 64  # bytes that must be readable behind the last row: fields are read in windows of one width
_LENGTH = 4
# What a value looks like on the wire, by the column's kind. Integers may be narrower than their kind.
_WIRE = {
    "bool": "u1",
    "int32": ">i4",
    "int64": ">i8",
    "float32": ">f4",
    "float64": ">f8",
    "date": ">i4",
    "timestamp": ">i8",
    "timestamptz": ">i8",
}
_EPOCH = {"date": 10_957, "timestamp": 946_684_800_000_000, "timestamptz": 946_684_800_000_000}  # 2000, seen from 1970
_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")
_INT64_DIGITS = 18
_GROUP = 4  # decimal digits in one of numeric's groups
_NEGATIVE, _SPECIAL = 0x4000, 0xC000
_JSONB_FORM = 1


def readable(columns: Sequence[Column]) -> bool:
    """Whether every column's kind can be read here."""
    return all(_reader(column) is not None for column in columns)


def decode(
    data: bytearray, starts: Numbers, ends: Numbers, columns: Sequence[Column], stream: str
) -> tuple[pa.RecordBatch, list[Unkept]]:
    """The rows whose first fields begin at `starts`; `data` has PADDING bytes behind the last of them.

    Decimals without a place in their type come beside the batch; in it they are some number.
    """
    chunk, at, arrays = _Chunk(data), starts, []
    unkept: list[Unkept] = []
    for position, column in enumerate(columns):
        reader = _reader(column)
        if reader is None:
            raise RunError(f"{stream}: column {column.name} ({column.kind}) cannot be read in COPY's binary format")
        array, at, wrong = reader(chunk, at, column, stream)
        arrays.append(array)
        unkept += (Unkept(position, what, texts) for what, texts in wrong.items())
    if not np.array_equal(at, ends):
        raise RunError(f"{stream}: the server's COPY sent rows of another shape than {len(columns)} columns")
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns]), unkept


class _Chunk:
    """The bytes, seen as windows of any width that begin at any byte."""

    def __init__(self, data: bytearray) -> None:
        self.bytes = np.frombuffer(data, np.uint8)
        self.buffer = pa.py_buffer(data)

    def windows(self, at: Numbers, fields: list[tuple[str, str]]) -> Numbers:
        return windows(self.bytes, at, fields)


def windows(data: Numbers, at: Numbers, fields: list[tuple[str, str]]) -> Numbers:
    """The bytes that begin at each of these places, as records of these fields."""
    layout = np.dtype(fields)
    every = np.ndarray((len(data) - layout.itemsize + 1,), f"V{layout.itemsize}", data.data, strides=(1,))
    return every[at].view(layout)


class _Read(NamedTuple):
    array: pa.Array
    following: Numbers  # where the next column's fields begin
    unkept: Mapping[str, Mapping[int, str]] = {}  # what is wrong → row → the value's text


_Reader = Callable[[_Chunk, Numbers, Column, str], _Read]


def _reader(column: Column) -> _Reader | None:
    if column.kind in ("string", "binary"):
        return _jsonb if column.is_jsonb else _bytes
    if column.kind in _WIRE:
        return _fixed
    return _decimal if _DECIMAL.fullmatch(column.kind) else None


def _fixed(chunk: _Chunk, at: Numbers, column: Column, stream: str) -> _Read:
    lengths, null, found = _lengths_and_values(chunk, at, _WIRE[column.kind])
    if column.kind.startswith("int"):
        lengths, null, found = _narrower(chunk, at, lengths, null, found)
    nulls, width = bool(null.any()), found.dtype.itemsize
    if not np.all((lengths == width) | null if nulls else lengths == width):
        raise RunError(f"{stream}: column {column.name} ({column.kind}) has values of another width than {width} bytes")
    following = at + np.where(null, _LENGTH, _LENGTH + width) if nulls else at + (_LENGTH + width)
    target = arrow_type(column.kind)
    if column.kind == "bool":
        values = np.packbits(found != 0, bitorder="little")
    else:
        values = found.astype(target.to_pandas_dtype() if column.kind not in _EPOCH else f"i{width}")
        if column.kind in _EPOCH:
            values += _EPOCH[column.kind]  # an infinity wraps around, to where no year from 1 to 9999 is
    return _Read(_array(target, len(at), values, null if nulls else None), following)


def _lengths_and_values(chunk: _Chunk, at: Numbers, wire: str) -> tuple[Numbers, Numbers, Numbers]:
    found = chunk.windows(at, [("length", ">i4"), ("value", wire)])
    lengths = found["length"].astype(np.int32)
    return lengths, lengths == -1, found["value"]


def _narrower(
    chunk: _Chunk, at: Numbers, lengths: Numbers, null: Numbers, found: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    width = int(lengths.max(initial=-1))
    if width in (2, 4) and width < found.dtype.itemsize:
        return _lengths_and_values(chunk, at, f">i{width}")
    return lengths, null, found


def _bytes(chunk: _Chunk, at: Numbers, column: Column, _stream: str) -> _Read:
    lengths = chunk.windows(at, [("length", ">i4")])["length"].astype(np.int32)
    null = lengths == -1
    return _gathered(chunk, at + _LENGTH, lengths, null, column)


def _jsonb(chunk: _Chunk, at: Numbers, column: Column, stream: str) -> _Read:
    """A text after the number of its form."""
    found = chunk.windows(at, [("length", ">i4"), ("form", "u1")])
    lengths = found["length"].astype(np.int32)
    null = lengths == -1
    if not np.all((found["form"] == _JSONB_FORM) | null):
        raise RunError(f"{stream}: column {column.name} (jsonb) has values in another form than {_JSONB_FORM}")
    skipped = np.where(null, 0, 1) if null.any() else 1
    return _gathered(chunk, at + (_LENGTH + skipped), lengths - 1, null, column)


def _gathered(chunk: _Chunk, begin: Numbers, lengths: Numbers, null: Numbers, column: Column) -> _Read:
    nulls = bool(null.any())
    end = begin + (np.where(null, 0, lengths) if nulls else lengths)
    # Values and what lies between them, in turn: one array over the chunk as it is, of which Arrow takes every other.
    edges = np.empty(2 * len(begin) + 1, np.int32)
    edges[0:-1:2], edges[1::2] = begin, end
    edges[-1] = end[-1]
    spread = pa.Array.from_buffers(pa.binary(), 2 * len(begin), [None, pa.py_buffer(edges), chunk.buffer])
    taken = spread.take(pa.array(np.arange(0, 2 * len(begin), 2, dtype=np.int32)))
    buffers = taken.buffers()
    validity = _bitmap(null) if nulls else None
    return _Read(pa.Array.from_buffers(arrow_type(column.kind), len(begin), [validity, *buffers[1:]]), end)


def _decimal(chunk: _Chunk, at: Numbers, column: Column, _stream: str) -> _Read:
    """Groups of four digits after a header: how many, the first one's power of 10,000, the sign."""
    target = arrow_type(column.kind)
    most = -(-(target.precision - target.scale) // _GROUP) + -(-target.scale // _GROUP)
    header = [("length", ">i4"), ("groups", ">i2"), ("power", ">i2"), ("sign", ">u2"), ("shown", ">i2")]
    found = chunk.windows(at, [*header, *((f"group{number}", ">i2") for number in range(most))])
    lengths = found["length"].astype(np.int32)
    null = lengths == -1
    groups = np.where(null, 0, found["groups"])
    sign = np.where(null, 0, found["sign"])
    special = (sign & _SPECIAL) == _SPECIAL
    longest = min(most, int(groups.max(initial=0)))
    digits = [np.where(n < groups, found[f"group{n}"], 0).astype(np.int64) for n in range(longest)]
    limbs_of = _limbs if target.precision <= _INT64_DIGITS else wide_limbs
    limbs, long = limbs_of(digits, found["power"].astype(np.int64), sign == _NEGATIVE, target)
    long |= groups > most
    following = at + _LENGTH + np.where(null, 0, lengths)
    array = _array(target, len(at), limbs, null if null.any() else None)
    return _Read(array, following, _unkept(chunk, at, following, {NOT_FINITE: special, TOO_LONG: long}))


def _limbs(
    groups: Sequence[Numbers], power: Numbers, negative: Numbers, target: pa.DataType
) -> tuple[Numbers, Numbers]:
    """Numbers of up to 18 digits, whose upper half is but their sign; and those that do not fit the type."""
    values = np.zeros(len(power), np.int64)
    long = np.zeros(len(power), bool)
    for number, group in enumerate(groups):
        shifted, too_long = _shifted(group, power - number, target)
        values += shifted
        long |= too_long
    if values.max(initial=0) >= 10**target.precision:
        long |= values >= 10**target.precision
    np.negative(values, out=values, where=negative)
    limbs = np.empty((len(power), 2), np.int64)
    limbs[:, 0], limbs[:, 1] = values, values >> 63
    return limbs, long


_POWERS = 10 ** np.arange(_INT64_DIGITS + 1, dtype=np.int64)


def _shifted(group: Numbers, power: Numbers, target: pa.DataType) -> tuple[Numbers, Numbers | bool]:
    """A group of four digits at its place, in units of the column's last digit; and where there is no such place."""
    digits = np.where(group == 0, 0, _GROUP * power + target.scale)
    wrong: Numbers | bool = False
    if digits.max(initial=0) > _INT64_DIGITS - _GROUP or digits.min(initial=0) <= -_GROUP:
        room = target.precision - digits
        wrong = (digits <= -_GROUP) | (room <= 0) | (group >= _POWERS[np.clip(room, 0, _GROUP)])
        digits = np.where(wrong, 0, digits)
    raised = group * _POWERS[np.maximum(digits, 0)]
    if digits.min(initial=0) >= 0:
        return raised, wrong
    # A group that goes on behind the last digit has the same share of its digits there in every row.
    divisor = 10 ** (-target.scale % _GROUP)
    whole = group // divisor
    wrong |= (digits < 0) & (whole * divisor != group)
    return np.where(digits < 0, whole, raised), wrong


def _unkept(chunk: _Chunk, at: Numbers, following: Numbers, masks: Mapping[str, Numbers]) -> dict[str, dict[int, str]]:
    found = {what: np.flatnonzero(mask) for what, mask in masks.items() if mask.any()}
    return {
        what: {int(row): numeric_text(chunk.bytes[at[row] + _LENGTH : following[row]].tobytes()) for row in rows}
        for what, rows in found.items()
    }


def _array(target: pa.DataType, count: int, values: Numbers, null: Numbers | None) -> pa.Array:
    validity = _bitmap(null) if null is not None else None
    return pa.Array.from_buffers(target, count, [validity, pa.py_buffer(values)])


def _bitmap(null: Numbers) -> pa.Buffer:
    return pa.py_buffer(np.packbits(~null, bitorder="little"))
