"""Rows of PostgreSQL's `COPY … (FORMAT binary)` into Arrow, a column at a time, in the exact types of the stream (G8)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import RunError
from headwater.model.rows import ExactBatch, InexactValues, RowTexts
from headwater.model.types import DAYS, MICROSECONDS, OUTSIDE_YEARS, Column
from headwater.pg.text import numeric_text, text_of

Numbers = np.ndarray[Any, Any]

_GROUP = 4  # decimal digits
_HALF = 19  # digits, the most that 64 bits without a sign hold; two halves are the most that a decimal has
_WIDE_POWERS = np.array([10**digits for digits in range(_HALF + 1)], np.uint64)
_LOWER = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def wide_limbs(
    groups: Sequence[Numbers], power: Numbers, negative: Numbers, target: pa.DataType
) -> tuple[Numbers, Numbers]:
    """The numbers in Arrow's layout, the low 64 bits first; and a mask of those with digits beyond the type.

    `power` is the first group's power of 10,000.
    """
    low, high = np.zeros(len(power), np.uint64), np.zeros(len(power), np.uint64)
    misfits = np.zeros(len(power), bool)
    for number, group in enumerate(groups):
        exponent = np.where(group == 0, 0, _GROUP * (power - number) + target.scale)  # of the group's last digit
        cut = _WIDE_POWERS[np.clip(-exponent, 0, _GROUP)].astype(np.int64)  # below the type's last digit
        room = _WIDE_POWERS[np.clip(target.precision - exponent, 0, _GROUP)].astype(np.int64)
        misplaced = (group % cut != 0) | (group >= room)
        misfits |= misplaced
        digits = np.where(misplaced, 0, group // cut).astype(np.uint64)
        exponent = np.where(misplaced, 0, np.maximum(exponent, 0))
        below = _WIDE_POWERS[np.clip(_HALF - exponent, 0, _GROUP)]  # the digits that belong to the lower half
        low += digits % below * _WIDE_POWERS[np.minimum(exponent, _HALF)]
        high += digits // below * _WIDE_POWERS[np.maximum(exponent - _HALF, 0)]
    return _join_halves(low, high, negative), misfits


def _join_halves(low: Numbers, high: Numbers, negative: Numbers) -> Numbers:
    """The halves in 128 bits, by long multiplication with digits of 32 bits; then the sign."""
    factor = _WIDE_POWERS[_HALF]
    ones = (high & _LOWER) * (factor & _LOWER)
    left, right = (high >> _SHIFT) * (factor & _LOWER), (high & _LOWER) * (factor >> _SHIFT)
    middle = (ones >> _SHIFT) + (left & _LOWER) + (right & _LOWER)
    lower = (ones & _LOWER) | (middle << _SHIFT)
    upper = (high >> _SHIFT) * (factor >> _SHIFT) + (left >> _SHIFT) + (right >> _SHIFT) + (middle >> _SHIFT)
    lower += low
    upper += lower < low
    limbs = np.empty((len(low), 2), np.uint64)
    limbs[:, 0] = np.where(negative, ~lower + np.uint64(1), lower)
    limbs[:, 1] = np.where(negative, ~upper + (lower == 0), upper)
    return limbs


# A chunk holds thousands of rows. Numpy reads the same field of all of them at once: its length, which leads to
# the next field, and its value. Texts stay where they arrived until Arrow gathers them. No row is ever an object.
#
# The format: each field is a 32-bit length (-1: NULL) and that many bytes; numbers are big-endian.

PADDING = 64  # readable bytes after the last row: fields are read in windows of one width
_LENGTH = 4
# The wire format of a value. Integers may be narrower than their type.
_WIRE = {
    pa.bool_(): "u1",
    pa.int32(): ">i4",
    pa.int64(): ">i8",
    pa.float32(): ">f4",
    pa.float64(): ">f8",
    pa.date32(): ">i4",
    pa.timestamp("us"): ">i8",
    pa.timestamp("us", tz="UTC"): ">i8",
}
_DAYS, _MICROSECONDS = 10_957, 946_684_800_000_000  # 2000, seen from 1970
_EPOCH = {pa.date32(): _DAYS, pa.timestamp("us"): _MICROSECONDS, pa.timestamp("us", tz="UTC"): _MICROSECONDS}
_INT64_DIGITS = 18
_NEGATIVE, _SPECIAL = 0x4000, 0xC000
_JSONB_FORM = 1


NOT_FINITE = "NaN or infinity"
TOO_LONG = "with more digits than the type has"


class Misfits(NamedTuple):
    """Decimals of one column that do not fit its type."""

    position: int  # of the column
    what: str  # the fault, as it follows "values"
    fields: Mapping[int, bytes]  # by the row's number: the value as COPY sent it


def decode(
    data: bytearray, starts: Numbers, ends: Numbers, schema: pa.Schema, stream: str, *, jsonb: Collection[str] = ()
) -> tuple[pa.RecordBatch, list[Misfits]]:
    """The rows whose first fields begin at `starts`; `data` has PADDING bytes after the last of them.

    `jsonb` names the texts that are jsonb on the server. Misfits come beside the batch; their values in it are
    arbitrary.
    """
    chunk, at, arrays = _Chunk(data), starts, []
    misfits: list[Misfits] = []
    for position, field in enumerate(schema):
        array, at, column_misfits = _reader(field, jsonb, stream)(chunk, at, field, stream)
        arrays.append(array)
        misfits += (Misfits(position, what, fields) for what, fields in column_misfits.items())
    if not np.array_equal(at, ends):
        raise RunError(f"{stream}: the server's COPY sent rows of another shape than {len(schema)} columns")
    return pa.RecordBatch.from_arrays(arrays, names=schema.names), misfits


class _Chunk:
    """The bytes, as windows of any width that begin at any byte."""

    def __init__(self, data: bytearray) -> None:
        self.bytes = np.frombuffer(data, np.uint8)
        self.buffer = pa.py_buffer(data)

    def windows(self, at: Numbers, fields: list[tuple[str, str]]) -> Numbers:
        return windows(self.bytes, at, fields)


def windows(data: Numbers, at: Numbers, fields: list[tuple[str, str]]) -> Numbers:
    """The bytes at each of these offsets, as records of these fields."""
    layout = np.dtype(fields)
    every = np.ndarray((len(data) - layout.itemsize + 1,), f"V{layout.itemsize}", data.data, strides=(1,))
    return every[at].view(layout)


class _Read(NamedTuple):
    array: pa.Array
    following: Numbers  # where the next column's fields begin
    misfits: Mapping[str, Mapping[int, bytes]] = {}  # fault → row → the value as COPY sent it


_Reader = Callable[[_Chunk, Numbers, pa.Field, str], _Read]


def _reader(field: pa.Field, jsonb: Collection[str], stream: str) -> _Reader:
    if field.type in (pa.string(), pa.binary()):
        return _jsonb if field.name in jsonb else _bytes
    if field.type in _WIRE:
        return _fixed
    if pa.types.is_decimal128(field.type):
        return _decimal
    raise RunError(f"{stream}: column {field.name} ({field.type}) cannot be read in COPY's binary format")


def _fixed(chunk: _Chunk, at: Numbers, field: pa.Field, stream: str) -> _Read:
    lengths, null, wire_values = _lengths_and_values(chunk, at, _WIRE[field.type])
    if pa.types.is_integer(field.type):
        lengths, null, wire_values = _narrower(chunk, at, lengths, null, wire_values)
    nulls, width = bool(null.any()), wire_values.dtype.itemsize
    if not np.all((lengths == width) | null if nulls else lengths == width):
        raise RunError(f"{stream}: column {field.name} ({field.type}) has values of another width than {width} bytes")
    following = at + np.where(null, _LENGTH, _LENGTH + width) if nulls else at + (_LENGTH + width)
    epoch = _EPOCH.get(field.type)
    if pa.types.is_boolean(field.type):
        values = np.packbits(wire_values != 0, bitorder="little")
    else:
        values = wire_values.astype(field.type.to_pandas_dtype() if epoch is None else f"i{width}")
        if epoch is not None:
            values += epoch  # an infinity wraps around, outside the years 1 to 9999
    return _Read(_array(field.type, len(at), values, null if nulls else None), following)


def _lengths_and_values(chunk: _Chunk, at: Numbers, wire: str) -> tuple[Numbers, Numbers, Numbers]:
    fields = chunk.windows(at, [("length", ">i4"), ("value", wire)])
    lengths = fields["length"].astype(np.int32)
    return lengths, lengths == -1, fields["value"]


def _narrower(
    chunk: _Chunk, at: Numbers, lengths: Numbers, null: Numbers, values: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    width = int(lengths.max(initial=-1))
    if width in (2, 4) and width < values.dtype.itemsize:
        return _lengths_and_values(chunk, at, f">i{width}")
    return lengths, null, values


def _bytes(chunk: _Chunk, at: Numbers, field: pa.Field, _stream: str) -> _Read:
    lengths = chunk.windows(at, [("length", ">i4")])["length"].astype(np.int32)
    null = lengths == -1
    return _gather(chunk, at + _LENGTH, lengths, null, field)


def _jsonb(chunk: _Chunk, at: Numbers, field: pa.Field, stream: str) -> _Read:
    """A text after its version byte."""
    fields = chunk.windows(at, [("length", ">i4"), ("form", "u1")])
    lengths = fields["length"].astype(np.int32)
    null = lengths == -1
    if not np.all((fields["form"] == _JSONB_FORM) | null):
        raise RunError(f"{stream}: column {field.name} (jsonb) has values in another form than {_JSONB_FORM}")
    skipped = np.where(null, 0, 1) if null.any() else 1
    return _gather(chunk, at + (_LENGTH + skipped), lengths - 1, null, field)


def _gather(chunk: _Chunk, begin: Numbers, lengths: Numbers, null: Numbers, field: pa.Field) -> _Read:
    nulls = bool(null.any())
    end = begin + (np.where(null, 0, lengths) if nulls else lengths)
    # Values and the gaps between them alternate in one array over the chunk; Arrow takes every other element.
    edges = np.empty(2 * len(begin) + 1, np.int32)
    edges[0:-1:2], edges[1::2] = begin, end
    edges[-1] = end[-1]
    alternating = pa.Array.from_buffers(pa.binary(), 2 * len(begin), [None, pa.py_buffer(edges), chunk.buffer])
    values = alternating.take(pa.array(np.arange(0, 2 * len(begin), 2, dtype=np.int32)))
    buffers = values.buffers()
    validity = _bitmap(null) if nulls else None
    return _Read(pa.Array.from_buffers(field.type, len(begin), [validity, *buffers[1:]]), end)


def _decimal(chunk: _Chunk, at: Numbers, field: pa.Field, _stream: str) -> _Read:
    """Groups of four digits after a header: how many, the first one's power of 10,000, the sign."""
    target = field.type
    max_groups = -(-(target.precision - target.scale) // _GROUP) + -(-target.scale // _GROUP)
    header = [("length", ">i4"), ("groups", ">i2"), ("power", ">i2"), ("sign", ">u2"), ("scale", ">i2")]
    fields = chunk.windows(at, [*header, *((f"group{number}", ">i2") for number in range(max_groups))])
    lengths = fields["length"].astype(np.int32)
    null = lengths == -1
    groups = np.where(null, 0, fields["groups"])
    sign = np.where(null, 0, fields["sign"])
    special = (sign & _SPECIAL) == _SPECIAL
    longest = min(max_groups, int(groups.max(initial=0)))
    digits = [np.where(n < groups, fields[f"group{n}"], 0).astype(np.int64) for n in range(longest)]
    limbs_of = _limbs if target.precision <= _INT64_DIGITS else wide_limbs
    limbs, long = limbs_of(digits, fields["power"].astype(np.int64), sign == _NEGATIVE, target)
    long |= groups > max_groups
    following = at + _LENGTH + np.where(null, 0, lengths)
    array = _array(target, len(at), limbs, null if null.any() else None)
    return _Read(array, following, _misfits(chunk, at, following, {NOT_FINITE: special, TOO_LONG: long}))


def _limbs(
    groups: Sequence[Numbers], power: Numbers, negative: Numbers, target: pa.DataType
) -> tuple[Numbers, Numbers]:
    """Numbers of up to 18 digits, whose upper half is only their sign; and a mask of those that do not fit the type."""
    values = np.zeros(len(power), np.int64)
    long = np.zeros(len(power), bool)
    for number, group in enumerate(groups):
        shifted, too_long = _shift(group, power - number, target)
        values += shifted
        long |= too_long
    if values.max(initial=0) >= 10**target.precision:
        long |= values >= 10**target.precision
    np.negative(values, out=values, where=negative)
    limbs = np.empty((len(power), 2), np.int64)
    limbs[:, 0], limbs[:, 1] = values, values >> 63
    return limbs, long


_POWERS = 10 ** np.arange(_INT64_DIGITS + 1, dtype=np.int64)


def _shift(group: Numbers, power: Numbers, target: pa.DataType) -> tuple[Numbers, Numbers | bool]:
    """Groups of four digits in units of the column's last digit; and a mask of those outside the type."""
    exponent = np.where(group == 0, 0, _GROUP * power + target.scale)
    misfits: Numbers | bool = False
    if exponent.max(initial=0) > _INT64_DIGITS - _GROUP or exponent.min(initial=0) <= -_GROUP:
        room = target.precision - exponent
        misfits = (exponent <= -_GROUP) | (room <= 0) | (group >= _POWERS[np.clip(room, 0, _GROUP)])
        exponent = np.where(misfits, 0, exponent)
    raised = group * _POWERS[np.maximum(exponent, 0)]
    if exponent.min(initial=0) >= 0:
        return raised, misfits
    # A group that goes beyond the last digit does so by the same number of digits in every row.
    divisor = 10 ** (-target.scale % _GROUP)
    quotient = group // divisor
    misfits |= (exponent < 0) & (quotient * divisor != group)
    return np.where(exponent < 0, quotient, raised), misfits


def _misfits(
    chunk: _Chunk, at: Numbers, following: Numbers, masks: Mapping[str, Numbers]
) -> dict[str, dict[int, bytes]]:
    rows_of = {what: np.flatnonzero(mask) for what, mask in masks.items() if mask.any()}
    return {
        what: {int(row): chunk.bytes[at[row] + _LENGTH : following[row]].tobytes() for row in rows}
        for what, rows in rows_of.items()
    }


def _array(target: pa.DataType, count: int, values: Numbers, null: Numbers | None) -> pa.Array:
    validity = _bitmap(null) if null is not None else None
    return pa.Array.from_buffers(target, count, [validity, pa.py_buffer(values)])


def _bitmap(null: Numbers) -> pa.Buffer:
    return pa.py_buffer(np.packbits(~null, bitorder="little"))


# Inexact values: NaN in a decimal, infinity in a date or a time, years before 1 and after 9999. One look at a column
# tells whether it has any.

_ExactColumn = tuple[pa.Array, Sequence[InexactValues]]


def exact_batch(
    batch: pa.RecordBatch, columns: Sequence[Column], schema: pa.Schema, misfits: Sequence[Misfits] = ()
) -> ExactBatch:
    """The batch in the stream's schema; `misfits` are the decimals that do not fit."""
    arrays: list[pa.Array] = []
    inexact = [
        InexactValues(values.position, values.what, {row: numeric_text(field) for row, field in values.fields.items()})
        for values in misfits
    ]
    for position, column in enumerate(columns):
        array, more = _exact_column(batch.column(position), position, column)
        arrays.append(array)
        inexact += more
    texts = {(values.position, row): text for values in inexact for row, text in values.texts.items()}

    def row_texts(row: int) -> RowTexts:
        return [
            texts.get((position, row)) or text_of(arrays[position], row, column)
            for position, column in enumerate(columns)
        ]

    inexact.sort(key=lambda values: values.position)
    return ExactBatch(pa.RecordBatch.from_arrays(arrays, schema=schema), tuple(inexact), row_texts)


def _exact_column(array: pa.Array, position: int, column: Column) -> _ExactColumn:
    if pa.types.is_date(array.type):
        return _exact_years(array, array.view(pa.int32()), DAYS, position, column)
    if pa.types.is_timestamp(array.type):
        return _exact_years(array, array.view(pa.int64()), MICROSECONDS, position, column)
    return array, ()


def _exact_years(
    array: pa.Array, numbers: pa.Array, limits: tuple[int, int], position: int, column: Column
) -> _ExactColumn:
    extremes = pc.min_max(numbers).as_py()
    if extremes["min"] is None or (extremes["min"] >= limits[0] and extremes["max"] <= limits[1]):
        return array, ()
    outside = pc.or_(pc.less(numbers, limits[0]), pc.greater(numbers, limits[1]))
    texts = {row: text_of(array, row, column) or "" for row in _row_numbers(outside)}
    return pc.if_else(outside, pa.scalar(None, array.type), array), (InexactValues(position, OUTSIDE_YEARS, texts),)


def _row_numbers(mask: pa.Array) -> list[int]:
    return [int(row) for row in pc.indices_nonzero(mask).to_pylist()]
