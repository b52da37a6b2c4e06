"""Batches → JSON objects, a column at a time in Arrow's C++: a Python value per cell would take ten times as long.

Exact (G8): every number is written with all its digits, and reads back as the same float or integer. Decimals are
text, because nearly every reader makes a double of a number with a fraction; integers are numbers, which only
JavaScript cuts (above 2⁵³). Instants end in Z, timestamps without a zone have none; bytes are base64.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import ValueNotKept
from headwater.sinks.plain_values import flat_column, is_nested, plain_column, refuse_not_finite

_MUST_ESCAPE = r'[\x00-\x1f"\\]'
_CONTROL = r"[\x00-\x1f]"
_WHOLE = r"^-?[0-9]+$"


def json_objects(batch: pa.RecordBatch) -> pa.Array:
    """One object per row, as an array of UTF-8 bytes; every column in each."""
    if not batch.num_columns:
        return pa.array([b"{}"] * batch.num_rows, pa.binary())
    pieces: list[pa.Array | pa.Scalar] = []
    literal = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        literal += json.dumps(name, ensure_ascii=False) + ":"
        text, quote = _column(column, name)
        pieces += [pa.scalar(literal + quote), text]
        literal = quote + ","
    pieces.append(pa.scalar(literal[:-1] + "}"))
    return pc.binary_join_element_wise(*pieces, pa.scalar("")).cast(pa.binary())


def json_texts(column: pa.Array, name: str) -> pa.Array:
    """Each value as people write it: texts without quotes, the rest as JSON; NULL stays NULL."""
    if is_nested(column.type):
        return _nested(column, name)
    flat = flat_column(column)
    return flat.cast(pa.string()) if _is_text(flat.type) else _bare(flat, name)


def _column(column: pa.Array, name: str) -> tuple[pa.Array, str]:
    """JSON without NULL, and the quotes that belong around each value."""
    if is_nested(column.type):
        return pc.fill_null(_nested(column, name), "null"), ""
    flat = flat_column(column)
    if not _is_text(flat.type):
        return pc.fill_null(_bare(flat, name), "null"), ""
    text = _escaped(flat.cast(pa.string()))
    if not text.null_count:
        return text, '"'
    quote = pa.scalar('"')
    return pc.fill_null(pc.binary_join_element_wise(quote, text, quote, pa.scalar("")), "null"), ""


def _bare(flat: pa.Array, name: str) -> pa.Array:
    """Numbers and booleans."""
    if not pa.types.is_floating(flat.type):
        return flat.cast(pa.string())
    if pc.any(pc.invert(pc.is_finite(flat))).as_py():
        raise ValueNotKept(
            f"column {name} holds NaN or infinity, for which JSON has no number",
            hint="add the column to the source's as_text:, or use format: avro",
        )
    # The shortest text that reads back as the same number.
    text = (flat.cast(pa.float32()) if pa.types.is_float16(flat.type) else flat).cast(pa.string())
    whole = pc.match_substring_regex(text, _WHOLE)
    # 1.0 would be "1", which readers that guess types take for an integer, and -0.0 would lose its sign.
    return pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text) if pc.any(whole).as_py() else text


def _escaped(text: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(text, _MUST_ESCAPE)).as_py():
        return text
    control = pc.fill_null(pc.match_substring_regex(text, _CONTROL), False)  # noqa: FBT003 - Arrow's signature
    escaped = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
    if not pc.any(control).as_py():
        return escaped
    rare = [json.dumps(value, ensure_ascii=False)[1:-1] for value in text.filter(control).to_pylist()]
    return pc.replace_with_mask(escaped, control, pa.array(rare, pa.string()))


def _nested(column: pa.Array, name: str) -> pa.Array:
    values = plain_column(column, name)
    refuse_not_finite(values, name)
    return pa.array(
        [None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values],
        pa.string(),
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
