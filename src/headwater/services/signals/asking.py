"""Asks Debezium for a snapshot: everything is checked first, since a connector would only write to its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psycopg

from headwater.model.errors import InputError
from headwater.services.signals import message
from headwater.services.signals.message import Signal, SnapshotKind
from headwater.services.signals.progress import read_rows, standings
from headwater.services.signals.table import SignalTable, publications_of, published_names, refuse_missing, write
from headwater.sources.postgres.readiness.address import Connection
from headwater.sources.postgres.readiness.asking import ask_tables, one_view
from headwater.sources.postgres.readiness.facts import Table
from headwater.sources.postgres.readiness.sql_text import table_name


@dataclass(frozen=True)
class Asked:
    """A signal that was written, and what is worth knowing about it."""

    signal: Signal
    tables: tuple[str, ...]
    notices: tuple[str, ...]


def ask_snapshot(
    connection: Connection,
    table: SignalTable,
    signal_id: str,
    *,
    tables: Sequence[str],
    kind: SnapshotKind,
    filters: Mapping[str, str],
) -> Asked:
    """Write the signal. Raises InputError, with every table that cannot be read this way, before anything is written."""
    refuse_missing(connection, table)
    found = ask_tables(connection, tables)
    notices = list(_refuse_unfit(found, kind))
    conditions = _conditions(connection, found, filters)
    signal = message.snapshot(signal_id, found, kind, conditions)
    notices += _about_publications(connection, table)
    write(connection, table, signal)
    return Asked(signal, tuple(one.full_name for one in found), tuple(notices))


def ask_stop(connection: Connection, table: SignalTable, signal_id: str, tables: Sequence[str]) -> Asked:
    """Write the signal; without tables it ends the whole snapshot."""
    refuse_missing(connection, table)
    found = ask_tables(connection, tables) if tables else ()
    collections = [message.collection(one) for one in found] or _instead_of_all(connection, table)
    notices = _about_publications(connection, table)
    signal = message.stop(signal_id, collections)
    write(connection, table, signal)
    return Asked(signal, tuple(one.full_name for one in found), notices)


def _instead_of_all(connection: Connection, table: SignalTable) -> Sequence[str]:
    """Nothing, which means all; or the tables that were asked for, by name, where `all` would not work.

    To stop all, Debezium walks over every table that it captures. At a name that it cannot read it gives up half-way: the
    snapshot neither ends nor goes on, and all later ones wait behind it.
    """
    odd = [f"{schema}.{name}" for schema, name in published_names(connection) if message.is_odd(schema, name)]
    if not odd:
        return ()
    asked = dict.fromkeys(
        collection
        for standing in standings(read_rows(connection, table))
        if standing.kind == "incremental"
        for collection in standing.tables
    )
    if not asked:
        raise InputError(
            f"Debezium cannot stop everything while it captures {odd[0]!r}, whose name it cannot read",
            hint="name the tables whose snapshot shall end: headwater signal stop TABLE…",
        )
    return list(asked)


def ask_plainly(connection: Connection, table: SignalTable, signal_id: str, signal_type: str) -> Asked:
    """Write a signal that names no tables: pause, resume."""
    refuse_missing(connection, table)
    signal = Signal(signal_id, signal_type, "{}")
    notices = _about_publications(connection, table)
    write(connection, table, signal)
    return Asked(signal, (), notices)


def _refuse_unfit(tables: Sequence[Table], kind: SnapshotKind) -> Sequence[str]:
    odd = [table for table in tables if table.kind not in {"table", "partitioned table"}]
    if odd:
        raise InputError(
            "; ".join(f"{table.full_name} is a {table.kind}" for table in odd),
            hint="a snapshot reads tables; name those",
        )
    keyless = [table.full_name for table in tables if not table.key]
    if keyless and kind == "incremental":
        raise InputError(
            f"without a primary key: {', '.join(keyless)}. An incremental snapshot walks along the key; nothing was written",
            hint="add a primary key, or ask with --blocking, which reads a table in one go",
        )
    return [f"{name} has no primary key: its rows are read, but have no key in Kafka" for name in keyless]


def _conditions(connection: Connection, tables: Sequence[Table], filters: Mapping[str, str]) -> Mapping[int, str]:
    conditions = {}
    asked = {table.oid for table in tables}
    for written, condition in filters.items():
        (table, *others) = ask_tables(connection, [written])
        if others or table.oid not in asked:
            raise InputError(
                f"--filter is about {written}, which is none of the tables asked for",
                hint="write --filter TABLE=CONDITION",
            )
        _refuse_bad_condition(connection, table, condition)
        conditions[table.oid] = condition
    return conditions


def _refuse_bad_condition(connection: Connection, table: Table, condition: str) -> None:
    query = f"EXPLAIN SELECT FROM {table_name(table)} WHERE ({condition})"
    try:
        with one_view(connection):
            # Prepared: the server then takes one statement only, whatever the condition holds.
            connection.execute(query.encode(), prepare=True)
    except psycopg.Error as error:
        said = error.diag.message_primary or str(error)
        raise InputError(f"--filter {table.full_name}: {said}", hint="a filter is what stands after WHERE") from None


def _about_publications(connection: Connection, table: SignalTable) -> tuple[str, ...]:
    if publications_of(connection, table):
        return ()
    unseen = f"no publication of {connection.info.dbname} sends {table.full_name}: a connector will not see the signal"
    return (f"{unseen} (headwater signal init --publication NAME)",)
