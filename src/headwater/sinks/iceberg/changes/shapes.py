"""The columns of the tables that are made of changes, and how a batch of changes fills them. Runs in tasks, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.changes import OP, POSITION, SOURCE_TIME, ChangeRows
from headwater.model.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELETED = "_is_deleted"
"""Whether the source has deleted the row, where rows stay (`deletes: mark`)."""
VALID_FROM, VALID_TO = "valid_from", "valid_to"
FROM_POSITION, TO_POSITION = "valid_from_position", "valid_to_position"
CURRENT = "is_current"
"""NULL in rows that nobody sees: they keep the position of a delete."""


@dataclass(frozen=True)
class Shape:
    """One kind of table."""

    mode: str  # merge or history
    marks_deletes: bool = False  # a deleted row stays, marked

    @property
    def position(self) -> str:
        """The column by which versions of a row are ordered."""
        return FROM_POSITION if self.mode == "history" else POSITION

    def schema(self, rows: ChangeRows, key: tuple[str, ...]) -> pa.Schema:
        """The table's columns. Only those of the key are never NULL: a delete has no others."""
        _check_names(rows, self._own_names())
        found = [rows.schema.field(name) for name in rows.table_columns]
        columns = [field.with_nullable(field.name not in key) for field in found]
        moment, place = pa.timestamp("us", "UTC"), rows.schema.field(POSITION).type
        if self.mode == "history":
            return pa.schema(
                [
                    *columns,
                    pa.field(VALID_FROM, moment),
                    pa.field(VALID_TO, moment),
                    pa.field(FROM_POSITION, place, nullable=False),
                    pa.field(TO_POSITION, place),
                    pa.field(CURRENT, pa.bool_()),
                ]
            )
        marks = [pa.field(DELETED, pa.bool_(), nullable=False)] if self.marks_deletes else []
        return pa.schema([*columns, pa.field(POSITION, place, nullable=False), *marks])

    def _own_names(self) -> tuple[str, ...]:
        if self.mode == "history":
            return VALID_FROM, VALID_TO, FROM_POSITION, TO_POSITION, CURRENT
        return (POSITION, DELETED) if self.marks_deletes else (POSITION,)

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Changes as rows of the table; a delete has its key and its position."""
        batch = batch.drop_columns(
            [name for name in self._own_names() if name in batch.schema.names and name != POSITION]
        )
        if self.mode == "history":
            upserts = pc.not_equal(batch.column(OP), "d")
            current = pc.if_else(upserts, pa.scalar(value=True), pa.scalar(None, pa.bool_()))
            batch = batch.append_column(VALID_FROM, batch.column(SOURCE_TIME))
            batch = batch.append_column(FROM_POSITION, batch.column(POSITION))
            return batch.append_column(CURRENT, current)
        return batch.append_column(DELETED, pc.equal(batch.column(OP), "d")) if self.marks_deletes else batch


@dataclass(frozen=True)
class ShapedChanges:
    """Changes as a sink's table sees them: rows with the table's schema, read as the changes that they are."""

    changes: ChangeRows
    schema: pa.Schema
    key: tuple[str, ...]
    shape: Shape

    @property
    def stream(self) -> str:
        return self.changes.stream

    @property
    def order(self) -> tuple[str, ...]:
        return (self.shape.position,)

    def dataframe(self, spark: SparkSession) -> DataFrame:
        return self.changes.dataframe(spark)


def _check_names(rows: ChangeRows, own: tuple[str, ...]) -> None:
    taken = sorted({name.lower() for name in rows.table_columns} & set(own))
    if taken:
        raise InputError(
            f"{rows.stream}: the source's table has a column {taken[0]!r}, and so has the sink's own bookkeeping",
            hint="leave the column out at the source (column.exclude.list), or rename it there",
        )
