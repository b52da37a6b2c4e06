"""The Iceberg sink: append, merge, replace or replace objects, one snapshot per stream and window.

A window that is already behind the table's head is recognised and not landed again (G2). A process that lost
its lease cannot publish (G4). A failed landing leaves the table, and its folder, as they were.
"""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.config.sinks import IcebergSink as IcebergSettings
from headwater.model.changes import ChangeRows, EventRows
from headwater.model.errors import InputError, UnknownName
from headwater.model.landing import Landing
from headwater.model.marks import LsnMark, StreamsMark
from headwater.model.rows import Rows
from headwater.model.sink import Attempt
from headwater.sinks.iceberg.ancestry import Stamped, already_landed, check_epoch
from headwater.sinks.iceberg.catalog import OWNER_PROPERTY, create_table, find_table
from headwater.sinks.iceberg.changes.shapes import Shape, ShapedChanges
from headwater.sinks.iceberg.java_errors import reaching
from headwater.sinks.iceberg.naming import TableName, check_apart, shared_table, table_for
from headwater.sinks.iceberg.one_landing import KnownTable, OneLanding
from headwater.sinks.iceberg.removing import stats_of
from headwater.sinks.iceberg.replacing import brings_no_row, part_column
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.table import MAIN
from headwater.sinks.iceberg.tagging import is_taken, tag_head
from headwater.sinks.iceberg.upsert import BatchStats, UpsertPlan, choose_upsert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class IcebergSink:
    """Lands the streams of one pipeline, each in a table of its own."""

    def __init__(self, settings: IcebergSettings, label: str, branch: str = MAIN) -> None:
        self._settings, self._label, self._branch = settings, label, branch
        self._tables: dict[TableName, KnownTable] = {}

    @property
    def label(self) -> str:
        return self._label

    @property
    def settings(self) -> IcebergSettings:
        return self._settings

    def table_of(self, stream: str) -> TableName:
        """Where a stream lands."""
        return table_for(self._settings.table, stream)

    def foresee(self, spark: SparkSession, stream: str, rows: int | None) -> UpsertPlan | None:
        """How so many rows would come into a stream's table; None: this mode leaves no choice.

        Which files hold their keys shows only when they have been read: here all of them may.
        """
        if self._settings.mode not in {"merge", "history", "changes"}:
            return None
        name = self.table_of(stream)
        with reaching(name):
            table = find_table(spark, name)
            if table is None:
                return UpsertPlan("append", "the table is not there yet")
            stats = stats_of(table.format_version, table.rows, table.plan_files({}) if table.rows else ())
        return choose_upsert(BatchStats(rows or 0), stats, self._settings.upsert)

    def on_branch(self, branch: str) -> IcebergSink:
        """The same sink, which lands on a branch of its tables."""
        return IcebergSink(self._settings, self._label, branch)

    @property
    def streams_at_once(self) -> int:
        """Tables are apart, and most of a small landing is waiting: for the catalog, for Spark to begin."""
        return 4

    def landed(self, attempt: Attempt, stream: str) -> Landing | None:
        """The landing of this window, from the table's own history."""
        name = self._name(attempt, stream)
        with reaching(name):
            known = self._find(attempt.spark(), name)
            stamped = already_landed(known.landings(), attempt, self._label, stream) if known else None
        return stamped.landing(0.0) if stamped else None

    def land(self, attempt: Attempt, rows: Rows) -> Landing:
        """Publish the rows as one snapshot, or find that this was done before."""
        began = time.monotonic()
        name = self._name(attempt, rows.stream)
        key = self._key(name, rows)
        rows = self._shaped(rows, key)
        part = part_column(rows, f"{rows.stream} → {name}") if self._settings.mode == "replace_object" else ""
        spark = attempt.spark()
        with reaching(name):
            known = self._find(spark, name)
            if known is None and part and brings_no_row(rows):
                return self._nothing(attempt, rows.stream)
            known = known or self._create(spark, name, attempt, rows, key=key, part=part)
            self._check_owner(known, attempt, rows.stream)
        done = OneLanding(self._settings, self._label, attempt, rows, key=key, part=part, known=known).run()
        return done.landing(time.monotonic() - began)

    def tag(self, attempt: Attempt, streams: Sequence[str], labels: Sequence[str]) -> None:
        """Iceberg tags on the heads of the streams' tables."""
        for stream in streams:
            name = self._name(attempt, stream)
            with reaching(name):
                known = self._find(attempt.spark(), name)
                landings = known.landings() if known else ()
            if known:
                check_epoch(landings, attempt, name)
                tag_head(known.table, attempt, labels)

    def tagged(self, spark: SparkSession, streams: Sequence[str], label: str) -> Sequence[str]:
        """The tables that have a tag or a branch of that name."""
        found = []
        for name in map(self.table_of, streams):
            with reaching(name):
                known = self._find(spark, name)
                found += [str(name)] if known and is_taken(known.table, label) else []
        return found

    def _nothing(self, attempt: Attempt, stream: str) -> Landing:
        """Objects are gone of which nothing ever landed: not even a table is needed for that."""
        attempt.faults.reach("land.written")
        attempt.clear_to_publish()
        stamp = Stamp.of(attempt, self._label, stream, rows=0, files=0, upsert="append", why="no table", removed=0)
        return Stamped(0, stamp).landing(0.0)

    def close(self) -> None:
        """Forget the tables; they hold no connection of their own."""
        self._tables.clear()

    def _name(self, attempt: Attempt, stream: str) -> TableName:
        end = attempt.window.end
        others = end.streams if isinstance(end, StreamsMark) else end.tables if isinstance(end, LsnMark) else ()
        check_apart(self._settings.table, [stream, *others])
        return table_for(self._settings.table, stream)

    def _key(self, name: TableName, rows: Rows) -> tuple[str, ...]:
        if self._settings.mode == "changes":
            return event_key(rows, f"{rows.stream} → {name}")
        key = tuple(self._settings.key or rows.key)
        if self._settings.mode in {"merge", "history"}:
            check_key(key, rows.schema, f"{rows.stream} → {name}")
        return tuple(column for column in key if column in rows.schema.names)

    def _shaped(self, rows: Rows, key: tuple[str, ...]) -> Rows:
        """Changes as rows of the table that this mode makes of them."""
        if not isinstance(rows, ChangeRows) or self._settings.mode not in {"merge", "history"}:
            return rows
        shape = Shape(self._settings.mode, marks_deletes=self._settings.deletes == "mark")
        return ShapedChanges(rows, shape.schema(rows, key), key, shape)

    def _find(self, spark: SparkSession, name: TableName) -> KnownTable | None:
        known = self._tables.get(name)
        if known is None or known.spark is not spark or not known.refreshed():
            self._tables.pop(name, None)
            table = find_table(spark, name, self._branch)
            if table is None:
                return None
            self._tables[name] = KnownTable(spark, table)
        return self._tables[name]

    def _create(
        self, spark: SparkSession, name: TableName, attempt: Attempt, rows: Rows, *, key: tuple[str, ...], part: str
    ) -> KnownTable:
        owner = (attempt.pipeline, self._label, rows.stream)
        settings = self._settings.model_copy(update={"partition_by": self._partition_by(rows)})
        table = create_table(spark, name, rows.schema, key=key, part=part, settings=settings, owner=owner)
        self._tables[name] = KnownTable(spark, table)
        return self._tables[name]

    def _partition_by(self, rows: Rows) -> list[str]:
        """A log of changes is kept by the day on which they came, unless the settings say otherwise."""
        arrival = rows.arrival if isinstance(rows, EventRows) else ""
        by_day = self._settings.mode == "changes" and arrival and not self._settings.partition_by
        return [f"day({arrival})"] if by_day else self._settings.partition_by

    def _check_owner(self, known: KnownTable, attempt: Attempt, stream: str) -> None:
        """G12: two streams of one sink never land in one table, not even in different cycles."""
        recorded = known.table.java.properties().get(OWNER_PROPERTY)
        owners = [tuple(json.loads(recorded))] if recorded else []
        owners += [(x.stamp.pipeline, x.stamp.sink, x.stamp.stream) for x in known.landings()]
        for pipeline, sink, other in owners:
            if (pipeline, sink) == (attempt.pipeline, self._label) and other != stream:
                raise shared_table(known.table.name, other, stream)


def event_key(rows: Rows, place: str) -> tuple[str, ...]:
    """The columns that name an event. Raises where the rows are no changes, or nothing names them (G12)."""
    if not isinstance(rows, ChangeRows):
        raise InputError(
            f"{place}: mode changes keeps events of change capture, and these rows are none",
            hint="read them with format: debezium, or write mode: append",
        )
    if not isinstance(rows, EventRows) or not rows.event_key:
        raise InputError(
            f"{place}: nothing names an event, so that one that comes again would be kept twice",
            hint="let the source keep partition and offset (metadata:)",
        )
    return rows.event_key


def check_key(key: Sequence[str], schema: pa.Schema, place: str) -> None:
    """Refuse a key that cannot name rows (G12)."""
    if not key:
        raise InputError(
            f"{place}: mode merge needs a key, and the source has no primary key",
            hint="name the columns that tell one row from another: key: [id]",
        )
    for column in key:
        if column not in schema.names:
            near = difflib.get_close_matches(column, schema.names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the rows have {', '.join(schema.names)}"
            raise UnknownName(f"{place}: the key names the column {column!r}, which the rows do not have", hint=hint)
        kind = schema.field(column).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            raise InputError(
                f"{place}: the key column {column!r} is {kind}, whose values cannot be compared exactly",
                hint="choose key columns of integers, decimals, texts, dates, times or UUIDs",
            )
