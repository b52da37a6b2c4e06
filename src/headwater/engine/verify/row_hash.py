"""A 128-bit hash of a row: equal rows have equal hashes, whatever library reads them. Runs in tasks, on batches.

The hash depends on the value, not on its Arrow type: numbers and times by their 64 bits, decimals by their
unscaled 128, texts and bytes by their content, NaN as one value, NULL as a value of its own. -0.0 is not 0.0: both sides
keep the sign. Columns are distinguished by their names, so their order does not matter. Not cryptographic: two rows that
collide by chance do not happen, and a forged collision hides only a difference in the forger's own rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Words = npt.NDArray[np.uint64]
Lanes = tuple[Words, Words]  # the two halves of the hashes, one item per row

_NULL = np.uint64(0xD1B54A32D192ED03)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_LONG = 256  # bytes; longer values are hashed one by one
_BYTE_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)  # so many bytes of a word
_FIRST = tuple(np.uint64(n) for n in (30, 0xBF58476D1CE4E5B9, 27, 0x94D049BB133111EB, 31))
_SECOND = tuple(np.uint64(n) for n in (33, 0xFF51AFD7ED558CCD, 29, 0xC4CEB9FE1A85EC53, 32))


def hash_rows(batch: pa.RecordBatch, names: Sequence[str]) -> Lanes:
    """The hashes of the rows, of these columns alone."""
    first, second = (np.zeros(batch.num_rows, np.uint64) for _ in range(2))
    for name in names:
        seed = hashlib.blake2b(name.encode(), digest_size=16).digest()
        column_first, column_second = hash_values(batch.column(name))
        # A column's hash is mixed with its name, and the sum is mixed again: otherwise two rows could swap values unnoticed.
        first += _mix(column_first ^ np.uint64(int.from_bytes(seed[:8], "big")), _FIRST)
        second += _mix(column_second ^ np.uint64(int.from_bytes(seed[8:], "big")), _SECOND)
    return _mix(first, _FIRST), _mix(second, _SECOND)


def hash_values(array: pa.Array | pa.ChunkedArray) -> Lanes:
    """The hashes of the values of one column."""
    values = _flatten(array)
    if not len(values):
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    lanes = _hash_nested(values) if pa.types.is_nested(values.type) else _hash_flat(values)
    if values.null_count:
        null = np.asarray(pc.is_null(values))
        for lane in lanes:
            lane[null] = _NULL
    return lanes


def _flatten(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _hash_flat(values: pa.Array) -> Lanes:
    data_type, t = values.type, pa.types
    if t.is_decimal(data_type):
        return _hash_decimals(values)
    if t.is_binary(data_type) or t.is_string(data_type) or t.is_large_binary(data_type) or t.is_large_string(data_type):
        return _hash_texts(values)
    if t.is_fixed_size_binary(data_type) or t.is_binary_view(data_type) or t.is_string_view(data_type):
        return _hash_texts(values.cast(pa.large_binary()))
    if t.is_null(data_type):
        words = np.zeros(len(values), np.uint64)
    elif t.is_boolean(data_type):
        words = np.asarray(values.fill_null(fill_value=False)).astype(np.uint64)
    elif t.is_floating(data_type):
        doubles = _numbers(values.cast(pa.float64())).copy()
        doubles[np.isnan(doubles)] = np.nan  # all bit patterns of NaN are one value
        words = doubles.view(np.uint64)
    elif t.is_date(data_type) or t.is_timestamp(data_type) or t.is_time(data_type) or t.is_duration(data_type):
        words = _numbers(values.view(pa.int32() if data_type.bit_width == 32 else pa.int64())).astype(np.int64)  # noqa: PLR2004
        words = words.view(np.uint64)
    else:
        words = _numbers(values).astype(np.uint64 if t.is_uint64(data_type) else np.int64).view(np.uint64)
    return _lanes(words)


def _numbers(values: pa.Array) -> npt.NDArray[np.generic]:
    filled = values.fill_null(0) if values.null_count else values
    return np.asarray(filled.to_numpy())


def _hash_decimals(values: pa.Array) -> Lanes:
    wide = values.cast(pa.decimal128(38, values.type.scale)) if values.type.bit_width != 128 else values  # noqa: PLR2004
    words = np.frombuffer(wide.buffers()[1], np.uint64, 2 * len(wide), 16 * wide.offset).reshape(-1, 2)
    low, high = np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])
    return _mix(_mix(high, _FIRST) + low, _FIRST), _mix(_mix(high, _SECOND) + low, _SECOND)


def _hash_texts(values: pa.Array) -> Lanes:
    """Eight bytes of every text at a time, until the longest one ends."""
    large = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    _, offsets, content = values.buffers()
    ends = np.frombuffer(offsets, np.int64 if large else np.int32, len(values) + 1 + values.offset)[values.offset :]
    begins, lengths = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)
    if values.null_count:
        lengths[np.asarray(pc.is_null(values))] = 0  # Arrow leaves the bytes of a NULL undefined
    first, second = _lanes(lengths.view(np.uint64))
    long = lengths > _LONG
    rows = np.flatnonzero((lengths > 0) & ~long)
    data = _readable_words(content, int(ends[0]), int(ends[-1]))
    offset, length = begins[rows] - int(ends[0]), lengths[rows]
    one, two = first[rows], second[rows]
    while len(rows):
        words = data[offset] & _BYTE_MASKS[np.minimum(length, 8)]
        one, two = _mix((one ^ words) + _STEP, _FIRST), _mix((two ^ words) + _STEP, _SECOND)
        offset, length = offset + 8, length - 8
        done = length <= 0
        if done.any():
            first[rows[done]], second[rows[done]] = one[done], two[done]
            rows, offset, length, one, two = rows[~done], offset[~done], length[~done], one[~done], two[~done]
    for row in np.flatnonzero(long):
        digest = hashlib.blake2b(_bytes(values, int(row)), digest_size=16).digest()
        first[row], second[row] = np.frombuffer(digest, np.uint64)
    return first, second


def _readable_words(content: pa.Buffer | None, begin: int, end: int) -> Words:
    """The eight bytes that start at every byte; zeros behind the last one."""
    padded = np.zeros(end - begin + 8, np.uint8)
    if content is not None and end > begin:
        padded[: end - begin] = np.frombuffer(content, np.uint8, end - begin, begin)
    return np.ndarray(end - begin + 1, np.dtype("<u8"), padded.data, strides=(1,))


def _bytes(values: pa.Array, row: int) -> bytes:
    value = values[row].as_py()
    return value.encode() if isinstance(value, str) else bytes(value)


def _hash_nested(values: pa.Array) -> Lanes:
    if pa.types.is_struct(values.type):
        names = [field.name for field in values.type]
        return hash_rows(pa.RecordBatch.from_arrays(values.flatten(), names=names), names)
    lengths, items = _list_items(values)
    item_first, item_second = hash_values(items)
    if not pa.types.is_map(values.type):  # a map's entries have no order
        number = np.arange(len(item_first)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        item_first = _mix(item_first + number.astype(np.uint64) * _STEP, _FIRST)
        item_second = _mix(item_second + number.astype(np.uint64) * _STEP, _SECOND)
    first, second = _lanes(lengths.view(np.uint64))
    row = np.repeat(np.arange(len(values)), lengths)
    np.add.at(first, row, item_first)
    np.add.at(second, row, item_second)
    return _mix(first, _FIRST), _mix(second, _SECOND)


def _list_items(values: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """The number of items of every list, and all items; those of a map are pairs."""
    if pa.types.is_map(values.type):
        pair = pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])
        values = values.cast(pa.list_(pair))
    return np.asarray(pc.list_value_length(values).fill_null(0)).astype(np.int64), values.flatten()


def _lanes(words: Words) -> Lanes:
    return _mix(words + _STEP, _FIRST), _mix(words + _STEP, _SECOND)


def _mix(words: Words, by: tuple[np.uint64, ...]) -> Words:
    """Every bit of a word changes half of the others."""
    words = words ^ (words >> by[0])
    words *= by[1]
    words ^= words >> by[2]
    words *= by[3]
    words ^= words >> by[4]
    return words
