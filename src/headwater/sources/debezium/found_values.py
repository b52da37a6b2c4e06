"""What kinds of values the rows in events without schemas have, by Arrow's parser, and one by one where it could be wrong.

What it says must be what `json.found.observe` says of the rows. A double keeps up to fifteen digits always; where numbers
with a fraction have more of them, they are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater.sources.json.fast import has_constants, is_utf8, one_line_each
from headwater.sources.json.found import EXACT_IN_DOUBLE, Kinds, observe
from headwater.sources.json.strict import Misfit, document, json_text

_KEPT_DIGITS = 15
_MARGIN = np.zeros(_KEPT_DIGITS + 2, np.uint8)
_FEW = 16
_ROWS = ("after", "before")
_LONG = float(1 << 63)


@dataclass
class Rows:
    """What has been seen in events."""

    kinds: Kinds = field(default_factory=dict)  # of values, by the column
    tables: set[str] = field(default_factory=set)  # that the rows are of

    @classmethod
    def seen(cls, payloads: Sequence[bytes]) -> Rows:
        """In events: rows after the changes, and before."""
        made = cls()
        made.see(payloads)
        return made

    def see(self, payloads: Sequence[bytes]) -> None:
        found = _guessed(payloads)
        if found is not None:
            self.add(found)
        elif len(payloads) <= _FEW:
            for payload in payloads:
                self._observe(payload)
        else:
            middle = len(payloads) // 2
            self.see(payloads[:middle])
            self.see(payloads[middle:])

    def add(self, other: Rows) -> None:
        for name, seen in other.kinds.items():
            self.kinds.setdefault(name, set()).update(seen)
        self.tables |= other.tables

    def _observe(self, payload: bytes) -> None:
        try:
            event = dict(document(payload))
        except Misfit:
            return
        for row in (event.get(name) for name in _ROWS):
            if is_object(row):
                observe([json_text(row).encode()], self.kinds)
        self.tables |= {name for name in [fields_in(event.get("source")).get("table")] if isinstance(name, str)}


def _guessed(payloads: Sequence[bytes]) -> Rows | None:
    joined = one_line_each(payloads)
    if joined is None:
        return None
    letters = np.frombuffer(joined, np.uint8)
    table = _read(joined, letters)
    if table is None or table.num_rows != len(payloads):
        return None
    made = Rows()
    for column in (table.column(name).combine_chunks() for name in _ROWS if name in table.column_names):
        kind = column.type
        fields = zip([one.name for one in kind], column.flatten(), strict=True) if pa.types.is_struct(kind) else ()
        for name, values in fields:
            seen = _kinds(values, letters)
            if seen is None:
                return None
            made.kinds.setdefault(name, set()).update(seen)
    made.tables = _tables(table)
    return made


def read_rows(payloads: Sequence[bytes]) -> list[pa.Field]:
    """What Arrow takes the fields of rows for; none where it could be wrong."""
    joined = one_line_each(payloads) if payloads else None
    table = None if joined is None else _read(joined, np.frombuffer(joined, np.uint8))
    if table is None or "after" not in table.column_names:
        return []
    kind = table.schema.field("after").type
    return list(kind) if pa.types.is_struct(kind) else []


def _tables(table: pa.Table) -> set[str]:
    kind = table.schema.field("source").type if "source" in table.column_names else pa.null()
    if not pa.types.is_struct(kind) or kind.get_field_index("table") < 0:
        return set()
    names = pc.struct_field(table.column("source"), "table").unique().to_pylist()
    return {name for name in names if isinstance(name, str)}


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
    """Whether more than fifteen digits stand side by side around a point: then at least eight of them on one side."""
    digits = np.concatenate((_MARGIN, letters, _MARGIN)) - ord("0") <= 9  # noqa: PLR2004 - it wraps around
    points = np.flatnonzero(letters == ord(".")) + len(_MARGIN)
    before, after = (digits[points + side * 3] & digits[points + side * 8] for side in (-1, 1))  # most have none there
    points = points[before | after]
    span = np.arange(1, _KEPT_DIGITS + 2)
    held = (digits[points[:, None] + side * span] for side in (-1, 1))
    count = sum(np.cumprod(one, axis=1, dtype=np.uint8).sum(axis=1) for one in held)
    return bool(np.any(count > _KEPT_DIGITS))


def is_object(value: object) -> bool:
    """Of what `document` gives: its arrays are lists, and its objects more than that."""
    return isinstance(value, list) and type(value) is not list


def fields_in(value: Any) -> dict[str, Any]:
    """Of an object; of anything else none."""
    return dict(value) if is_object(value) else {}
