"""The Iceberg sink: one snapshot per stream and window.

A window that is already in the table's history is recognised and not landed again (G2). A process that lost
its lease cannot publish (G4). A failed landing leaves the table, and its folder, unchanged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.config.sinks.iceberg import IcebergSinkSettings
from headwater.model.landing import Landing
from headwater.model.position.marks import LsnMark, StreamsMark
from headwater.model.protocols.sink import Attempt
from headwater.model.rows import Rows
from headwater.sinks.iceberg.catalog.catalog import OWNER_PROPERTY, create_table, find_table, has_ref, tag_head
from headwater.sinks.iceberg.catalog.jvm import reaching
from headwater.sinks.iceberg.catalog.publish import Stamp, StampedSnapshot, check_epoch, find_landing
from headwater.sinks.iceberg.catalog.table import MAIN, TableName, check_distinct, shared_table, table_for
from headwater.sinks.iceberg.lake import IcebergLake
from headwater.sinks.iceberg.landing import CachedTable, TableLanding
from headwater.sinks.iceberg.merge.copy_on_write import table_stats
from headwater.sinks.iceberg.merge.strategy import DEFAULT_TUNING, BatchStats, Tuning, UpsertPlan, choose_upsert
from headwater.sinks.iceberg.modes import PreparedRows, check_key, choose_mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class IcebergSink:
    """Lands the streams of one pipeline, each in its own table."""

    def __init__(
        self, settings: IcebergSinkSettings, sink_id: str, branch: str = MAIN, tuning: Tuning = DEFAULT_TUNING
    ) -> None:
        self._settings, self._id, self._branch, self._tuning = settings, sink_id, branch, tuning
        self._mode = choose_mode(settings)
        self._tables: dict[TableName, CachedTable] = {}

    @property
    def id(self) -> str:
        return self._id

    @property
    def settings(self) -> IcebergSinkSettings:
        return self._settings

    @property
    def mode(self) -> str:
        return self._settings.mode

    def table_of(self, stream: str) -> TableName:
        """The table of a stream."""
        return table_for(self._settings.table, stream)

    def table_name(self, stream: str) -> str:
        return str(self.table_of(stream))

    def key_of(self, rows: Rows) -> tuple[str, ...]:
        """The columns that identify a row; empty where rows are appended and lack one of them."""
        key = tuple(self._settings.key or rows.key)
        if self.mode == "append":
            return key if set(key) <= set(rows.schema.names) else ()
        check_key(key, rows.schema, f"{rows.stream} → {self.table_of(rows.stream)}")
        return key

    def for_repair(self) -> IcebergSink:
        """The same sink without `upsert: append`: that promises new keys of a window's rows, not of a repair's."""
        return IcebergSink(self._settings.model_copy(update={"upsert": "auto"}), self._id)

    def lake(self, spark: SparkSession) -> IcebergLake:
        """The sink's tables, for reading."""
        return IcebergLake(self, spark)

    def explain_merge(self, spark: SparkSession, stream: str, rows: int | None) -> UpsertPlan | None:
        """How so many rows would be merged into a stream's table; None: this mode has no choice.

        The keys are unknown until the rows are read: here every file may hold one.
        """
        if not self._mode.has_strategies:
            return None
        name = self.table_of(stream)
        with reaching(name):
            table = find_table(spark, name)
            if table is None:
                return UpsertPlan("append", "the table does not exist yet")
            stats = table_stats(table.format_version, table.rows, table.plan_files({}) if table.rows else ())
        return choose_upsert(BatchStats(rows or 0), stats, self._settings.upsert, self._tuning)

    def on_branch(self, branch: str) -> IcebergSink:
        """The same sink, landing on a branch of its tables."""
        return IcebergSink(self._settings, self._id, branch, self._tuning)

    @property
    def streams_at_once(self) -> int:
        """Tables are independent, and a small landing mostly waits: for the catalog, for Spark to start."""
        return 4

    def landed(self, attempt: Attempt, stream: str) -> Landing | None:
        """The landing of this window, from the table's own history."""
        name = self._name(attempt, stream)
        with reaching(name):
            cached = self._find(attempt.spark(), name)
            landing = find_landing(cached.landings(), attempt, self._id, stream) if cached else None
        return landing.landing(0.0) if landing else None

    def land(self, attempt: Attempt, rows: Rows) -> Landing:
        """Publish the rows as one snapshot, or find that an earlier try did."""
        began = time.monotonic()
        name = self._name(attempt, rows.stream)
        prepared = self._mode.prepare(rows, f"{rows.stream} → {name}")
        with reaching(name):
            cached = self._find(attempt.spark(), name)
            if cached is None and not prepared.defines_columns:
                return self._without_table(attempt, rows.stream)
            cached = cached or self._create(name, attempt, prepared)
            self._check_owner(cached, attempt, rows.stream)
        landing = TableLanding(self._mode, self._id, attempt, prepared=prepared, cached=cached, tuning=self._tuning)
        return landing.run().landing(time.monotonic() - began)

    def tag(self, attempt: Attempt, streams: Sequence[str], labels: Sequence[str]) -> None:
        """Iceberg tags on the heads of the streams' tables."""
        for stream in streams:
            name = self._name(attempt, stream)
            with reaching(name):
                cached = self._find(attempt.spark(), name)
                landings = cached.landings() if cached else ()
            if cached:
                check_epoch(landings, attempt, name)
                tag_head(cached.table, attempt, labels)

    def tagged(self, spark: SparkSession, streams: Sequence[str], label: str) -> Sequence[str]:
        """The tables that have a tag or a branch of that name."""
        tables = []
        for name in map(self.table_of, streams):
            with reaching(name):
                cached = self._find(spark, name)
                tables += [str(name)] if cached and has_ref(cached.table, label) else []
        return tables

    def _without_table(self, attempt: Attempt, stream: str) -> Landing:
        """Objects that are gone and never landed need no table."""
        with attempt.publishing():
            stamp = Stamp.of(attempt, self._id, stream, rows=0, files=0, upsert="append", why="no table", removed=0)
        return StampedSnapshot(0, stamp).landing(0.0)

    def close(self) -> None:
        """Forget the cached tables; they hold no connections."""
        self._tables.clear()

    def _name(self, attempt: Attempt, stream: str) -> TableName:
        end = attempt.window.end
        others = end.marks if isinstance(end, StreamsMark) else end.streams if isinstance(end, LsnMark) else ()
        check_distinct(self._settings.table, [stream, *others])
        return table_for(self._settings.table, stream)

    def _find(self, spark: SparkSession, name: TableName) -> CachedTable | None:
        cached = self._tables.get(name)
        if cached is None or cached.spark is not spark or not cached.refresh():
            self._tables.pop(name, None)
            table = find_table(spark, name, self._branch)
            if table is None:
                return None
            self._tables[name] = CachedTable(spark, table)
        return self._tables[name]

    def _create(self, name: TableName, attempt: Attempt, prepared: PreparedRows) -> CachedTable:
        spark = attempt.spark()
        table = create_table(
            spark,
            name,
            prepared.columns,
            key=prepared.key,
            object_column=prepared.object_column,
            partition_by=prepared.partition_by,
            properties=self._settings.properties,
            owner=(attempt.pipeline, self._id, prepared.rows.stream),
        )
        self._tables[name] = CachedTable(spark, table)
        return self._tables[name]

    def _check_owner(self, cached: CachedTable, attempt: Attempt, stream: str) -> None:
        """G12: two streams of one sink never land in one table, not even in different cycles."""
        recorded = cached.table.java.properties().get(OWNER_PROPERTY)
        owners = [tuple(json.loads(recorded))] if recorded else []
        owners += [landing.stamp.owner for landing in cached.landings()]
        for pipeline, sink, other in owners:
            if (pipeline, sink) == (attempt.pipeline, self._id) and other != stream:
                raise shared_table(cached.table.name, other, stream)
