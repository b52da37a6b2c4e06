"""A batch of the source in the exact types of the table. Runs in tasks. What does not fit is an error (G8)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import ValueNotKept


def conform(batch: pa.RecordBatch, target: pa.Schema, stream: str) -> pa.RecordBatch:
    """The same rows in the table's columns; columns that the source does not have are NULL."""
    columns = [_column(batch, field, stream) for field in target]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _column(batch: pa.RecordBatch, field: pa.Field, stream: str) -> pa.Array:
    place = batch.schema.get_field_index(field.name)
    if place < 0:
        return pa.nulls(batch.num_rows, field.type)
    values = batch.column(place)
    if not field.nullable and values.null_count:
        raise ValueNotKept(
            f"{stream}: column {field.name!r} has {values.null_count} NULL values, and the table requires a value",
            hint="the source says that the column is never NULL; correct that, or allow NULL in the table",
        )
    if values.type == field.type:
        return values
    try:
        return exact_cast(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueNotKept(
            f"{stream}: column {field.name!r} holds a value that {field.type} cannot keep exactly ({_first_line(error)})",
            hint="cast the column in a query or transform, or read it as text (as_text:)",
        ) from error


def exact_cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast without loss. Raises ArrowInvalid where a value would change."""
    if isinstance(values.type, pa.BaseExtensionType) and values.type != kind:
        values = values.storage
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, values.cast(kind.storage_type))
    return pc.cast(values, kind, safe=True)


def _first_line(error: Exception) -> str:
    # G11: Arrow quotes the value itself; the kind of failure is enough and shows no row's content.
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text.split(":")[0]
