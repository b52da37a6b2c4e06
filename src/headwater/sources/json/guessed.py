"""What kinds of values the fields of many JSON objects have, by Arrow's parser: or None where it could be wrong.

What it says must be what `found.observe` says, object by object. Arrow's types are right for all but numbers with a
fraction: it does not tell whether a double keeps every digit of them, and takes whole numbers beyond 64 bits for doubles.
Fifteen digits without an exponent are kept always; where there are more of either, somebody else must look.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater.sources.json.fast import has_constants, has_exponents, is_utf8
from headwater.sources.json.found import EXACT_IN_DOUBLE, Kinds

_KEPT_DIGITS = 15
_WORD = 8
_ALL_DIGITS = 0x0101010101010101


def guessed_kinds(joined: bytes, count: int) -> Kinds | None:
    """Of so many objects, each on a line of its own from `{` to `}`."""
    letters = np.frombuffer(joined, np.uint8)
    if has_constants(letters) or not is_utf8(joined):
        return None
    try:
        table = pj.read_json(pa.py_buffer(joined), pj.ReadOptions(use_threads=False, block_size=len(joined) + 1))
    except pa.ArrowInvalid:
        return None
    if table.num_rows != count:
        return None
    if any(map(pa.types.is_floating, table.schema.types)) and (has_exponents(letters) or _has_long_numbers(letters)):
        return None
    return {name: _kinds(column) for name, column in zip(table.column_names, table.columns, strict=True)}


def _kinds(column: pa.ChunkedArray) -> set[str]:
    kind = column.type
    if pa.types.is_null(kind):
        return set()
    if pa.types.is_boolean(kind):
        return {"boolean"}
    if pa.types.is_floating(kind):
        return {"double"}
    if pa.types.is_integer(kind):
        found = pc.min_max(column).as_py()
        return {"bigint" if max(-found["min"], found["max"]) <= EXACT_IN_DOUBLE else "long bigint"}
    return {"json"} if pa.types.is_nested(kind) else {"string"}  # texts that look like moments are texts


def _has_long_numbers(letters: np.ndarray) -> bool:
    """Whether more than fifteen digits and points stand side by side: then eight of them fill a word of memory."""
    digits = ((letters - ord("0") <= 9) | (letters == ord("."))).astype(np.uint8)  # noqa: PLR2004 - it wraps around
    words = digits[: len(digits) // _WORD * _WORD].view(np.uint64)
    full = np.flatnonzero(words == _ALL_DIGITS) * _WORD
    padded = np.concatenate((np.zeros(_WORD, np.uint8), digits, np.zeros(2 * _WORD, np.uint8)))
    before = padded[full[:, None] + np.arange(_WORD)][:, ::-1]
    after = padded[full[:, None] + np.arange(2 * _WORD, 3 * _WORD)]
    sides = np.cumprod(before, axis=1).sum(axis=1) + np.cumprod(after, axis=1).sum(axis=1)
    return bool((sides + _WORD > _KEPT_DIGITS).any())
