"""Rejects as rows of an Iceberg table, and back."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.config.sinks import IcebergSink as IcebergSettings
from headwater.model.changes import OP, POSITION
from headwater.model.rejects import LABEL, Reject
from headwater.model.sink import Attempt
from headwater.sinks.iceberg.sink import IcebergSink
from headwater.sinks.setting_aside import row_of
from headwater.sources.split_rows import ArrowChangeRows, ArrowRows

# Besides these there is a column for each part of a reject's place: topic, partition, offset · object, line · row, copy.
_FIXED = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("reject", pa.string(), nullable=False),  # the whole of it, for a replay
        pa.field("run", pa.string()),
        pa.field("window", pa.string()),
        pa.field("set_aside_at", pa.timestamp("us", tz="UTC")),
    ]
)


def reject_sink(table: str) -> IcebergSink:
    """Keeps one row per reject."""
    return IcebergSink(IcebergSettings(table=table, mode="merge", key=["id"]), LABEL)


def reject_rows(stream: str, rejects: Sequence[Reject], attempt: Attempt) -> ArrowRows:
    """Rejects as rows of their table."""
    now = dt.datetime.now(dt.UTC)
    places = {name: value for reject in rejects for name, value in reject.place.items()}
    own = sorted((name, value) for name, value in places.items() if name not in _FIXED.names)
    schema = pa.schema([*_FIXED, *(_place_field(name, value) for name, value in own)])
    rows = [
        {
            "id": reject.id,
            "reason": reject.reason,
            "payload": reject.payload,
            "reject": json.dumps(reject.to_json()),
            "run": attempt.run,
            "window": attempt.window.id,
            "set_aside_at": now,
            **reject.place,
        }
        for reject in rejects
    ]
    table = pa.Table.from_pylist(rows, schema=schema)
    return ArrowRows(stream, schema, key=("id",), order=(), splits=(_TableSplit(table),))


def rows_of_sink_rejects(rejects: Sequence[Reject]) -> ArrowRows:
    """What a sink set aside, for that sink once more. All of one stream, with the same columns."""
    table = pa.concat_tables(row_of(reject) for reject in rejects)
    key, order = (tuple(rejects[0].more[name]) for name in ("key", "order"))
    if {OP, POSITION} <= set(table.schema.names):
        columns = tuple(table.schema.names[: table.schema.names.index(OP)])
        splits = (_TableSplit(table),)
        return ArrowChangeRows(rejects[0].stream, table.schema, key, order, splits, table_columns=columns)
    part_column = str(rejects[0].more.get("part_column", ""))
    return ArrowRows(rejects[0].stream, table.schema, key, order, (_TableSplit(table),), part_column)


def sink_schema(reject: Reject) -> str:
    """Rows can land together that have the same columns."""
    return str(row_of(reject).schema)


def _place_field(name: str, value: str | int) -> pa.Field:
    return pa.field(name, pa.int64() if isinstance(value, int) else pa.string())


@dataclass(frozen=True)
class _TableSplit:
    table: pa.Table = field(repr=False)

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def read(self) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches()
