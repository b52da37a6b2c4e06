"""Values as Debezium writes them in JSON, as the values of columns: whole arrays at once.

Every function raises ArrowInvalid or ValueError where a value cannot be kept exactly (G8); the caller finds
the value by converting smaller parts.

Connect writes decimals as the unscaled number in base64, the greatest byte first. Its default, so it is done by numpy
for a whole column; JSON numbers (`decimal.format: NUMERIC`) are done one by one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from decimal import Context, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.types import DAYS, MICROSECONDS

Convert = Callable[[pa.Array], pa.Array]

_DAY = 86_400


def days(array: pa.Array) -> pa.Array:
    return _between(array, DAYS).cast(pa.int32()).view(pa.date32())


def iso_days(array: pa.Array) -> pa.Array:
    return days(without_z(array).cast(pa.date32()).view(pa.int32()))


def moments(per_second: int) -> Convert:
    """Numbers since 1970, without a zone."""

    def convert(array: pa.Array) -> pa.Array:
        return _between(_micros(array, per_second), MICROSECONDS).view(pa.timestamp("us"))

    return convert


def iso_moments(array: pa.Array) -> pa.Array:
    return _moments(without_z(array), pa.timestamp("us"))


def zoned_moments(array: pa.Array) -> pa.Array:
    return _moments(array, pa.timestamp("us", "UTC"))


def _moments(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    try:
        moments = array.cast(data_type)
    except pa.ArrowInvalid:
        # Nanoseconds that are none: more than six digits, the rest of them zeros.
        moments = pc.replace_substring_regex(array, r"(\.\d{6})0+", r"\1").cast(data_type)
    return _between(moments.view(pa.int64()), MICROSECONDS).view(data_type)


def times(per_second: int) -> Convert:
    """Numbers since midnight as `08:30:00.000000`. MySQL's may be negative, and longer than a day."""
    digits = len(str(per_second)) - 1
    data_type = pa.time32("ms") if per_second == 1_000 else pa.time64("us" if per_second == 1_000_000 else "ns")  # noqa: PLR2004

    def convert(array: pa.Array) -> pa.Array:
        edges = pc.min_max(array).as_py()
        if edges["min"] is None or (edges["min"] >= 0 and edges["max"] < _DAY * per_second):
            return array.cast(pa.int32() if data_type.bit_width == 32 else pa.int64()).view(data_type).cast(pa.string())  # noqa: PLR2004
        return pa.array([None if n is None else _clock(n, per_second, digits) for n in array.to_pylist()], pa.string())

    return convert


def _clock(number: int, per_second: int, digits: int) -> str:
    in_seconds, fraction = divmod(abs(number), per_second)
    minutes, seconds = divmod(in_seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{'-' if number < 0 else ''}{hours:02}:{minutes:02}:{seconds:02}.{fraction:0{digits}}"


def from_base64(array: pa.Array) -> pa.Array:
    decode = binascii.a2b_base64
    decoded = [None if text is None else decode(text, strict_mode=True) for text in array.to_pylist()]
    return pa.array(decoded, pa.binary())


def from_base64url(array: pa.Array) -> pa.Array:
    return from_base64(pc.replace_substring(pc.replace_substring(array, "-", "+"), "_", "/"))


def from_hex(array: pa.Array) -> pa.Array:
    return pa.array([None if text is None else binascii.a2b_hex(text) for text in array.to_pylist()], pa.binary())


def floats(array: pa.Array) -> pa.Array:
    """The nearest single; one beyond them all cannot be kept."""
    singles = array.cast(pa.float32(), safe=False)
    if pc.any(pc.and_(pc.is_inf(singles), pc.invert(pc.is_inf(array)))).as_py():
        raise pa.ArrowInvalid("beyond float")
    return singles


def _micros(array: pa.Array, per_second: int) -> pa.Array:
    wide = array.cast(pa.int64())
    if per_second < 1_000_000:  # noqa: PLR2004
        return pc.multiply_checked(wide, 1_000_000 // per_second)
    if per_second == 1_000_000:  # noqa: PLR2004
        return wide
    return wide.view(pa.timestamp("ns")).cast(pa.timestamp("us")).view(pa.int64())  # raises at a part of a microsecond


def _between(array: pa.Array, edges: tuple[int, int]) -> pa.Array:
    extremes = pc.min_max(array).as_py()
    if extremes["min"] is not None and (extremes["min"] < edges[0] or extremes["max"] > edges[1]):
        raise pa.ArrowInvalid("beyond the years 1 to 9999")
    return array


def without_z(array: pa.Array) -> pa.Array:
    if pc.ends_with(array, "Z").false_count:
        raise pa.ArrowInvalid("no ISO text in UTC")
    return pc.utf8_slice_codeunits(array, 0, -1)


_EXACT = Context(prec=400)
NUMBER = "="
"""Before a decimal that was written as a JSON number; no base64 begins so."""

_SIXES = np.full(256, 0xFF, np.uint8)
_SIXES[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)
_PAD = ord("=")
_WORD = 16
_MOST_TEXT = 24  # base64 of 16 bytes, and a little more


def decimals(precision: int, scale: int) -> Convert:
    """Unscaled numbers in base64, the greatest byte first; or numbers as JSON has them."""
    data_type = pa.decimal128(precision, scale)

    def convert(array: pa.Array) -> pa.Array:
        words = _words(array)
        if words is None:
            decimals = [None if text is None else _decimal(text, data_type) for text in array.to_pylist()]
            return pa.array(decimals, data_type)
        return _within(pa.Array.from_buffers(data_type, len(array), [_validity(array), pa.py_buffer(words)]))

    return convert


def decimal_texts(scale: int) -> Convert:
    """The same for numbers that no decimal has room for: every digit, as text."""

    def convert(array: pa.Array) -> pa.Array:
        return pa.array([None if text is None else _plain(_unscaled(text, scale)) for text in array.to_pylist()])

    return convert


def texts_to_decimals(precision: int, scale: int) -> Convert:
    """Texts that are numbers, as `decimal.handling.mode: string` writes them."""
    data_type = pa.decimal128(precision, scale)

    def convert(array: pa.Array) -> pa.Array:
        # Arrow's own way is wrong about some exponents.
        if pc.any(pc.match_substring_regex(array, "[eE=]")).as_py():
            decimals = [
                None if text is None else _decimal(NUMBER + text.removeprefix(NUMBER), data_type)
                for text in array.to_pylist()
            ]
            return pa.array(decimals, data_type)
        return _within(array.cast(data_type))

    return convert


def variable_scale(array: pa.Array) -> pa.Array:
    """Numbers that bring their own scale: as text, since a column has one scale."""
    scales, values = array.flatten()
    pairs = zip(scales.to_pylist(), values.to_pylist(), array.is_valid().to_pylist(), strict=True)
    return pa.array([_plain(_unscaled(text, scale)) if there else None for scale, text, there in pairs], pa.string())


def _within(array: pa.Array) -> pa.Array:
    edges = pc.min_max(array).as_py()
    if any(value is not None and not _fits(value, array.type) for value in edges.values()):
        raise pa.ArrowInvalid(f"beyond {array.type}")
    return array


def _decimal(text: str, data_type: pa.DataType) -> Decimal:
    number = _unscaled(text, data_type.scale)
    if not _fits(number, data_type):
        raise ValueError(f"{number} does not fit {data_type}")
    return number.quantize(Decimal((0, (1,), -data_type.scale)), context=_EXACT)


def _fits(number: Decimal, data_type: pa.DataType) -> bool:
    scaled = number.scaleb(data_type.scale, _EXACT)
    return bool(scaled == scaled.to_integral_value() and scaled.copy_abs() < 10**data_type.precision)


def _unscaled(text: str | None, scale: int | None) -> Decimal:
    if text is None or scale is None:
        raise ValueError("a decimal without its value or its scale")
    if text.startswith(NUMBER):
        number = Decimal(text[1:])
        if not number.is_finite() or abs(number.adjusted()) > _EXACT.prec:
            raise ValueError(f"{text[1:]} is no number that can be kept")
        return number
    unscaled = base64.b64decode(text, validate=True)
    if not unscaled:
        raise ValueError("a decimal without digits")
    return Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, _EXACT)


def _plain(number: Decimal) -> str:
    return format(number, "f")


def _words(array: pa.Array) -> npt.NDArray[np.uint8] | None:
    """16 bytes each, the least first; None where a text is not plain base64 of at most so many."""
    ends = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4) if len(array) else np.zeros(1)
    data = array.buffers()[2]
    letters = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    sizes = np.where(array.is_valid().to_numpy(zero_copy_only=False), np.diff(ends), 0)
    words = np.zeros((len(array), _WORD), np.uint8)
    for size in np.unique(sizes).tolist():
        if size == 0 and sizes[array.is_valid().to_numpy(zero_copy_only=False)].all():
            continue  # only NULLs
        if size == 0 or size % 4 or size > _MOST_TEXT:
            return None
        rows = np.flatnonzero(sizes == size)
        if not _fill(words, rows, letters[ends[rows][:, None] + np.arange(size)]):
            return None
    return words


def _fill(words: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64], texts: npt.NDArray[np.uint8]) -> bool:
    pads = np.where(texts[:, -1] != _PAD, 0, np.where(texts[:, -2] != _PAD, 1, 2))
    for pad in np.unique(pads).tolist():
        some = np.flatnonzero(pads == pad)
        sixes = _SIXES[texts[some]]
        sixes[:, sixes.shape[1] - pad :] = 0
        if (sixes == 0xFF).any():  # noqa: PLR2004 - what is no letter of base64
            return False
        fours = sixes.reshape(len(some), -1, 4)
        octets = np.stack(
            [
                fours[:, :, 0] << 2 | fours[:, :, 1] >> 4,
                fours[:, :, 1] << 4 | fours[:, :, 2] >> 2,
                fours[:, :, 2] << 6 | fours[:, :, 3],
            ],
            axis=2,
        ).reshape(len(some), -1)
        count = octets.shape[1] - pad
        if count > _WORD or octets[:, count:].any():
            return False
        extended = np.where(octets[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8).repeat(_WORD, axis=1)  # noqa: PLR2004 - the sign
        extended[:, _WORD - count :] = octets[:, :count]
        words[rows[some]] = extended[:, ::-1]
    return True


def _validity(array: pa.Array) -> pa.Buffer | None:
    return array.is_valid().buffers()[1] if array.null_count else None
