"""Batches of files that declare their own columns, in the columns of the stream: exactly, row by row or not at all (G8)."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from headwater.sources.objects.failures import BadRow, ObjectFailed
from headwater.sources.objects.formats.decoded import Decoded, Part
from headwater.sources.objects.own_columns import OwnColumns, fits, misfit


class Conforming:
    """For one schema of the stream."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def check(self, own: OwnColumns) -> None:
        """Raise ObjectFailed where an object's columns are not the stream's.

        All objects of a window were looked at when its columns were found: a column that is missing had no place.
        """
        for name, held in own.items():
            if name not in self._schema.names:
                raise ObjectFailed(f"column {name} has no place among {', '.join(self._schema.names)}")
            column = self._schema.field(name).type
            if not fits(held, column):
                raise ObjectFailed(misfit(name, held, column))

    def rows(self, batch: pa.RecordBatch, numbers: np.ndarray) -> Decoded:
        """Of one object, in which the rows have these numbers."""
        columns, reasons = [], dict[int, str]()
        for field in self._schema:
            place = batch.schema.get_field_index(field.name)
            if place < 0 or pa.types.is_null(batch.column(place).type):
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            misfits: dict[int, str] = {}
            parts = _exactly(batch.column(place), field.type, 0, misfits)
            columns.append(parts[0] if len(parts) == 1 else pa.concat_arrays(parts))
            reasons = {**{n: f"{field.name}: {why}" for n, why in misfits.items()}, **reasons}
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if not reasons:
            return Decoded([Part.of_one(rows, numbers)])
        kept = np.ones(batch.num_rows, bool)
        kept[list(reasons)] = False
        bad = [BadRow(0, int(numbers[n]), reasons[n], _shown(batch, n)) for n in sorted(reasons)]
        return Decoded([Part.of_one(rows.filter(pa.array(kept)), numbers[kept])], bad)


def _exactly(values: pa.Array, kind: pa.DataType, begin: int, misfits: dict[int, str]) -> list[pa.Array]:
    """Cast at once, or by halves down to the values that cannot be kept."""
    try:
        return [_cast(values, kind)]
    except pa.ArrowNotImplementedError as error:
        raise ObjectFailed(f"{values.type} cannot be read as {kind}: {error}") from None
    except pa.ArrowInvalid as error:
        if len(values) == 1:
            misfits[begin] = str(error).splitlines()[0]
            return [pa.nulls(1, kind)]
    half = len(values) // 2
    return _exactly(values[:half], kind, begin, misfits) + _exactly(values[half:], kind, begin + half, misfits)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(values.type, pa.UuidType):
        return pa.array([None if one is None else str(one) for one in values.to_pylist()], kind)
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    return values.cast(kind)


def _shown(batch: pa.RecordBatch, row: int) -> bytes:
    """For people; a replay reads the object again."""
    values = {name: _text(batch.column(place)[row]) for place, name in enumerate(batch.schema.names)}
    return json.dumps(values, ensure_ascii=False).encode()


def _text(value: pa.Scalar) -> str:
    try:
        return str(value)
    except (ValueError, OverflowError):  # moments beyond Python's own
        return f"{value.type} {value.value}"
