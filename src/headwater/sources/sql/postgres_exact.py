"""What PostgreSQL sent in the exact types of the stream, and beside it what these have no place for (G8).

That is NaN in a decimal, infinity in a date or a time, years before 1 and after 9999. Whether there is any is asked
of whole columns.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.sources.sql.postgres_text import text_of
from headwater.sources.sql.relation import Column
from headwater.sources.sql.unkept import Part, Unkept, Written

# The years 1 to 9999, in days and in microseconds since 1970.
_DAYS = (-719_162, 2_932_896)
_MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
NOT_FINITE = "NaN or infinity"
TOO_LONG = "with more digits than the type has"
OUTSIDE = "infinite, or outside the years 1 to 9999"
# As ADBC spells them.
_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

_Exact = tuple[pa.Array, Sequence[Unkept]]


def exact_part(
    batch: pa.RecordBatch, columns: Sequence[Column], schema: pa.Schema, unkept: Sequence[Unkept] = ()
) -> Part:
    """The batch in the stream's schema; `unkept` are values that whoever made the batch already left out."""
    arrays: list[pa.Array] = []
    found = list(unkept)
    for position, column in enumerate(columns):
        array, more = _exact(batch.column(position), position, column, schema.field(position).type)
        arrays.append(array)
        found += more
    texts = {(one.position, row): text for one in found for row, text in one.texts.items()}

    def written(row: int) -> Written:
        return [
            texts.get((position, row)) or text_of(arrays[position], row, column)
            for position, column in enumerate(columns)
        ]

    found.sort(key=lambda one: one.position)
    return Part(pa.RecordBatch.from_arrays(arrays, schema=schema), tuple(found), written)


def _exact(array: pa.Array, position: int, column: Column, target: pa.DataType) -> _Exact:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_decimal(target):
        return _decimals(array, position, target)
    if pa.types.is_date(target):
        return _within(array, array.view(pa.int32()), _DAYS, position, column)
    if pa.types.is_timestamp(target):
        exact, unkept = _within(array, array.view(pa.int64()), _MICROSECONDS, position, column)
        return exact if exact.type == target else exact.cast(target, safe=True), unkept
    return array if array.type == target else array.cast(target, safe=True), ()


def _within(array: pa.Array, numbers: pa.Array, limits: tuple[int, int], position: int, column: Column) -> _Exact:
    found = pc.min_max(numbers).as_py()
    if found["min"] is None or (found["min"] >= limits[0] and found["max"] <= limits[1]):
        return array, ()
    outside = pc.or_(pc.less(numbers, limits[0]), pc.greater(numbers, limits[1]))
    texts = {row: text_of(array, row, column) or "" for row in _rows(outside)}
    return pc.if_else(outside, pa.scalar(None, array.type), array), (Unkept(position, OUTSIDE, texts),)


def _decimals(array: pa.Array, position: int, target: pa.DataType) -> _Exact:
    """Of texts, as ADBC sends them."""
    if array.type == target:
        return array, ()
    try:
        return array.cast(target), ()
    except pa.ArrowInvalid:
        texts = array.to_pylist()
    special = {row: _SPECIAL[text] for row, text in enumerate(texts) if text in _SPECIAL}
    long = {row: text for row, text in enumerate(texts) if text is not None and not _fits(text, target)}
    for row in special | long:
        texts[row] = None
    unkept = (Unkept(position, NOT_FINITE, special), Unkept(position, TOO_LONG, long))
    return pa.array(texts, pa.string()).cast(target), tuple(one for one in unkept if one.texts)


def _fits(text: str, target: pa.DataType) -> bool:
    number = decimal.Decimal(text)
    if not number.is_finite():
        return True  # told apart already
    _, digits, exponent = number.normalize(decimal.Context(prec=2000)).as_tuple()
    shift = int(exponent) + target.scale
    return not any(digits) or (shift >= 0 and len(digits) + shift <= target.precision)


def _rows(mask: pa.Array) -> list[int]:
    return [int(row) for row in pc.indices_nonzero(mask).to_pylist()]
