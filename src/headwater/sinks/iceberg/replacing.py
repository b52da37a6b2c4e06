"""Carries out `mode: replace_object`: an object that is read again, or is gone, takes its earlier rows with it.

Objects that are new are appended and nothing is looked for. For the others only the column that names the object is
searched, only in files that may hold one of them; what is found goes in the snapshot that adds the new rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.model.errors import InputError, SchemaRefused, UnknownName
from headwater.model.rows import ReplacingRows, Rows, SplitRows
from headwater.model.sink import Attempt
from headwater.sinks.iceberg.copying import Copying
from headwater.sinks.iceberg.delta import Delta
from headwater.sinks.iceberg.keyscan import KeyColumn, has_column
from headwater.sinks.iceberg.keyset import KeySet
from headwater.sinks.iceberg.landing_files import LandingFiles
from headwater.sinks.iceberg.merge_sql import replace_statement
from headwater.sinks.iceberg.removing import Removal, removal_of, stats_of
from headwater.sinks.iceberg.searching import Search, find_in_table
from headwater.sinks.iceberg.spark_merge import merge_on_branch
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.table import LakeTable, PlannedFile
from headwater.sinks.iceberg.upsert import BatchStats, Forced, UpsertPlan, after_the_search, choose_upsert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class ReplaceOrder:
    """Which objects lose the rows that they have in the table."""

    stream: str
    column: str  # that names a row's object
    earlier: tuple[str, ...]
    forced: Forced


def part_column(rows: Rows, place: str) -> str:
    """The column that names a row's object. Raises where there is none that rows can be found by (G12)."""
    column = rows.part_column if isinstance(rows, ReplacingRows) else ""
    if not column:
        raise InputError(
            f"{place}: mode replace_object needs the object that each row comes from, and these rows have none",
            hint="read objects with url among their metadata, or write mode: append, merge or replace",
        )
    if column not in rows.schema.names:
        raise UnknownName(
            f"{place}: the rows have no column {column!r}, which names the object of a row",
            hint=f"they have {', '.join(rows.schema.names)}",
        )
    kind = rows.schema.field(column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InputError(
            f"{place}: the column {column!r} names the object of a row and must be text, but is {kind}",
            hint="let the transform leave the column as it is",
        )
    return column


def brings_no_row(rows: Rows) -> bool:
    """Known without a look at them: all objects of the window are gone."""
    return isinstance(rows, SplitRows) and not rows.splits


def earlier_parts(rows: Rows, attempt: Attempt) -> tuple[str, ...]:
    """The objects whose earlier rows go. Those that could not be read this time keep theirs until they can be."""
    if not isinstance(rows, ReplacingRows):
        return ()
    unread = {rows.part_prefix + part for part in attempt.parts_aside()}
    return tuple(sorted(set(rows.earlier) - unread))


def check_column(table: LakeTable, column: str) -> None:
    """Refuse a table whose rows nobody can tell the objects of; the column would be added, and be NULL in them."""
    if table.rows and table.schema.column(column) is None:
        raise SchemaRefused(
            f"{table.name} has rows and no column {column!r}, which names the object of a row: "
            f"what an object brought before cannot be found in it",
            hint="land in a new table (table:) and rewind the pipeline to the start; or add the column to this table "
            "and fill it with the urls of the objects",
        )


class Replacing:
    """One window of objects on its way into one table; asked again when the table's head moved."""

    def __init__(self, spark: SparkSession, table: LakeTable, files: LandingFiles, order: ReplaceOrder) -> None:
        self.removed = 0
        self.way: UpsertPlan | None = None  # that was gone
        self._order = order
        self._delta = Delta(table, files, Copying(spark, table, files, keeps_unseen=False))
        self._spark, self._table, self._files = spark, table, files
        self._planned: Sequence[PlannedFile] = ()

    @property
    def more_files(self) -> tuple[str, ...]:
        return self._delta.more_files

    @property
    def rows(self) -> int:
        return self._files.rows

    def plan(self) -> UpsertPlan:
        """Choose the way, for the table as it is now."""
        if not self._order.earlier:
            return UpsertPlan("append", "all objects are new")
        table_rows, self._planned = self._table.rows, ()
        if table_rows:
            found = self._table.plan_files_with(self._column.name, *self._bounds)
            self._check_named(found)
            self._planned = self._search.where_they_may_be([file for file in found if self._may_hold(file)])
        stats = stats_of(self._table.format_version, table_rows, self._planned)
        return choose_upsert(BatchStats(len(self._order.earlier), named_by="objects"), stats, self._order.forced)

    def update(self, plan: UpsertPlan) -> Any | None:
        """The Iceberg update that carries out any plan but a `merge`; None: nothing changes."""
        removal = self._removal() if plan.kind != "append" else Removal()
        self.removed = removal.rows
        self.way = after_the_search(plan, removal.rows, removal.staying, self._order.forced)
        return self._delta.update(self.way.kind, self._planned, removal, {})

    def on_branch(self, session: SparkSession, stamp: Stamp, branch: str) -> None:
        """Carry out a `merge`."""
        bounds = {self._column.name: self._bounds}
        statement = partial(replace_statement, schema=self._table.schema, part=self._column.name, bounds=bounds)
        gone = pa.table({"part": self._values})
        rows = [self._files.locations]
        merge_on_branch(session, self._table, statement, stamp=stamp, branch=branch, rows=rows, more=[gone])

    @cached_property
    def _column(self) -> KeyColumn:
        column = self._table.schema.column(self._order.column)
        if column is None or column.type != "string":
            raise SchemaRefused(
                f"{self._table.name}: the column {self._order.column!r} names the object of a row and must be a string",
                hint="land in another table",
            )
        return KeyColumn(column.id, column.name, pa.string())

    @cached_property
    def _values(self) -> pa.Array:
        return pa.array(self._order.earlier, pa.string())

    @property
    def _bounds(self) -> tuple[str, str]:
        return self._order.earlier[0], self._order.earlier[-1]

    @cached_property
    def _keys(self) -> KeySet:
        return KeySet([self._values])

    def _may_hold(self, file: PlannedFile) -> bool:
        """One of the objects, not only something between the first and the last of them."""
        low, high = file.bounds.get(self._column.id, (None, None))
        return self._keys.may_be_between([_text(low)], [_text(high)])

    @cached_property
    def _search(self) -> Search:
        doing = f"{self._order.stream}: finding rows of objects in {self._table.name}"
        return Search((self._column,), self._keys, partial(KeySet, [self._values]), doing)

    def _removal(self) -> Removal:
        return removal_of(self._planned, find_in_table(self._spark, self._planned, self._search))

    def _check_named(self, planned: Sequence[PlannedFile]) -> None:
        """Refuse a table with rows that name no object: an object that is read again would leave them there."""
        with ThreadPoolExecutor(max_workers=8) as threads:
            unnamed = sum(threads.map(self._unnamed, planned))
        if unnamed:
            raise SchemaRefused(
                f"{self._table.name}: {self._column.name!r} is NULL in {unnamed} rows, so nobody can tell "
                f"whether objects that were read again brought them",
                hint="fill the column in these rows, or delete them, or land in a new table and rewind to the start",
            )

    def _unnamed(self, file: PlannedFile) -> int:
        """How many rows at least are alive and name no object."""
        if any(delete["content"] != "position-deletes" for delete in file.deletes):
            return 0  # how many rows such a delete file takes away shows only when it is read
        deleted = sum(int(delete["record-count"]) for delete in file.deletes)
        nulls = file.nulls.get(self._column.id)
        if nulls is None:  # nothing was noted about the column; mostly because it was not there yet
            known = file.format != "parquet" or file.rows <= deleted or has_column(file.location, self._column)
            nulls = 0 if known else file.rows
        return max(nulls - deleted, 0)


def _text(bound: bytes | None) -> str | None:
    return None if bound is None else bound.decode()
