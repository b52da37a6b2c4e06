"""How far snapshots are, by the watermarks that Debezium leaves in the signal table around every chunk it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.services.signals.message import EXECUTE
from headwater.services.signals.table import SignalTable, refuse_missing
from headwater.sources.postgres.readiness.address import Connection

_OPEN, _CLOSE = "snapshot-window-open", "snapshot-window-close"
# By transaction: rows have no time of their own, and a watermark is always written after the signal was seen.
_ROWS = "SELECT id, type, data FROM {table} ORDER BY age(xmin) DESC, ctid"

Row = tuple[str, str, str | None]


@dataclass
class Standing:
    """A signal, and what was seen of it in the signal table."""

    id: str
    type: str
    kind: str  # incremental, blocking; empty for signals that are no snapshot
    tables: tuple[str, ...]
    chunks_begun: int = 0
    chunks_read: int = 0
    last_seen: str | None = None  # by Debezium's clock
    unreadable: bool = field(default=False)

    @property
    def progress(self) -> str:
        """In words. That a snapshot is over, only Debezium's notifications say."""
        if self.unreadable:
            return "its data is no JSON: Debezium ignores it"
        if self.kind != "incremental":
            return ""
        if not self.chunks_begun:
            return "no chunk yet"
        if self.chunks_read < self.chunks_begun:
            return f"reading chunk {self.chunks_begun:,}"
        return f"{self.chunks_read:,} chunk{'' if self.chunks_read == 1 else 's'} read"


def read_rows(connection: Connection, table: SignalTable) -> Sequence[Row]:
    """All rows of the signal table, in the order in which they were written."""
    refuse_missing(connection, table)
    return connection.execute(_ROWS.format(table=table.sql).encode()).fetchall()


def standings(rows: Sequence[Row]) -> Sequence[Standing]:
    """The signals in the order written. A watermark counts for the snapshot that it names, else for the one before it."""
    found: list[Standing] = []
    by_id: dict[str, Standing] = {}
    opened: dict[str, Standing] = {}
    latest: Standing | None = None
    for row_id, row_type, text in rows:
        data = _parsed(text)
        if row_type == _OPEN:
            owner = by_id.get(str(data.get("correlationId")), latest) if data else latest
            if owner is not None:
                owner.chunks_begun += 1
                owner.last_seen = _time(data, "openWindowTimestamp")
                opened[row_id.removesuffix("-open")] = owner
        elif row_type == _CLOSE:
            owner = opened.pop(row_id.removesuffix("-close"), None)
            if owner is not None:
                owner.chunks_read += 1
                owner.last_seen = _time(data, "closeWindowTimestamp")
        else:
            standing = _standing(row_id, row_type, data)
            found.append(standing)
            by_id[row_id] = standing
            latest = standing if standing.kind == "incremental" else latest
    return found


def _standing(row_id: str, row_type: str, data: Mapping[str, Any] | None) -> Standing:
    if data is None:
        return Standing(row_id, row_type, "", (), unreadable=True)
    listed = data.get("data-collections")
    tables = tuple(map(str, listed)) if isinstance(listed, list) else ()
    kind = str(data.get("type") or "incremental").lower() if row_type == EXECUTE else ""
    return Standing(row_id, row_type, kind, tables)


def _parsed(text: str | None) -> Mapping[str, Any] | None:
    if not text:
        return {}
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _time(data: Mapping[str, Any] | None, name: str) -> str | None:
    value = (data or {}).get(name)
    return value if isinstance(value, str) else None
