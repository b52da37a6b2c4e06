"""Texts of CSV as typed columns: by Arrow's casts where all texts are plain, one by one where something is wrong.

The rules are those of JSON (`sources/json/strict.py`), with numbers and booleans as texts; arrays, structs and maps are
JSON. NaN, Infinity and -Infinity are numbers of `double` and `float` here.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headwater.sources.json.strict import Misfit, Texts

_FEW = 16

Misfits = dict[int, str]  # place in the column → reason


class TextColumn:
    """Converts for one column."""

    def __init__(self, field: pa.Field) -> None:
        self._field, self._texts = field, Texts(field)

    def convert(self, values: pa.Array) -> tuple[pa.Array, Misfits]:
        """Binary values as the column's type; NULL where a text has no place, which is told."""
        misfits: Misfits = {}
        parts = list(self._parts(values, 0, misfits))
        made = pa.concat_arrays(parts) if parts else pa.array([], self._field.type)
        return made, {place: f"{self._field.name}: {why}" for place, why in misfits.items()}

    def _parts(self, values: pa.Array, begin: int, misfits: Misfits) -> list[pa.Array]:
        made = self._at_once(values)
        if made is not None:
            return [made]
        if len(values) <= _FEW:
            return [self._one_by_one(values, begin, misfits)]
        half = len(values) // 2
        return self._parts(values[:half], begin, misfits) + self._parts(values[half:], begin + half, misfits)

    def _at_once(self, values: pa.Array) -> pa.Array | None:
        kind = self._field.type
        if (values.null_count and not self._field.nullable) or pa.types.is_nested(kind) or pa.types.is_binary(kind):
            return None
        try:
            texts = values.cast(pa.string())
            return _plainly(texts, kind)
        except pa.ArrowInvalid:
            return None

    def _one_by_one(self, values: pa.Array, begin: int, misfits: Misfits) -> pa.Array:
        made = []
        for place, value in enumerate(values.to_pylist(), start=begin):
            try:
                made.append(self._texts.value(None if value is None else value.decode()))
            except UnicodeDecodeError as error:
                misfits[place] = f"not UTF-8 at byte {error.start:,}"
                made.append(None)
            except Misfit as misfit:
                misfits[place] = str(misfit)
                made.append(None)
        return self._texts.array(made)


def _plainly(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """All of them, or None. Raises ArrowInvalid."""
    t = pa.types
    if t.is_string(kind):
        return texts
    if t.is_boolean(kind):
        lowered = pc.ascii_lower(texts)
        true = pc.equal(lowered, "true")
        known = pc.or_(true, pc.equal(lowered, "false"))
        return true if pc.all(known, min_count=0).as_py() else None
    if t.is_integer(kind) and pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py():
        return None  # Arrow reads 0x10 as 16
    if t.is_floating(kind):
        # 1e400 would become an infinity; those that are meant are spelled out.
        made = texts.cast(pa.float64()).cast(kind, safe=False)
        return None if pc.any(pc.invert(pc.is_finite(made))).as_py() else made
    return texts.cast(kind)
