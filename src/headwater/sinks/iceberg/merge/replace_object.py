"""`mode: replace_object`: an object that is read again, or is gone, takes its earlier rows with it.

New objects are appended without a lookup. For the others only the column that names the object is searched, only in
files that may hold one of them; the rows are removed in the snapshot that adds the new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.model.errors import InputError, SchemaRefused, TransformFailed
from headwater.model.protocols.sink import Attempt
from headwater.model.rows import Rows
from headwater.sinks.iceberg.catalog.publish import Stamp
from headwater.sinks.iceberg.catalog.table import LakeTable, PlannedFile
from headwater.sinks.iceberg.data_files import ArrowColumn, open_columns
from headwater.sinks.iceberg.merge.copy_on_write import Removal, plan_removal, table_stats
from headwater.sinks.iceberg.merge.key_lookup import KeySet, Search, find_in_table
from headwater.sinks.iceberg.merge.spark_merge import replace_statement, run_merge
from headwater.sinks.iceberg.merge.strategy import BatchStats, UpsertPlan, UpsertSetting, choose_upsert, reconsider
from headwater.sinks.iceberg.merge.table_update import MergesBySpark, TableUpdate, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class ReplaceRequest:
    """Which objects lose the rows that they have in the table."""

    stream: str
    column: str  # that names a row's object
    earlier: tuple[str, ...]
    upsert: UpsertSetting


def object_column(rows: Rows, subject: str) -> str:
    """The column that names a row's object. Raises if the rows have none (G12)."""
    column = rows.objects.part_column if rows.objects else ""
    if not column:
        raise InputError(
            f"{subject}: mode replace_object needs the object of each row, and the rows do not name one",
            hint="read objects with url in metadata:, or write mode: append, merge or replace",
        )
    if column not in rows.schema.names:
        raise TransformFailed(
            f"the transform of {rows.stream} leaves out or renames {column!r}, which names the object of a row; "
            f"a sink with mode: replace_object needs it",
            hint=f"select {column} too, unchanged; the transform returns {', '.join(rows.schema.names)}",
        )
    column_type = rows.schema.field(column).type
    if not (pa.types.is_string(column_type) or pa.types.is_large_string(column_type)):
        raise InputError(
            f"{subject}: the column {column!r} names the object of a row and must be text, but is {column_type}",
            hint="keep the column unchanged in the transform",
        )
    return column


def has_no_rows(rows: Rows) -> bool:
    """True if all objects of the window are gone; known without reading."""
    return rows.splits == ()


def earlier_objects(rows: Rows, attempt: Attempt) -> tuple[str, ...]:
    """The objects whose earlier rows are removed. An object that could not be read keeps them until it can."""
    objects = rows.objects
    if objects is None:
        return ()
    unread = attempt.rejects.unread_parts() if attempt.rejects else frozenset()
    return tuple(sorted(set(objects.earlier) - {objects.part_prefix + part for part in unread}))


def check_column(table: LakeTable, column: str) -> None:
    """Refuse a table whose rows do not name their objects: the column would be added, and be NULL in them."""
    if table.rows and table.schema.column(column) is None:
        raise SchemaRefused(
            f"{table.name} has rows and no column {column!r}, which names the object of a row: "
            f"the earlier rows of an object cannot be found",
            hint="land in a new table (table:) and rewind the pipeline to the start; or add the column to this table "
            "and fill it with the urls of the objects",
        )


class ObjectReplacement(TableUpdate, MergesBySpark):
    """Replaces the rows of objects."""

    def __init__(self, target: Target, request: ReplaceRequest) -> None:
        super().__init__(target)
        self.removed = 0
        self._request = request

    def plan(self) -> UpsertPlan:
        request = self._request
        if not request.earlier:
            return UpsertPlan("append", "all objects are new")
        table_rows, self._planned = self._table.rows, ()
        if table_rows:
            planned = self._table.plan_files_with(self._column.name, *self._bounds)
            self._check_named(planned)
            self._planned = self._search.in_buckets([file for file in planned if self._may_hold(file)])
        stats = table_stats(self._table.format_version, table_rows, self._planned)
        return choose_upsert(BatchStats(len(request.earlier), unit="objects"), stats, request.upsert, self._tuning)

    def update(self, plan: UpsertPlan) -> Any | None:
        removal = self._removal() if plan.strategy != "append" else Removal()
        self.removed = removal.rows
        self.applied = reconsider(plan, removal.rows, removal.remaining, self._request.upsert, self._tuning)
        return self._delta.update(self.applied.strategy, self._planned, removal, {})

    def merge_on_branch(self, session: SparkSession, stamp: Stamp, branch: str) -> None:
        bounds = {self._column.name: self._bounds}
        statement = partial(
            replace_statement, schema=self._table.schema, object_column=self._column.name, bounds=bounds
        )
        removed, files = pa.table({"object": self._values}), [self._files.locations]
        run_merge(session, self._table, statement, stamp=stamp, branch=branch, files=files, tables=[removed])

    @cached_property
    def _column(self) -> ArrowColumn:
        column = self._table.schema.column(self._request.column)
        if column is None or column.type != "string":
            raise SchemaRefused(
                f"{self._table.name}: the column {self._request.column!r} names the object of a row and must be a string",
                hint="land in another table",
            )
        return ArrowColumn(column.id, column.name, pa.string())

    @cached_property
    def _values(self) -> pa.Array:
        return pa.array(self._request.earlier, pa.string())

    @property
    def _bounds(self) -> tuple[str, str]:
        return self._request.earlier[0], self._request.earlier[-1]

    @cached_property
    def _keys(self) -> KeySet:
        return KeySet([self._values])

    def _may_hold(self, file: PlannedFile) -> bool:
        """True if its bounds contain one of the objects."""
        low, high = file.bounds.get(self._column.id, (None, None))
        return self._keys.may_be_between([_text(low)], [_text(high)])

    @cached_property
    def _search(self) -> Search:
        activity = f"{self._request.stream}: finding rows of objects in {self._table.name}"
        return Search((self._column,), self._keys, partial(KeySet, [self._values]), activity)

    def _removal(self) -> Removal:
        return plan_removal(self._planned, find_in_table(self._spark, self._planned, self._search, self._tuning))

    def _check_named(self, planned: Sequence[PlannedFile]) -> None:
        """Refuse a table with rows that name no object: an object that is read again would not replace them."""
        with ThreadPoolExecutor(max_workers=8) as threads:
            unnamed = sum(threads.map(self._unnamed, planned))
        if unnamed:
            raise SchemaRefused(
                f"{self._table.name}: {self._column.name!r} is NULL in {unnamed} rows: the objects that they came from "
                f"are unknown",
                hint="fill the column in these rows, or delete them, or land in a new table and rewind to the start",
            )

    def _unnamed(self, file: PlannedFile) -> int:
        """How many live rows at least name no object."""
        if any(delete["content"] != "position-deletes" for delete in file.deletes):
            return 0  # how many rows such a delete file removes is unknown until it is read
        deleted = sum(int(delete["record-count"]) for delete in file.deletes)
        nulls = file.nulls.get(self._column.id)
        if nulls is None:  # no statistics; mostly because the file is older than the column
            has_names = file.format != "parquet" or file.rows <= deleted or self._has_column(file)
            nulls = 0 if has_names else file.rows
        return max(nulls - deleted, 0)

    def _has_column(self, file: PlannedFile) -> bool:
        with open_columns(file.location, [self._column]) as reader:
            return reader.has_all


def _text(bound: bytes | None) -> str | None:
    return None if bound is None else bound.decode()
