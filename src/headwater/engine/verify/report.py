"""The result of a verification: keys of rows, never a row's other values."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.model.position.marks import Json, Mark

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.engine.verify.digest import Differences

DIFFERENCES = ("missing", "different", "extra")


@dataclass(frozen=True)
class ComparedTable:
    """One table against its stream."""

    sink: str
    stream: str
    table: str
    snapshot: int | None
    key: tuple[str, ...]
    ranges: int
    differing: int  # of the ranges
    source_rows: int  # compared
    table_rows: int
    waiting: int  # rows of the source that no window has read yet, so they are not compared
    rejected: int  # rows of the source that are rejects
    differences: Differences = field(repr=False)
    follows_deletes: bool
    is_bag: bool  # the table keeps every version of a row
    seconds: float
    mark: Mark | None = None  # the position of the comparison

    @property
    def counts(self) -> dict[str, int]:
        return {name: getattr(self.differences, name).num_rows for name in DIFFERENCES}

    @property
    def is_equal(self) -> bool:
        return not self.differences.count

    def examples(self, limit: int) -> dict[str, list[dict[str, Json]]]:
        """The first keys of each difference; empty where rows have no key."""
        if not self.key:
            return {name: [] for name in DIFFERENCES}
        return {name: keys_json(getattr(self.differences, name).select(list(self.key)), limit) for name in DIFFERENCES}

    def to_json(self, limit: int) -> dict[str, Json]:
        return {
            "sink": self.sink,
            "stream": self.stream,
            "table": self.table,
            "snapshot": self.snapshot,
            "key": list(self.key),
            "equal": self.is_equal,
            "ranges": {"compared": self.ranges, "different": self.differing},
            "rows": {
                "source": self.source_rows,
                "table": self.table_rows,
                "waiting": self.waiting,
                "set_aside": self.rejected,
            },
            **self.counts,
            "examples": self.examples(limit),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class SkippedTable:
    """A table that was not compared, and why."""

    sink: str
    stream: str
    why: str

    def to_json(self) -> dict[str, Json]:
        return {"sink": self.sink, "stream": self.stream, "why": self.why}


@dataclass(frozen=True)
class RepairedTable:
    """What a repair has done to one table."""

    sink: str
    stream: str
    landed: int  # rows read again
    removed: int  # extra rows
    unrepaired: int  # keys that still differ: the source did not return their rows

    def to_json(self) -> dict[str, Json]:
        return {
            "sink": self.sink,
            "stream": self.stream,
            "landed": self.landed,
            "removed": self.removed,
            "left": self.unrepaired,
        }


@dataclass(frozen=True)
class VerifyReport:
    """All tables of a pipeline."""

    pipeline: str
    mark: Mark
    tables: tuple[ComparedTable, ...]
    skipped: tuple[SkippedTable, ...]
    seconds: float
    repaired: tuple[RepairedTable, ...] = ()
    was_repaired: bool = False

    @property
    def is_equal(self) -> bool:
        return all(table.is_equal for table in self.tables)


def keys_json(keys: pa.Table, limit: int | None = None) -> list[dict[str, Json]]:
    """Keys as JSON; values that JSON has no type for, as text."""
    rows = keys if limit is None else keys.slice(0, limit)
    return [{name: _plain(value) for name, value in row.items()} for row in rows.to_pylist()]


def key_text(key: Mapping[str, Json]) -> str:
    """One key on one line."""
    if len(key) == 1:
        return str(next(iter(key.values())))
    return json.dumps(dict(key), ensure_ascii=False)


def _plain(value: object) -> Json:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, dt.date) else str(value)
