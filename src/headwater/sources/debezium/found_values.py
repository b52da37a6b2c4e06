"""What kinds of values the rows in events without schemas have, by Arrow's parser, and one by one where it could be wrong.

What it says must be what `json.found.observe` says of the rows. A double keeps up to fifteen digits always; where numbers
with a fraction have more of them, they are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater.sources.json.fast import has_constants, is_utf8, one_line_each
from headwater.sources.json.found import EXACT_IN_DOUBLE, Kinds, observe
from headwater.sources.json.strict import Misfit, document, json_text

_KEPT_DIGITS = 15
_FEW = 16
_ROWS = ("after", "before")
_LONG = float(1 << 63)


def kinds_of_rows(payloads: Sequence[bytes], kinds: Kinds) -> None:
    """Note what the rows' fields hold, after the changes and before."""
    found = _guessed(payloads)
    if found is not None:
        for name, seen in found.items():
            kinds.setdefault(name, set()).update(seen)
    elif len(payloads) <= _FEW:
        for payload in payloads:
            _observe(payload, kinds)
    else:
        middle = len(payloads) // 2
        kinds_of_rows(payloads[:middle], kinds)
        kinds_of_rows(payloads[middle:], kinds)


def _guessed(payloads: Sequence[bytes]) -> Kinds | None:
    joined = one_line_each(payloads)
    if joined is None:
        return None
    letters = np.frombuffer(joined, np.uint8)
    table = _read(joined, letters)
    if table is None or table.num_rows != len(payloads):
        return None
    made: Kinds = {}
    for column in (table.column(name).combine_chunks() for name in _ROWS if name in table.column_names):
        kind = column.type
        fields = zip([field.name for field in kind], column.flatten(), strict=True) if pa.types.is_struct(kind) else ()
        for name, values in fields:
            seen = _kinds(values, letters)
            if seen is None:
                return None
            made.setdefault(name, set()).update(seen)
    return made


def _read(joined: bytes, letters: np.ndarray) -> pa.Table | None:
    if has_constants(letters) or not is_utf8(joined):
        return None
    try:
        return pj.read_json(pa.py_buffer(joined), pj.ReadOptions(use_threads=False, block_size=len(joined) + 1))
    except pa.ArrowInvalid:
        return None


def _kinds(column: pa.Array, letters: np.ndarray) -> set[str] | None:
    """None: somebody else must look."""
    kind = column.type
    if pa.types.is_null(kind):
        return set()
    if pa.types.is_boolean(kind):
        return {"boolean"}
    if pa.types.is_floating(kind):
        # Whole numbers beyond 64 bits pass for doubles.
        return None if _has_long_fractions(letters) or pc.max(pc.abs(column)).as_py() >= _LONG else {"double"}
    if pa.types.is_integer(kind):
        found = pc.min_max(column).as_py()
        return {"bigint" if max(-found["min"], found["max"]) <= EXACT_IN_DOUBLE else "long bigint"}
    return {"json"} if pa.types.is_nested(kind) else {"string"}  # texts that look like moments are texts


def _has_long_fractions(letters: np.ndarray) -> bool:
    """Whether more than fifteen digits stand side by side around a point."""
    points = letters == ord(".")
    inside = ((letters - ord("0") <= 9) | points).astype(np.int8)  # noqa: PLR2004 - it wraps around
    edges = np.flatnonzero(np.diff(inside, prepend=0, append=0))
    begins, ends = edges[::2], edges[1::2]
    long = np.flatnonzero(ends - begins > _KEPT_DIGITS + 1)
    return any(points[begins[run] : ends[run]].any() for run in long.tolist())


def _observe(payload: bytes, kinds: Kinds) -> None:
    try:
        event = dict(document(payload))
    except Misfit:
        return
    for row in (event.get(name) for name in _ROWS):
        if isinstance(row, list) and type(row) is not list:
            observe([json_text(row).encode()], kinds)
