"""A source of changes in memory, whose windows are named by places in a log: copies, changes and labels of a few tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.model.position.marks import LsnMark, Mark
from headwater.model.position.stream_state import TableState
from headwater.model.position.window import Window
from headwater.model.protocols.source import Claim, Plan
from headwater.model.rows import OP, POSITION, Changes, MemorySplit, Rows, change_fields, position
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Change = tuple[str, int, int | None, str | None]  # operation, minor position, id, note
SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string()), *change_fields()])


@dataclass(frozen=True)
class Step:
    """One window: how it is known in the log, and what it brings to each stream."""

    lsn: int
    changes: Mapping[str, Sequence[Change]]
    labels: tuple[str, ...] = ()
    turn: int = 0
    tables: Mapping[str, TableState] = field(default_factory=dict)


@dataclass
class ChangeSource:
    """Gives its steps one after another. `lost`: what an earlier process planned can no longer be read."""

    steps: Sequence[Step]
    lost: str = ""
    address: str = "memory"

    def plan(self, mark: Mark | None, *, claim: Claim | None = None, skip: frozenset[str] = frozenset()) -> Plan:
        ends = [self._mark(step) for step in self.steps]
        later = [end for end in ends if mark is None or (isinstance(mark, LsnMark) and not mark.covers(end))]
        return Plan(Window(mark, later[0]) if later else None, more=len(later) > 1)

    @contextmanager
    def read(self, window: Window) -> Iterator[Sequence[Rows]]:
        (step,) = [step for step in self.steps if self._mark(step) == window.end]
        yield [rows_of(stream, step.lsn, changes) for stream, changes in step.changes.items()]

    def abandoned(self, window: Window) -> str:
        return "" if window.end in map(self._mark, self.steps) else self.lost

    def position(self, text: str, mark: Mark | None) -> Mark | None:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to give back."""

    def _mark(self, step: Step) -> LsnMark:
        seen = {stream: TableState(oid=1, copied=0) for stream in step.changes}
        return LsnMark(step.lsn, turn=step.turn, labels=step.labels, streams={**seen, **step.tables})


def rows_of(stream: str, lsn: int, changes: Sequence[Change]) -> Rows:
    batches = [
        {"id": key, "note": note, OP: operation, POSITION: position(lsn, minor)}
        for operation, minor, key, note in changes
    ]
    split = MemorySplit.of(
        pa.Table.from_pylist([{name: row.get(name) for name in SCHEMA.names} for row in batches], SCHEMA)
    )
    return Rows(stream, SCHEMA, ("id",), (POSITION,), (split,), changes=Changes(("id", "note")))


class CurrentState(World):
    """A pipeline over such a source, which merges into tables of the test's own."""

    def __init__(self, folder: Path, spark: SparkSession, namespace: str) -> None:
        self.namespace = namespace
        super().__init__(
            folder,
            {"sql": {"url": "sqlite:///none.db", "table": "t", "cursor": "id"}},
            [{"iceberg": {"table": f"{namespace}.{{table}}", "mode": "merge"}}],
            spark=spark,
        )

    def entries(self) -> list[tuple[str, str]]:
        return [(entry.kind, entry.why) for entry in reversed(self.history())]

    def rows(self, table: str, version: str = "") -> dict[int, str]:
        as_of = f" VERSION AS OF '{version}'" if version else ""
        return dict(self.select(f"SELECT id, note FROM {self.namespace}.{table}{as_of}"))

    def tags(self, table: str) -> dict[str, int]:
        return dict(self.select(f"SELECT name, snapshot_id FROM {self.namespace}.{table}.refs WHERE type = 'TAG'"))
