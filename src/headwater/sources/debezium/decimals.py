"""Decimals as Connect writes them in JSON: the unscaled number in base64, the greatest byte first.

Its default, so it is done by numpy for a whole column; JSON numbers (`decimal.format: NUMERIC`) are done one by one.
"""

from __future__ import annotations

import base64
from decimal import Context, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.sources.debezium.conversions import Convert

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
    kind = pa.decimal128(precision, scale)

    def convert(array: pa.Array) -> pa.Array:
        words = _words(array)
        if words is None:
            made = [None if text is None else _decimal(text, kind) for text in array.to_pylist()]
            return pa.array(made, kind)
        return _within(pa.Array.from_buffers(kind, len(array), [_validity(array), pa.py_buffer(words)]))

    return convert


def decimal_texts(scale: int) -> Convert:
    """The same for numbers that no decimal has room for: every digit, as text."""

    def convert(array: pa.Array) -> pa.Array:
        return pa.array([None if text is None else _plain(_unscaled(text, scale)) for text in array.to_pylist()])

    return convert


def texts_to_decimals(precision: int, scale: int) -> Convert:
    """Texts that are numbers, as `decimal.handling.mode: string` writes them."""
    kind = pa.decimal128(precision, scale)

    def convert(array: pa.Array) -> pa.Array:
        # Arrow's own way is wrong about some exponents.
        if pc.any(pc.match_substring_regex(array, "[eE=]")).as_py():
            made = [
                None if text is None else _decimal(NUMBER + text.removeprefix(NUMBER), kind)
                for text in array.to_pylist()
            ]
            return pa.array(made, kind)
        return _within(array.cast(kind))

    return convert


def variable_scale(array: pa.Array) -> pa.Array:
    """Numbers that bring their own scale: as text, since a column has one scale."""
    scales, values = array.flatten()
    pairs = zip(scales.to_pylist(), values.to_pylist(), array.is_valid().to_pylist(), strict=True)
    return pa.array([_plain(_unscaled(text, scale)) if there else None for scale, text, there in pairs], pa.string())


def _within(array: pa.Array) -> pa.Array:
    found = pc.min_max(array).as_py()
    if any(value is not None and not _fits(value, array.type) for value in found.values()):
        raise pa.ArrowInvalid(f"beyond {array.type}")
    return array


def _decimal(text: str, kind: pa.DataType) -> Decimal:
    number = _unscaled(text, kind.scale)
    if not _fits(number, kind):
        raise ValueError(f"{number} does not fit {kind}")
    return number.quantize(Decimal((0, (1,), -kind.scale)), context=_EXACT)


def _fits(number: Decimal, kind: pa.DataType) -> bool:
    scaled = number.scaleb(kind.scale, _EXACT)
    return bool(scaled == scaled.to_integral_value() and scaled.copy_abs() < 10**kind.precision)


def _unscaled(text: str | None, scale: int | None) -> Decimal:
    if text is None or scale is None:
        raise ValueError("a decimal without its value or its scale")
    if text.startswith(NUMBER):
        number = Decimal(text[1:])
        if not number.is_finite() or abs(number.adjusted()) > _EXACT.prec:
            raise ValueError(f"{text[1:]} is no number that can be kept")
        return number
    held = base64.b64decode(text, validate=True)
    if not held:
        raise ValueError("a decimal without digits")
    return Decimal(int.from_bytes(held, "big", signed=True)).scaleb(-scale, _EXACT)


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
        held = np.stack(
            [
                fours[:, :, 0] << 2 | fours[:, :, 1] >> 4,
                fours[:, :, 1] << 4 | fours[:, :, 2] >> 2,
                fours[:, :, 2] << 6 | fours[:, :, 3],
            ],
            axis=2,
        ).reshape(len(some), -1)
        count = held.shape[1] - pad
        if count > _WORD or held[:, count:].any():
            return False
        made = np.where(held[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8).repeat(_WORD, axis=1)  # noqa: PLR2004 - the sign
        made[:, _WORD - count :] = held[:, :count]
        words[rows[some]] = made[:, ::-1]
    return True


def _validity(array: pa.Array) -> pa.Buffer | None:
    return array.is_valid().buffers()[1] if array.null_count else None
