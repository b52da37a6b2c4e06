"""The lake as the engine sees it (`model/protocols/lake.py`), on one Iceberg sink's tables; removal of rows by key."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.model.errors import InputError, PublishConflict, UnknownName
from headwater.model.landing import Landing
from headwater.model.protocols.lake import FileStats, LakeTableInfo, LandedWindow, Range
from headwater.model.protocols.sink import Attempt
from headwater.model.rows import Rows
from headwater.sinks.iceberg.catalog.catalog import KEY_PROPERTY, OWNER_PROPERTY, find_table
from headwater.sinks.iceberg.catalog.jvm import HeadMoved, reaching
from headwater.sinks.iceberg.catalog.publish import (
    REBUILT,
    Ancestry,
    Stamp,
    StampedSnapshot,
    check_epoch,
    find_landing,
    prepare_branch,
)
from headwater.sinks.iceberg.catalog.table import LakeTable, TableName, branch_prefix, quote
from headwater.sinks.iceberg.cdc.batch import spark_values
from headwater.sinks.iceberg.cdc.change_files import CURRENT, DELETED
from headwater.sinks.iceberg.landing_files import stale_branches
from headwater.sinks.iceberg.merge.spark_merge import merge_session, run_merge
from headwater.sinks.iceberg.schema import TableSchema, arrow_type, iceberg_type, plan_evolution
from headwater.sinks.iceberg.snapshot_reader import PinnedTable, TableColumns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.sinks.iceberg.sink import IcebergSink


_MAX_TRIES = 5
_WHY = "rows that the source does not have"


def remove_keys(sink: IcebergSink, attempt: Attempt, stream: str, keys: pa.Table) -> Landing:
    """Publish the table without these keys: recognised, fenced and one snapshot, like any landing."""
    began, spark = time.monotonic(), attempt.spark()
    name, ancestry = sink.table_of(stream), Ancestry()
    with reaching(name):
        table = find_table(spark, name)
    if table is None:
        raise UnknownName(f"{name} does not exist", hint="run the pipeline: it creates the table")
    for _ in range(_MAX_TRIES):
        with reaching(name):
            table.refresh()
            landings = ancestry.follow(table)
        landing = find_landing(landings, attempt, sink.id, stream)
        if landing:
            return landing.landing(time.monotonic() - began)
        check_epoch(landings, attempt, name)
        try:
            return _publish(sink, attempt, stream, table, keys).landing(time.monotonic() - began)
        except HeadMoved:
            continue
    raise PublishConflict(
        f"{name}: other writers published {_MAX_TRIES} times during this landing",
        hint="try again; run compaction and other writers less often, or one after another",
    )


def _publish(sink: IcebergSink, attempt: Attempt, stream: str, table: LakeTable, keys: pa.Table) -> StampedSnapshot:
    prefix = branch_prefix(attempt.pipeline, sink.id, stream)
    with reaching(table.name):
        base, stale = table.head, stale_branches(table, prefix)
    branch = f"{prefix}{uuid.uuid4().hex[:12]}"
    stamp = Stamp.of(attempt, sink.id, stream, rows=0, files=0, upsert="merge", why=_WHY)
    values = pa.table(
        [spark_values(keys.schema.field(n).type, keys.column(n)) for n in keys.column_names], keys.column_names
    )
    statement = partial(delete_statement, key=keys.column_names)
    run_merge(merge_session(attempt.spark()), table, statement, stamp=stamp, branch=branch, tables=[values])
    with reaching(table.name):
        table.refresh()
        stamp = Stamp.read(table.summary_of(branch)) or stamp  # Spark has counted the rows that it removed
    return StampedSnapshot(prepare_branch(table, base, branch, drop=stale).publish(attempt), stamp)


def delete_statement(target: str, keys: str, *, key: Sequence[str]) -> str:
    """Remove rows whose key is in the view `keys`."""
    on = " AND ".join(f"t.{quote(column)} = s.{quote(column)}" for column in key)
    return f"MERGE INTO {target} AS t\nUSING {quote(keys)} AS s\nON {on}\nWHEN MATCHED THEN DELETE"


class IcebergLake:
    """The tables of one sink in one session."""

    def __init__(self, sink: IcebergSink, spark: SparkSession) -> None:
        self._sink, self._spark = sink, spark

    def table(self, stream: str) -> LakeTableInfo | None:
        table = self._find(self._sink.table_of(stream))
        return _info(table) if table else None

    def history(self, pipeline: str, stream: str) -> IcebergHistory | None:
        table = self._find(self._sink.table_of(stream))
        return IcebergHistory(self._sink, table, (pipeline, self._sink.id, stream)) if table else None

    def remove_keys(self, attempt: Attempt, stream: str, keys: pa.Table) -> Landing:
        return remove_keys(self._sink, attempt, stream, keys)

    @contextmanager
    def rebuild(self, stream: str, branch: str) -> Iterator[IcebergRebuild]:
        name = self._sink.table_of(stream)
        table = self._find(name)
        if table is None or table.head is None:
            raise InputError(f"{name} does not exist", hint="run the pipeline: it creates the table")
        rebuild = IcebergRebuild(self._spark, self._sink, table, branch)
        try:
            rebuild.begin()
            yield rebuild
        finally:
            rebuild.drop()

    def tables_of(self, pipeline: str) -> Sequence[LakeTableInfo]:
        template = self._sink.settings.table
        pattern = re.compile(r"\w+".join(re.escape(text) for text in re.split(r"\{\w+\}", template)))
        tables = (self._find(name) for name in self._candidates(template) if pattern.fullmatch(str(name)))
        owner = [pipeline, self._sink.id]
        return [_info(table) for table in tables if table and _property(table, OWNER_PROPERTY)[:2] == owner]

    def _candidates(self, template: str) -> Iterator[TableName]:
        catalog, *namespace = template.split(".")[:-1]
        for levels in self._namespaces(catalog, namespace):
            quoted = ".".join(quote(level) for level in (catalog, *levels))
            for row in self._spark.sql(f"SHOW TABLES IN {quoted}").collect():
                yield TableName(catalog, tuple(levels), row.tableName)

    def _namespaces(self, catalog: str, namespace: Sequence[str]) -> Iterator[Sequence[str]]:
        if not any("{" in level for level in namespace):
            if self._spark.catalog.databaseExists(".".join((catalog, *namespace))):
                yield namespace
            return
        for row in self._spark.sql(f"SHOW NAMESPACES IN {quote(catalog)}").collect():
            yield row.namespace.split(".")

    def _find(self, name: TableName) -> LakeTable | None:
        with reaching(name):
            return find_table(self._spark, name)


class IcebergHistory:
    """A table at its head, and the landings of one owner up to there, newest first."""

    def __init__(self, sink: IcebergSink, table: LakeTable, owner: tuple[str, str, str]) -> None:
        self._sink, self._table = sink, table
        with reaching(table.name):
            self._head, landings = table.head, Ancestry().follow(table)
        self._landings = [
            LandedWindow(landing.snapshot, landing.stamp.stream, landing.stamp.window, landing.stamp.end)
            for landing in landings
            if landing.stamp.owner == owner
        ]

    def before(self, later: Callable[[LandedWindow], bool]) -> IcebergSnapshot:
        snapshot = self._head
        earliest = next(filter(later, reversed(self._landings)), None)
        if earliest is not None:
            with reaching(self._table.name):
                parent = self._table.metadata.snapshot(earliest.snapshot).parentId()
            snapshot = None if parent is None else int(parent)
        return IcebergSnapshot(self._sink, self._table, snapshot)


class IcebergSnapshot:
    """A table at one snapshot; None: before the first."""

    def __init__(self, sink: IcebergSink, table: LakeTable, snapshot: int | None) -> None:
        self._settings, self._table, self.snapshot = sink.settings, table, snapshot
        self._pinned_tables: dict[str, PinnedTable] = {}  # by the column whose bounds they read

    @property
    def name(self) -> str:
        return str(self._table.name)

    def files(self, column: str = "") -> Sequence[FileStats]:
        return [FileStats(file.rows, file.bounds) for file in self._pinned(column).files]

    def schema_for(self, source: Rows) -> pa.Schema:
        names = source.changes.table_columns if source.changes else source.schema.names
        fields = [source.schema.field(name) for name in names]
        evolution = plan_evolution(self._schema, pa.schema(fields))
        evolution.check(self.name)
        types = {column.name: column.type for column in self._schema.columns} | dict(evolution.widen)
        return pa.schema(
            [pa.field(f.name, arrow_type(types.get(f.name) or iceberg_type(f.type, count(1)))) for f in fields]
        )

    def rows(self, source: Rows, schema: pa.Schema, within: Sequence[Range] | None = None, column: str = "") -> Rows:
        visible = None
        if source.changes:
            if self._settings.mode == "history":
                visible = (CURRENT, True)
            elif self._settings.deletes == "mark":
                visible = (DELETED, False)
        columns = TableColumns.of(self._table, schema, visible)
        return self._pinned(column).rows(source.stream, columns, within)

    def _pinned(self, column: str) -> PinnedTable:
        if column not in self._pinned_tables:
            self._pinned_tables[column] = PinnedTable(self._table, self.snapshot, column)
        return self._pinned_tables[column]

    @cached_property
    def _schema(self) -> TableSchema:
        return self._table.schema


class IcebergRebuild:
    """An empty branch of a table, that becomes its content."""

    def __init__(self, spark: SparkSession, sink: IcebergSink, table: LakeTable, branch: str) -> None:
        self._spark, self._name, self._branch, self._base = spark, table.name, branch, table.head
        self._table, self.table, self.sink = table, _info(table), sink.on_branch(branch)

    def begin(self) -> None:
        """Create the branch, without rows."""
        table, branch = self._table, self._branch
        with reaching(self._name):
            table.java.manageSnapshots().createBranch(branch, self._base).commit()
            all_rows = table.jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
            update = table.java.newDelete().deleteFromRowFilter(all_rows).toBranch(branch)
            update.set(REBUILT, branch)
            update.commit()

    def publish(self, attempt: Attempt) -> None:
        with reaching(self._name):
            table = find_table(self._spark, self._name)
        assert table is not None  # noqa: S101 - the branch was built on it
        prepare_branch(table, self._base, self._branch).publish(attempt)

    def drop(self) -> None:
        """Remove the branch, if there is one."""
        with reaching(self._name):
            table = find_table(self._spark, self._name)
            if table is not None and table.metadata.ref(self._branch) is not None:
                table.java.manageSnapshots().removeBranch(self._branch).commit()


def _info(table: LakeTable) -> LakeTableInfo:
    columns = tuple(column.name for column in table.schema.columns)
    return LakeTableInfo(str(table.name), table.name.quoted, columns, tuple(_property(table, KEY_PROPERTY)))


def _property(table: LakeTable, name: str) -> list[str]:
    text = table.java.properties().get(name)
    return list(json.loads(text)) if text else []
