"""`headwater signal`: request snapshots from a running Debezium connector, by rows in its signal table, and follow them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import Output, table
from headwater.model.errors import InputError
from headwater.model.json_codec import to_json
from headwater.pg.address import Login

if TYPE_CHECKING:
    from headwater.model.position.marks import Json
    from headwater.pg.connection import Connection
    from headwater.services.signals.notifications import SnapshotReport
    from headwater.services.signals.signal_table import SignalTable, SnapshotKind
    from headwater.services.signals.snapshots import SentSignal, SignalProgress

DEFAULT_TABLE = "public.debezium_signal"

SignalTableName = Annotated[
    str, typer.Option("--table", metavar="NAME", help="The signal table: the connector's signal.data.collection.")
]


def init(
    out: Output,
    login: Login,
    *,
    signal_table: SignalTableName = DEFAULT_TABLE,
    publication: Annotated[
        str | None, typer.Option("--publication", metavar="NAME", help="Also add it to this publication.")
    ] = None,
    role: Annotated[
        str | None, typer.Option("--role", metavar="NAME", help="Also grant the connector's role reading and writing.")
    ] = None,
) -> None:
    """Create the signal table in each database named.

    An existing one stays as it is; --database can be repeated. A table of that name with other columns is refused before
    any database is changed.
    """
    from headwater.pg.address import addresses, connected
    from headwater.services.signals.signal_table import check_init, create
    from headwater.services.signals.signal_table import signal_table as parse_name

    qualified, databases = parse_name(signal_table), addresses(login)
    for address in databases:
        with connected(address) as connection:
            check_init(connection, qualified, publication, role)
    statements_by_database = {}
    for address in databases:
        with connected(address) as connection:
            statements_by_database[address.database] = create(connection, qualified, publication, role)
    data: Json = {
        "table": qualified.full_name,
        "databases": [
            {"database": name, "created": _created(statements), "sql": [f"{statement};" for statement in statements]}
            for name, statements in statements_by_database.items()
        ],
    }
    out.value(
        data,
        "\n".join(
            _init_line(qualified.full_name, name, statements) for name, statements in statements_by_database.items()
        ),
    )


def _created(statements: Sequence[str]) -> bool:
    return any(statement.startswith("CREATE TABLE") for statement in statements)


def _init_line(name: str, database: str, statements: Sequence[str]) -> str:
    other_statements = "".join(
        f"\n  {statement};" for statement in statements if not statement.startswith("CREATE TABLE")
    )
    return f"{database}: {name} {'created' if _created(statements) else 'exists'}{other_statements}"


def snapshot(
    out: Output,
    login: Login,
    tables: Annotated[list[str], typer.Argument(metavar="TABLE…", help="schema.table, or a pattern: 'sales.*'.")],
    *,
    blocking: Annotated[
        bool, typer.Option("--blocking", help="Read each table in one pass; streaming waits. Needs no primary key.")
    ] = False,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="TABLE=CONDITION", help="Only rows of a table that match it. Repeatable."),
    ] = None,
    signal_table: SignalTableName = DEFAULT_TABLE,
) -> None:
    """Request a snapshot of tables.

    Incremental: in chunks, along the primary key, while streaming continues. Tables that do not exist or have no primary
    key are refused by name before anything is written. Prints the signal's id.
    """
    from headwater.services.signals.snapshots import request_snapshot

    conditions = _conditions(filters or [])
    kind: SnapshotKind = "blocking" if blocking else "incremental"
    request = partial(request_snapshot, tables=tables, snapshot_type=kind, filters=conditions)
    _send(out, login, signal_table, request, f"{kind} snapshot")


def stop(
    out: Output,
    login: Login,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE…]", help="Only of these. Default: the whole snapshot.")
    ] = None,
    *,
    signal_table: SignalTableName = DEFAULT_TABLE,
) -> None:
    """End an incremental snapshot after its current chunk."""
    from headwater.services.signals.snapshots import request_stop

    _send(out, login, signal_table, partial(request_stop, tables=tables or ()), "stop of the incremental snapshot")


@dataclass(frozen=True)
class Action:
    """A signal without tables."""

    name: str
    signal_type: str
    help: str

    @property
    def command(self) -> Callable[..., None]:
        def run(out: Output, login: Login, *, signal_table: SignalTableName = DEFAULT_TABLE) -> None:
            from headwater.services.signals.snapshots import send_signal

            _send(out, login, signal_table, partial(send_signal, signal_type=self.signal_type), self.name)

        run.__name__, run.__doc__ = self.name, self.help
        return run


# The types as in services/signals/signal_table.py, which other commands must not pay for.
ACTIONS = (
    Action("pause", "pause-snapshot", "Pause an incremental snapshot."),
    Action("resume", "resume-snapshot", "Resume a paused incremental snapshot."),
)


def _send(
    out: Output,
    login: Login,
    table_name: str,
    send: Callable[[Connection, SignalTable, str], SentSignal],
    title: str,
) -> None:
    from headwater.pg.address import connected, only_address
    from headwater.services.signals.signal_table import new_id, signal_table

    address = only_address(login)
    with connected(address) as connection:
        sent = send(connection, signal_table(table_name), new_id(dt.datetime.now(dt.UTC)))
    for notice in sent.notices:
        out.say(f"note: {notice}")
    of = f" of {', '.join(sent.tables)}" if sent.tables else ""
    data: Json = {
        "id": sent.signal.id,
        "type": sent.signal.type,
        "database": address.database,
        "tables": list(sent.tables),
        "data": sent.signal.data,
        "notices": list(sent.notices),
    }
    out.value(data, f"{sent.signal.id}: requested {title}{of}")


def _conditions(filters: Sequence[str]) -> Mapping[str, str]:
    from headwater.pg.names import split_setting

    conditions = {}
    for text in filters:
        name, condition = split_setting(text)
        if name is None or not condition:
            raise InputError(
                "--filter needs a table and a condition", hint="write --filter \"sales.orders=state = 'DE'\""
            )
        if name in conditions:
            raise InputError(f"--filter names {name} twice", hint="combine them: a AND b")
        conditions[name] = condition
    return conditions


def status(
    out: Output,
    login: Login,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many signals, the newest.")] = 20,
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="HOST:PORT", help="Kafka, for Debezium's notifications.")
    ] = None,
    notifications: Annotated[
        str | None,
        typer.Option("--notifications", metavar="TOPIC", help="The connector's notification.sink.topic.name."),
    ] = None,
    topic_prefix: Annotated[
        str | None, typer.Option("--topic-prefix", metavar="NAME", help="Only those of the connector with this prefix.")
    ] = None,
    signal_table: SignalTableName = DEFAULT_TABLE,
) -> None:
    """Show the signals in the table, and the progress of snapshots.

    By the watermarks that Debezium writes around each chunk; with --brokers and --notifications also by its own
    notifications: started, in progress, completed.
    """
    from headwater.pg.address import connected, only_address
    from headwater.services.signals.signal_table import signal_table as parse_name
    from headwater.services.signals.snapshots import read_rows, signal_progress

    if (brokers is None) is not (notifications is None):
        raise InputError("--brokers and --notifications belong together", hint="write both or neither")
    address, qualified = only_address(login), parse_name(signal_table)
    with connected(address) as connection:
        signals = signal_progress(read_rows(connection, qualified))
    reports = _reports(brokers, notifications, topic_prefix)
    newest = signals[-limit:]
    others = {name: report for name, report in reports.items() if name not in {signal.id for signal in signals}}
    data: Json = {
        "table": qualified.full_name,
        "database": address.database,
        "count": len(signals),
        "signals": [{**_signal_json(signal), "notification": to_json(reports.get(signal.id))} for signal in newest],
        "others": [{"id": name, **to_json(report)} for name, report in others.items()],
    }
    out.value(data, _status_text(qualified.full_name, newest, reports, others))
    if len(newest) < len(signals):
        out.say(f"the newest {len(newest):,} of {len(signals):,}: --limit {len(signals)} shows all")


def _reports(brokers: str | None, topic: str | None, prefix: str | None) -> Mapping[str, SnapshotReport]:
    if brokers is None or topic is None:
        return {}
    from headwater.config.sources.kafka import KafkaClientSettings, client_options
    from headwater.services.signals.notifications import read_notifications, snapshot_reports

    return snapshot_reports(
        read_notifications(client_options(KafkaClientSettings(brokers=brokers), Path()), topic, prefix)
    )


def _status_text(
    name: str,
    signals: Sequence[SignalProgress],
    reports: Mapping[str, SnapshotReport],
    others: Mapping[str, SnapshotReport],
) -> str:
    if not signals and not others:
        return f"{name}: no signals"
    rows = [
        (
            signal.id,
            f"{signal.kind} {signal.type}".strip(),
            ", ".join(signal.tables) or None,
            _progress(signal, reports.get(signal.id)),
        )
        for signal in signals
    ]
    rows += [(signal_id, report.about, None, _report_text(report)) for signal_id, report in others.items()]
    return table(("id", "signal", "tables", "progress"), rows)


def _progress(signal: SignalProgress, report: SnapshotReport | None) -> str | None:
    return "; ".join(text for text in (signal.progress, _report_text(report)) if text) or None


def _report_text(report: SnapshotReport | None) -> str:
    if report is None:
        return ""
    current = f" {report.current}" if report.current else ""
    scanned = "".join(f", {name}: {result}" for name, result in report.scanned.items())
    return f"{report.state}{current}{scanned}"


def _signal_json(signal: SignalProgress) -> dict[str, Json]:
    from headwater.services.signals.signal_table import written_at

    written = written_at(signal.id)
    return {
        "id": signal.id,
        "type": signal.type,
        "snapshot": signal.kind or None,
        "tables": list(signal.tables),
        "written": written.isoformat() if written else None,
        "chunks": {"begun": signal.chunks_begun, "read": signal.chunks_read},
        "last_seen": signal.last_seen,
        "progress": signal.progress,
    }
