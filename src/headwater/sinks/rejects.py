"""Exact casts to the types of a table, and the rejects of rows that a sink cannot store exactly (G8).

The other rows land, and the other sinks of the pipeline still get the rejected one. Such a reject contains its row,
so that a replay in the same sink does not read the source, whose row may have changed since.
"""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.bisect import bisect
from headwater.model.errors import ValueNotKept
from headwater.model.position.marks import Json
from headwater.model.rows import COPY, SINK, CollectsRejects, Reject, Rows
from headwater.sinks.text_values import Plain, plain_column

if TYPE_CHECKING:
    from headwater.model.protocols.sink import Attempt


def conform(batch: pa.RecordBatch, target: pa.Schema, stream: str) -> pa.RecordBatch:
    """The same rows in the table's columns; a column that the source does not have is NULL."""
    columns = [_column(batch, field, stream) for field in target]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _column(batch: pa.RecordBatch, field: pa.Field, stream: str) -> pa.Array:
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        return pa.nulls(batch.num_rows, field.type)
    values = batch.column(index)
    if not field.nullable and values.null_count:
        raise ValueNotKept(
            f"{stream}: column {field.name!r} has {values.null_count} NULL values, and the table requires a value",
            hint="the source declares the column NOT NULL; correct that, or allow NULL in the table",
        )
    if values.type == field.type:
        return values
    try:
        return exact_cast(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueNotKept(
            f"{stream}: column {field.name!r} contains a value that {field.type} cannot represent exactly ({_reason(error)})",
            hint="cast the column in a query or transform, or read it as text (as_text:)",
        ) from error


def exact_cast(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast without loss. Raises ArrowInvalid where a value would change."""
    if isinstance(values.type, pa.BaseExtensionType) and values.type != data_type:
        values = values.storage
    if isinstance(data_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(data_type, values.cast(data_type.storage_type))
    return pc.cast(values, data_type, safe=True)


def _reason(error: Exception) -> str:
    # G11: Arrow quotes the value after the colon; the text before it shows no row's content.
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text.split(":")[0]


Write = Callable[[pa.RecordBatch], object]  # writes a whole batch, or raises ValueNotKept and has written none of it


@dataclass(frozen=True)
class SinkRejects:
    """How the tasks of a landing reject rows; sent to the workers."""

    sink: str
    stream: str
    key: tuple[str, ...]
    order: tuple[str, ...]
    collector: CollectsRejects | None  # None: a reject stops the landing
    part_column: str = ""  # for a sink that replaces the rows of an object

    @classmethod
    def of(cls, sink: str, rows: Rows, attempt: Attempt, part_column: str = "") -> SinkRejects:
        return cls(sink, rows.stream, rows.key, rows.order, attempt.rejects, part_column)

    def part(self, number: int) -> PartRejects:
        return PartRejects(self, number)


class PartRejects:
    """The same for one part of the rows."""

    def __init__(self, rejects: SinkRejects, number: int) -> None:
        self._rejects, self._number = rejects, number
        self._copies: Counter[str] = Counter()

    def write(self, batch: pa.RecordBatch, write: Write) -> int:
        """Write all rows that the sink accepts, and return their number. Only a refused batch is split."""

        def written(part: pa.RecordBatch) -> int:
            write(part)
            return int(part.num_rows)

        collector = self._rejects.collector
        if collector is None:
            return written(batch)
        count = 0
        for part in bisect(batch, written, ValueNotKept):
            count += part.result or 0
            if isinstance(part.error, ValueNotKept):
                collector.add(self._number, self._reject(part.items, part.error.message))
        return count

    def _reject(self, row: pa.RecordBatch, reason: str) -> Reject:
        target, values = self._rejects, _plain_row(row)
        name = {column: values[column] for column in target.key or target.order if column in values}
        payload = json.dumps(values, ensure_ascii=False).encode()
        location: dict[str, str | int] = {SINK: target.sink, "row": json.dumps(name, ensure_ascii=False)}
        if not target.key:
            self._copies[payload.decode()] += 1
            location[COPY] = self._copies[payload.decode()]
        more: dict[str, Json] = {"arrow": _to_text(row), "key": list(target.key), "order": list(target.order)}
        more |= {"part_column": target.part_column} if target.part_column else {}
        return Reject(target.stream, location, reason, payload, more)


def row_of(reject: Reject) -> pa.Table:
    """The row that a sink rejected."""
    return pa.ipc.open_stream(base64.b64decode(reject.more["arrow"])).read_all()


def _to_text(row: pa.RecordBatch) -> str:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, row.schema) as writer:
        writer.write_batch(row)
    return base64.b64encode(stream.getvalue().to_pybytes()).decode()


def _plain_row(row: pa.RecordBatch) -> dict[str, Plain]:
    """For people and tools; values that JSON cannot represent as text."""
    values: dict[str, Plain] = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            values[name] = _finite(plain_column(column, name)[0])
        except ValueNotKept:
            values[name] = str(column[0])
    return values


def _finite(value: Plain) -> Plain:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value
