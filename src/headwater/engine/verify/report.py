"""What a verification found, as values: keys of rows, never a row's other values."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.model.marks import Json, Mark

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.engine.verify.digest import Differences

KINDS = ("missing", "different", "extra")


@dataclass(frozen=True)
class Compared:
    """One table against its stream."""

    sink: str
    stream: str
    table: str
    snapshot: int | None
    key: tuple[str, ...]
    ranges: int
    differing: int  # of the ranges
    source_rows: int  # that were compared
    table_rows: int
    waiting: int  # rows of the source that are not compared: a window brings them, or nothing does
    aside: int  # rows of the source that cannot be kept
    found: Differences = field(repr=False)
    follows_deletes: bool
    is_bag: bool  # every version of a row is kept, and counts
    seconds: float
    mark: Mark | None = None  # where it was compared

    @property
    def counts(self) -> dict[str, int]:
        return {kind: getattr(self.found, kind).num_rows for kind in KINDS}

    @property
    def is_equal(self) -> bool:
        return not self.found.count

    def examples(self, most: int) -> dict[str, list[dict[str, Json]]]:
        """The first keys of each kind; empty where rows have no key."""
        if not self.key:
            return {kind: [] for kind in KINDS}
        return {kind: keys_json(getattr(self.found, kind).select(list(self.key)), most) for kind in KINDS}

    def to_json(self, most: int) -> dict[str, Json]:
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
                "set_aside": self.aside,
            },
            **self.counts,
            "examples": self.examples(most),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Refused:
    """A table that was not compared, and why."""

    sink: str
    stream: str
    why: str

    def to_json(self) -> dict[str, Json]:
        return {"sink": self.sink, "stream": self.stream, "why": self.why}


@dataclass(frozen=True)
class Repaired:
    """What a repair has done to one table."""

    sink: str
    stream: str
    landed: int  # rows read again
    removed: int  # extra rows
    left: int  # keys that still differ: their rows could not be found again

    def to_json(self) -> dict[str, Json]:
        return {
            "sink": self.sink,
            "stream": self.stream,
            "landed": self.landed,
            "removed": self.removed,
            "left": self.left,
        }


@dataclass(frozen=True)
class Verified:
    """All tables of a pipeline."""

    pipeline: str
    mark: Mark
    tables: tuple[Compared, ...]
    refused: tuple[Refused, ...]
    seconds: float
    repaired: tuple[Repaired, ...] = ()
    was_repaired: bool = False

    @property
    def is_equal(self) -> bool:
        return all(one.is_equal for one in self.tables)


def keys_json(keys: pa.Table, most: int | None = None) -> list[dict[str, Json]]:
    """Keys as JSON has them: what it has no form for, as text."""
    rows = keys if most is None else keys.slice(0, most)
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
