"""Batches → Avro records, each as the bare binary form of the agreed schema (no file header, no schema id)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from fastavro import parse_schema, schemaless_writer

from headwater.model.errors import ValueNotKept


@dataclass(frozen=True)
class AvroValues:
    """Writes rows in one schema; sent to the tasks."""

    schema: dict[str, Any]

    def __call__(self, batch: pa.RecordBatch) -> list[bytes]:
        parsed, buffer = parse_schema(self.schema), io.BytesIO()
        names = batch.schema.names
        columns = [_values(column) for column in batch.columns]
        made: list[bytes] = []
        for row in zip(*columns, strict=True):
            buffer.seek(0)
            buffer.truncate()
            try:
                schemaless_writer(buffer, parsed, dict(zip(names, row, strict=True)))
            except (ValueError, TypeError, OverflowError) as error:
                # The text of the error may hold the row (G11).
                raise ValueNotKept(
                    f"row {len(made)} of a batch has a value that its Avro type cannot hold ({type(error).__name__})",
                    hint="add the column to the source's as_text:, or use format: json",
                ) from None
            made.append(buffer.getvalue())
        return made


def _values(column: pa.Array) -> Sequence[Any]:
    """Python values as fastavro wants them: dates and times as the numbers that Avro keeps."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _values(column.dictionary_decode())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return list(column.cast(pa.int64()).to_pylist())
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return list(column.cast(pa.int32()).to_pylist())
    if pa.types.is_map(kind):
        return [None if pairs is None else dict(pairs) for pairs in column.to_pylist()]
    return list(column.to_pylist())
