"""Changes of one layout of a table, decoded, in a file of this machine: an Arrow IPC stream, and rejects beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from headwater.sources.postgres.change_schema import change_schema
from headwater.sources.postgres.log.layout import Layout
from headwater.sources.sql.types import arrow_type


@dataclass(frozen=True)
class Part:
    """One batch of the file."""

    offset: int
    rows: int


@dataclass(frozen=True)
class Segment:
    """Can be sent to a worker on this machine. Its rows stand in the order of the log."""

    stream: str
    layout: Layout = field(repr=False)
    kinds: tuple[str, ...] = field(repr=False)  # of the layout's columns
    path: str
    first: int  # the place in the log of the first transaction that it has rows of
    parts: tuple[Part, ...] = field(repr=False, default=())
    rejects: int = 0
    truncates: bool = False  # among its rows is the truncate of the table

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def schema(self) -> pa.Schema:
        return segment_schema(self.layout, self.kinds)

    @property
    def rejects_path(self) -> Path:
        return Path(f"{self.path}.rejects")


def segment_schema(layout: Layout, kinds: Sequence[str]) -> pa.Schema:
    columns = zip(layout.columns, kinds, strict=True)
    return change_schema(pa.field(column.name, arrow_type(kind)) for column, kind in columns)
