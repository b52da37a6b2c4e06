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
    if not pc.all(pc.or_(true, pc.equal(texts, b"f")), min_count=0).as_py():
        raise pa.ArrowInvalid("neither t nor f")
    return true


def _bytes(texts: pa.Array) -> pa.Array:
    r"""`\x` and two digits for each byte: the digits of all values are turned at once."""
    told = texts.drop_null()
    if not len(told):
        return pa.nulls(len(texts), pa.binary())
    edges = np.frombuffer(told.buffers()[1], np.int32, len(told) + 1, told.offset * 4)
    letters = np.frombuffer(told.buffers()[2] or b"", np.uint8)[edges[0] : edges[-1]]
    begins, sizes = edges[:-1] - edges[0], np.diff(edges)
    if sizes.min() < len(_BYTEA) or (sizes % 2).any():
        raise pa.ArrowInvalid("half a byte")
    digits = np.ones(len(letters), np.bool_)
    for place, letter in enumerate(_BYTEA):
        if (letters[begins + place] != letter).any():
            raise pa.ArrowInvalid(r"not \x")
        digits[begins + place] = False
    held = binascii.unhexlify(letters[digits].data)
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    lengths = np.zeros(len(texts) + 1, np.int32)
    lengths[1:][valid] = sizes // 2 - 1
    offsets, validity = np.cumsum(lengths, dtype=np.int32), pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(texts), [validity, pa.py_buffer(offsets), pa.py_buffer(held)])


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
