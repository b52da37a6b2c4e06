"""Rows that a sink has no exact form for: set aside with what the sink said, while the others land (G8).

The other sinks of the pipeline still get them. Such a reject carries its row along, so that it can be tried again in
the same sink without asking the source, whose row may be another one by then.
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

from headwater.model.errors import ValueNotKept
from headwater.model.marks import Json
from headwater.model.rejects import COPY, SINK, Reject, SetPartAside
from headwater.model.rows import Rows
from headwater.sinks.plain_values import Plain, plain_column

if TYPE_CHECKING:
    from headwater.model.sink import Attempt

Take = Callable[[pa.RecordBatch], object]  # takes a batch whole, or raises ValueNotKept and has taken nothing of it


@dataclass(frozen=True)
class RowsAside:
    """Where the tasks of a landing put the rows that their sink cannot keep; sent to the workers."""

    sink: str
    stream: str
    key: tuple[str, ...]
    order: tuple[str, ...]
    set_aside: SetPartAside | None  # None: such a row stops the landing
    part_column: str = ""  # for a sink that replaces the rows of an object

    @classmethod
    def of(cls, sink: str, rows: Rows, attempt: Attempt, part_column: str = "") -> RowsAside:
        return cls(sink, rows.stream, rows.key, rows.order, attempt.set_aside, part_column)

    def part(self, number: int) -> PartAside:
        return PartAside(self, number)


class PartAside:
    """The same for one part of the rows."""

    def __init__(self, rows: RowsAside, number: int) -> None:
        self._rows, self._number = rows, number
        self._alike: Counter[str] = Counter()

    def keep(self, batch: pa.RecordBatch, take: Take) -> int:
        """Let the sink take what it can, and say how many rows that is. A batch is searched only where it was refused."""
        try:
            take(batch)
        except ValueNotKept as error:
            if self._rows.set_aside is None:
                raise
            if batch.num_rows == 1:
                self._rows.set_aside(self._number, self._reject(batch, error.message))
                return 0
        else:
            return int(batch.num_rows)
        half = batch.num_rows // 2
        return self.keep(batch.slice(0, half), take) + self.keep(batch.slice(half), take)

    def _reject(self, row: pa.RecordBatch, reason: str) -> Reject:
        rows, values = self._rows, _plain_row(row)
        name = {column: values[column] for column in rows.key or rows.order if column in values}
        payload = json.dumps(values, ensure_ascii=False).encode()
        place: dict[str, str | int] = {SINK: rows.sink, "row": json.dumps(name, ensure_ascii=False)}
        if not rows.key:
            self._alike[payload.decode()] += 1
            place[COPY] = self._alike[payload.decode()]
        more: dict[str, Json] = {"arrow": _to_text(row), "key": list(rows.key), "order": list(rows.order)}
        more |= {"part_column": rows.part_column} if rows.part_column else {}
        return Reject(rows.stream, place, reason, payload, more)


def row_of(reject: Reject) -> pa.Table:
    """The row that a sink once set aside."""
    return pa.ipc.open_stream(base64.b64decode(reject.more["arrow"])).read_all()


def _to_text(row: pa.RecordBatch) -> str:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, row.schema) as writer:
        writer.write_batch(row)
    return base64.b64encode(stream.getvalue().to_pybytes()).decode()


def _plain_row(row: pa.RecordBatch) -> dict[str, Plain]:
    """For people and tools: what JSON has no form for, as text."""
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
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return value
