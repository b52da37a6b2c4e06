"""Texts that PostgreSQL's output functions wrote, as values of the exact types of the stream (G8).

Whole columns are cast at once, by casts that raise rather than alter. Where one does, its different texts are looked at
again: those that have no place in the type come beside the column, which is NULL there.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.sources.sql.postgres_exact import NOT_FINITE, OUTSIDE, TOO_LONG
from headwater.sources.sql.types import arrow_type

_NOT_UTF8 = "that are not UTF-8"
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_BYTEA = b"\\x"


class Typed(NamedTuple):
    array: pa.Array
    unkept: Mapping[int, str]  # row → what is wrong with its value, in words that follow "values"


def typed(texts: pa.Array, kind: str) -> Typed:
    """Texts as bytes → values of a kind (`sources/sql/types.py`)."""
    try:
        return Typed(_cast(texts, kind), {})
    except (pa.ArrowInvalid, binascii.Error):
        return _one_by_one(texts, kind)


def _cast(texts: pa.Array, kind: str) -> pa.Array:
    match kind:
        case "string":
            return texts.cast(pa.string())  # raises where the bytes are not UTF-8
        case "bool":
            return _bools(texts)
        case "binary":
            return _bytes(texts)
    return texts.view(pa.string()).cast(arrow_type(kind))


def _bools(texts: pa.Array) -> pa.Array:
    true = pc.equal(texts, b"t")
    if not pc.all(pc.or_(true, pc.equal(texts, b"f"))).as_py():
        raise pa.ArrowInvalid("neither t nor f")
    return true


def _bytes(texts: pa.Array) -> pa.Array:
    r"""`\x` and two digits for each byte: the digits of all values are turned at once."""
    if not pc.all(pc.starts_with(texts, _BYTEA.decode())).as_py():
        raise pa.ArrowInvalid(r"not \x")
    digits = pc.binary_slice(texts, 2)
    validity, offsets, data = digits.buffers()
    edges = np.frombuffer(offsets, np.int32, len(digits) + 1, digits.offset * 4)
    if (np.diff(edges) % 2).any():
        raise pa.ArrowInvalid("half a byte")
    held = binascii.unhexlify(memoryview(data)[edges[0] : edges[-1]] if data is not None else b"")
    halves = pa.py_buffer((edges - edges[0]) // 2)
    if digits.null_count and digits.offset:
        validity = digits.is_valid().buffers()[1]
    return pa.Array.from_buffers(pa.binary(), len(digits), [validity, halves, pa.py_buffer(held)])


def _one_by_one(texts: pa.Array, kind: str) -> Typed:
    """What cannot be kept is mostly one text many times: infinity, NaN."""
    encoded = texts.dictionary_encode()
    different = encoded.dictionary
    bad = _bad(different, kind)
    wrong = {place: _why(different[place].as_py(), kind) for place in bad}
    kept = np.ones(len(different), np.bool_)
    kept[bad] = False
    good = _cast(pc.if_else(pa.array(kept), different, pa.scalar(None, different.type)), kind)
    places = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(np.isin(places, bad))
    return Typed(good.take(encoded.indices), {int(row): wrong[int(places[row])] for row in rows})


def _bad(texts: pa.Array, kind: str, base: int = 0) -> list[int]:
    """The places of the texts that cannot be cast, by halves."""
    try:
        _cast(texts, kind)
    except (pa.ArrowInvalid, binascii.Error):
        if len(texts) == 1:
            return [base]
    else:
        return []
    half = len(texts) // 2
    return _bad(texts[:half], kind, base) + _bad(texts[half:], kind, base + half)


def _why(text: bytes, kind: str) -> str:
    if kind == "string":
        return _NOT_UTF8
    if kind in ("date", "timestamp", "timestamptz"):
        return OUTSIDE
    if kind.startswith("decimal"):
        return NOT_FINITE if text.decode(errors="replace") in _NOT_FINITE else TOO_LONG
    return f"that are no {kind}"
