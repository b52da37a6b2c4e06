"""Rejects as rows of a table, and back."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.model.protocols.lake import LakeSink
from headwater.model.protocols.sink import Attempt
from headwater.model.rows import OP, POSITION, Changes, MemorySplit, Objects, Reject, Rows
from headwater.sinks.rejects import row_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Besides these there is a column for each part of a reject's location: topic, partition, offset · object, line · row, copy.
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


def reject_rows(stream: str, rejects: Sequence[Reject], attempt: Attempt) -> Rows:
    """Rejects as rows of their table."""
    now = dt.datetime.now(dt.UTC)
    locations = {name: value for reject in rejects for name, value in reject.location.items()}
    own = sorted((name, value) for name, value in locations.items() if name not in _FIXED.names)
    schema = pa.schema([*_FIXED, *(_location_field(name, value) for name, value in own)])
    rows = [
        {
            "id": reject.id,
            "reason": reject.reason,
            "payload": reject.payload,
            "reject": json.dumps(reject.to_json()),
            "run": attempt.run,
            "window": attempt.window.id,
            "set_aside_at": now,
            **reject.location,
        }
        for reject in rejects
    ]
    table = pa.Table.from_pylist(rows, schema=schema)
    return Rows(stream, schema, key=("id",), splits=(MemorySplit.of(table),))


def rows_of_sink_rejects(rejects: Sequence[Reject]) -> Rows:
    """The rows that a sink rejected, for that sink once more. All of one stream, with the same columns."""
    table = pa.concat_tables(row_of(reject) for reject in rejects)
    key, order = (tuple(rejects[0].more[name]) for name in ("key", "order"))
    rows, names = Rows(rejects[0].stream, table.schema, key, order, (MemorySplit.of(table),)), table.schema.names
    if {OP, POSITION} <= set(names):
        return replace(rows, changes=Changes(tuple(names[: names.index(OP)])))
    part_column = str(rejects[0].more.get("part_column", ""))
    return replace(rows, objects=Objects(part_column)) if part_column else rows


def sink_schema(reject: Reject) -> str:
    """Rows can land together that have the same columns."""
    return str(row_of(reject).schema)


def _location_field(name: str, value: str | int) -> pa.Field:
    return pa.field(name, pa.int64() if isinstance(value, int) else pa.string())


_AT_ONCE = 1_000  # ids in one DELETE


@dataclass(frozen=True)
class StoredReject:
    """A reject and where it is kept."""

    reject: Reject
    table: str
    quoted_table: str  # in Spark SQL
    run: str
    set_aside_at: dt.datetime


def stored_rejects(spark: SparkSession, sink: LakeSink, pipeline: str) -> Sequence[StoredReject]:
    """All of a pipeline's rejects, oldest first."""
    stored = []
    for table in sink.lake(spark).tables_of(pipeline):
        columns = "reject, run, set_aside_at"
        rows = spark.sql(f"SELECT {columns} FROM {table.quoted}").toArrow()  # noqa: S608 - a quoted name
        for row in rows.to_pylist():
            reject = Reject.from_json(json.loads(row["reject"]))
            stored.append(StoredReject(reject, table.name, table.quoted, row["run"], row["set_aside_at"]))
    return sorted(
        stored, key=lambda one: (one.set_aside_at, one.reject.stream, sorted(map(str, one.reject.location.items())))
    )


def remove(spark: SparkSession, stored: Sequence[StoredReject]) -> None:
    """Remove rejects from their tables."""
    by_table: dict[str, list[str]] = {}
    for one in stored:
        by_table.setdefault(one.quoted_table, []).append(one.reject.id)
    for table, ids in by_table.items():
        for begin in range(0, len(ids), _AT_ONCE):
            texts = ", ".join(f"'{one}'" for one in ids[begin : begin + _AT_ONCE])  # hexadecimal digits only
            spark.sql(f"DELETE FROM {table} WHERE id IN ({texts})")  # noqa: S608
