"""The columns of change rows that come straight from PostgreSQL, by the log or by a copy."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headwater.model.changes import POSITION, SOURCE_TIME, change_fields
from headwater.model.lsn_mark import TableSeen
from headwater.sources.sql.types import arrow_type

ROW = "_row"
"""Tells rows of one position apart: of a copy's, where each stood; of a changed key, 1 is the former key's delete. Else 0."""
EVENT_KEY = (POSITION, ROW)
ARRIVAL = SOURCE_TIME


def change_schema(columns: Iterable[pa.Field]) -> pa.Schema:
    """The table's columns, all nullable since a delete has only its key and a truncate nothing; then what happened."""
    table = [column.with_nullable(True) for column in columns]  # noqa: FBT003 - Arrow's own signature
    return pa.schema([*table, *change_fields(), pa.field(ROW, pa.int64(), nullable=False)])


def stream_schema(seen: TableSeen) -> pa.Schema:
    """Of the changes of one table."""
    return change_schema(pa.field(name, arrow_type(kind)) for name, kind in seen.columns.items())
