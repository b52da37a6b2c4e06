"""A table that changes, in plain Python: its log of changes as a transport would bring it, and what must come of it.

Rows have a key `id`, a short value `note` and a long one, `body`, which events leave out where it did not change.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import pyarrow as pa

from headwater.model.rows import SOURCE_TIME, Changes, Rows, change_fields, position
from headwater.testing.memory_rows import memory_rows

COLUMNS = ("id", "note", "body")
_EPOCH = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
_TABLE = pa.schema([pa.field("id", pa.int64()), ("note", pa.string()), ("body", pa.string())])
SCHEMA = pa.schema([*_TABLE, *change_fields(), ("partition", pa.int32()), ("offset", pa.int64())])


@dataclass(frozen=True)
class Event:
    """One change as it travels."""

    op: str
    position: int
    id: int | None
    note: str | None = None
    body: str | None = None
    missing: tuple[str, ...] | None = None
    old_key: int | None = None

    @property
    def time(self) -> dt.datetime:
        """A clock that goes backwards now and then, as clocks do."""
        major = self.position // 10**19
        return _EPOCH + dt.timedelta(seconds=major - 5 * (major % 3))

    def row(self) -> dict[str, object]:
        return {
            "id": self.id,
            "note": self.note,
            "body": self.body,
            "_op": self.op,
            "_position": Decimal(self.position),
            "_source_time": self.time,
            "_transaction": str(self.position // 10**19),
            "_missing": None if self.missing is None else list(self.missing),
            "_old_key": None if self.old_key is None else json.dumps([self.old_key]),
        }


@dataclass
class ChangeLog:
    """The source: a table, and everything that happened to it."""

    rows: dict[int, tuple[str, str]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    _lsn: int = 100

    def insert(self, key: int, note: str, body: str) -> None:
        if key not in self.rows:
            self.rows[key] = (note, body)
            self._add("c", key, note, body)

    def update(self, key: int, note: str, body: str | None = None) -> None:
        """Without a body it stays as it is, and the event leaves it out."""
        if key in self.rows:
            self.rows[key] = (note, self.rows[key][1] if body is None else body)
            self._add("u", key, note, body, missing=("body",) if body is None else None)

    def move(self, key: int, to: int, note: str) -> None:
        """Change the key: a delete and an insert at one position; the insert leaves the body out."""
        if key in self.rows and to not in self.rows:
            self.rows[to] = (note, self.rows.pop(key)[1])
            self._lsn += 10
            self._add("d", key, None, None, step=0)
            self._add("c", to, note, None, missing=("body",), old_key=key, step=0)

    def delete(self, key: int) -> None:
        if key in self.rows:
            del self.rows[key]
            self._add("d", key, None, None)

    def truncate(self) -> None:
        self.rows.clear()
        self._add("t", None, None, None)

    def snapshot(self) -> None:
        """Read every row, as a snapshot does: all of them at one position in the log."""
        self._lsn += 10
        for key, (note, body) in self.rows.items():
            self._add("r", key, note, body, step=0)

    def _add(
        self,
        op: str,
        key: int | None,
        note: str | None,
        body: str | None,
        *,
        missing: tuple[str, ...] | None = None,
        old_key: int | None = None,
        step: int = 10,
    ) -> None:
        self._lsn += step
        log_position = position(self._lsn, 2 * self._lsn + (op != "r"))
        self.events.append(Event(op, log_position, key, note, body, missing, old_key))

    def history(self) -> list[tuple[object, ...]]:
        """Every version of every row: id, note, body, from, until (None: still), by position."""
        versions: dict[int, list[tuple[str, str, int, int | None]]] = {}
        bodies: dict[int, str] = {}
        keys_seen: set[int] = set()

        def close(key: int, at: int) -> None:
            if versions.get(key) and versions[key][-1][3] is None:
                versions[key][-1] = (*versions[key][-1][:3], at)

        moved: dict[int, str] = {}
        for event in self.events:
            if event.position in keys_seen and event.op not in "cd":
                continue
            if event.op == "t":
                for key in versions:
                    close(key, event.position)
                continue
            assert event.id is not None
            if event.op == "d":
                moved[event.position] = bodies.get(event.id, "")
                close(event.id, event.position)
                continue
            body = (
                event.body
                if event.missing is None
                else moved[event.position]
                if event.old_key is not None
                else bodies[event.id]
            )
            bodies[event.id] = str(body)
            open_versions = versions.get(event.id, [])[-1:]
            if event.op == "r" and [history[:2] + history[3:] for history in open_versions] == [
                (event.note, body, None)
            ]:
                continue  # a snapshot read the row as it was
            close(event.id, event.position)
            versions.setdefault(event.id, []).append((str(event.note), str(body), event.position, None))
        return sorted((key, *version) for key, history in versions.items() for version in history)


def changes(events: Sequence[tuple[int, int, Event]], splits: int = 1, stream: str = "shop.orders") -> Rows:
    """A window: partition, offset and event each."""
    rows = [{**event.row(), "partition": partition, "offset": offset} for partition, offset, event in events]
    table = pa.Table.from_pylist(rows, SCHEMA)
    size = -(-table.num_rows // splits) or 1
    parts = tuple(table.slice(start, size) for start in range(0, max(table.num_rows, 1), size))
    facets = Changes(COLUMNS, ("partition", "offset"), SOURCE_TIME)
    return replace(memory_rows(stream, parts, ("id",), ("_position",)), changes=facets)


def partitions(log: ChangeLog, count: int) -> list[list[tuple[int, int, Event]]]:
    """The log as a topic holds it: by key over partitions, in order within each."""
    topic: list[list[tuple[int, int, Event]]] = [[] for _ in range(count)]
    for event in log.events:
        number = 0 if event.id is None else event.id % count
        topic[number].append((number, len(topic[number]), event))
    return topic
