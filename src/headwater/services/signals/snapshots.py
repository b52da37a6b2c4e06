"""Debezium's snapshots: requests, checked before they are sent, and progress, by the watermarks around every chunk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from headwater.model.errors import InputError
from headwater.pg.catalog import Table, one_view, read_named_tables
from headwater.pg.connection import Connection
from headwater.pg.sql_text import table_name
from headwater.services.signals import signal_table
from headwater.services.signals.signal_table import (
    EXECUTE,
    Signal,
    SignalTable,
    SnapshotKind,
    publications_of,
    published_names,
    refuse_missing,
    write,
)


@dataclass(frozen=True)
class SentSignal:
    """A written signal, and notices about it."""

    signal: Signal
    tables: tuple[str, ...]
    notices: tuple[str, ...]


def request_snapshot(
    connection: Connection,
    table: SignalTable,
    signal_id: str,
    *,
    tables: Sequence[str],
    snapshot_type: SnapshotKind,
    filters: Mapping[str, str],
) -> SentSignal:
    """Write the signal. Raises InputError with every unfit table before anything is written."""
    refuse_missing(connection, table)
    relations = read_named_tables(connection, tables)
    notices = list(_refuse_unfit(relations, snapshot_type))
    conditions = _conditions(connection, relations, filters)
    signal = signal_table.snapshot(signal_id, relations, snapshot_type, conditions)
    notices += _about_publications(connection, table)
    write(connection, table, signal)
    return SentSignal(signal, tuple(relation.full_name for relation in relations), tuple(notices))


def request_stop(connection: Connection, table: SignalTable, signal_id: str, tables: Sequence[str]) -> SentSignal:
    """Write the signal; without tables it ends the whole snapshot."""
    refuse_missing(connection, table)
    relations = read_named_tables(connection, tables) if tables else ()
    collections = [signal_table.collection(relation) for relation in relations] or _collections_to_stop(
        connection, table
    )
    notices = _about_publications(connection, table)
    signal = signal_table.stop(signal_id, collections)
    write(connection, table, signal)
    return SentSignal(signal, tuple(relation.full_name for relation in relations), notices)


def _collections_to_stop(connection: Connection, table: SignalTable) -> Sequence[str]:
    """Nothing, which means all; or the requested tables by name, where `all` would not work.

    To stop all, Debezium walks over every captured table. At a name that it cannot parse it aborts half-way: the snapshot
    neither ends nor continues, and blocks all later ones.
    """
    unparsable = [
        f"{schema}.{name}" for schema, name in published_names(connection) if signal_table.is_unparsable(schema, name)
    ]
    if not unparsable:
        return ()
    requested = dict.fromkeys(
        collection
        for signal in signal_progress(read_rows(connection, table))
        if signal.kind == "incremental"
        for collection in signal.tables
    )
    if not requested:
        raise InputError(
            f"Debezium cannot stop everything while it captures {unparsable[0]!r}, whose name it cannot parse",
            hint="name the tables: headwater signal stop TABLE…",
        )
    return list(requested)


def send_signal(connection: Connection, table: SignalTable, signal_id: str, signal_type: str) -> SentSignal:
    """Write a signal that names no tables: pause, resume."""
    refuse_missing(connection, table)
    signal = Signal(signal_id, signal_type, "{}")
    notices = _about_publications(connection, table)
    write(connection, table, signal)
    return SentSignal(signal, (), notices)


def _refuse_unfit(tables: Sequence[Table], snapshot_type: SnapshotKind) -> Sequence[str]:
    unfit = [table for table in tables if table.kind not in {"table", "partitioned table"}]
    if unfit:
        raise InputError(
            "; ".join(f"{table.full_name} is a {table.kind}" for table in unfit),
            hint="name tables; a snapshot reads nothing else",
        )
    keyless = [table.full_name for table in tables if not table.key]
    if keyless and snapshot_type == "incremental":
        raise InputError(
            f"without a primary key: {', '.join(keyless)}. An incremental snapshot walks along the key; nothing was written",
            hint="add a primary key, or use --blocking, which reads a table in one pass",
        )
    return [f"{name} has no primary key: its rows are read, but have no key in Kafka" for name in keyless]


def _conditions(connection: Connection, tables: Sequence[Table], filters: Mapping[str, str]) -> Mapping[int, str]:
    conditions = {}
    requested = {table.oid for table in tables}
    for name, condition in filters.items():
        (table, *others) = read_named_tables(connection, [name])
        if others or table.oid not in requested:
            raise InputError(
                f"--filter is about {name}, which is not one of the requested tables",
                hint="write --filter TABLE=CONDITION",
            )
        _refuse_bad_condition(connection, table, condition)
        conditions[table.oid] = condition
    return conditions


def _refuse_bad_condition(connection: Connection, table: Table, condition: str) -> None:
    query = f"EXPLAIN SELECT FROM {table_name(table)} WHERE ({condition})"
    try:
        with one_view(connection):
            # Prepared: the server then accepts one statement only, whatever the condition holds.
            connection.execute(query.encode(), prepare=True)
    except psycopg.Error as error:
        reason = error.diag.message_primary or str(error)
        raise InputError(f"--filter {table.full_name}: {reason}", hint="write the condition after WHERE") from None


def _about_publications(connection: Connection, table: SignalTable) -> tuple[str, ...]:
    if publications_of(connection, table):
        return ()
    warning = f"no publication of {connection.info.dbname} sends {table.full_name}: a connector will not see the signal"
    return (f"{warning} (headwater signal init --publication NAME)",)


_OPEN, _CLOSE = "snapshot-window-open", "snapshot-window-close"
# By transaction: rows have no time, and a watermark is always written after its signal.
_ROWS = "SELECT id, type, data FROM {table} ORDER BY age(xmin) DESC, ctid"

Row = tuple[str, str, str | None]


@dataclass
class SignalProgress:
    """A signal and its watermarks."""

    id: str
    type: str
    kind: str  # incremental, blocking; empty for other signals
    tables: tuple[str, ...]
    chunks_begun: int = 0
    chunks_read: int = 0
    last_seen: str | None = None  # by Debezium's clock
    unreadable: bool = field(default=False)

    @property
    def progress(self) -> str:
        """For people. Only Debezium's notifications report the end of a snapshot."""
        if self.unreadable:
            return "its data is not JSON: Debezium ignores it"
        if self.kind != "incremental":
            return ""
        if not self.chunks_begun:
            return "no chunk yet"
        if self.chunks_read < self.chunks_begun:
            return f"reading chunk {self.chunks_begun:,}"
        return f"{self.chunks_read:,} chunk{'' if self.chunks_read == 1 else 's'} read"


def read_rows(connection: Connection, table: SignalTable) -> Sequence[Row]:
    """All rows of the signal table, in the order of writing."""
    refuse_missing(connection, table)
    return connection.execute(_ROWS.format(table=table.sql).encode()).fetchall()


def signal_progress(rows: Sequence[Row]) -> Sequence[SignalProgress]:
    """The signals in the order of writing. A watermark counts for the snapshot it names, else for the one before it."""
    signals: list[SignalProgress] = []
    by_id: dict[str, SignalProgress] = {}
    open_windows: dict[str, SignalProgress] = {}
    latest: SignalProgress | None = None
    for row_id, row_type, text in rows:
        data = _parse_data(text)
        if row_type == _OPEN:
            owner = by_id.get(str(data.get("correlationId")), latest) if data else latest
            if owner is not None:
                owner.chunks_begun += 1
                owner.last_seen = _time(data, "openWindowTimestamp")
                open_windows[row_id.removesuffix("-open")] = owner
        elif row_type == _CLOSE:
            owner = open_windows.pop(row_id.removesuffix("-close"), None)
            if owner is not None:
                owner.chunks_read += 1
                owner.last_seen = _time(data, "closeWindowTimestamp")
        else:
            signal = _signal(row_id, row_type, data)
            signals.append(signal)
            by_id[row_id] = signal
            latest = signal if signal.kind == "incremental" else latest
    return signals


def _signal(row_id: str, row_type: str, data: Mapping[str, Any] | None) -> SignalProgress:
    if data is None:
        return SignalProgress(row_id, row_type, "", (), unreadable=True)
    collections = data.get("data-collections")
    tables = tuple(map(str, collections)) if isinstance(collections, list) else ()
    kind = str(data.get("type") or "incremental").lower() if row_type == EXECUTE else ""
    return SignalProgress(row_id, row_type, kind, tables)


def _parse_data(text: str | None) -> Mapping[str, Any] | None:
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
