"""`headwater signal status`: signals that were written, and how far Debezium's snapshots are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import Output, table
from headwater.cli.signal import DEFAULT_TABLE, SignalTableName
from headwater.model.errors import InputError
from headwater.sources.postgres.readiness.login import Login

if TYPE_CHECKING:
    from headwater.model.marks import Json
    from headwater.services.signals.notifications import Told
    from headwater.services.signals.progress import Standing


def status(
    out: Output,
    login: Login,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many signals, the newest.")] = 20,
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="HOST:PORT", help="Kafka, to ask for Debezium's notifications.")
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
    """Show the signals that were written, and how far snapshots are.

    By the watermarks that Debezium writes around each chunk; with --brokers and --notifications also by what it says of
    them: started, in progress, completed.
    """
    from headwater.services.signals.progress import read_rows, standings  # noqa: PLC0415
    from headwater.services.signals.table import signal_table as named  # noqa: PLC0415
    from headwater.sources.postgres.readiness.address import connected, only_address  # noqa: PLC0415 - as --help

    if (brokers is None) is not (notifications is None):
        raise InputError("--brokers and --notifications belong together", hint="write both or neither")
    address, wanted = only_address(login), named(signal_table)
    with connected(address) as connection:
        found = standings(read_rows(connection, wanted))
    said = _told(brokers, notifications, topic_prefix)
    shown = found[-limit:]
    others = {name: one for name, one in said.items() if name not in {standing.id for standing in found}}
    data: Json = {
        "table": wanted.full_name,
        "database": address.database,
        "count": len(found),
        "signals": [{**_standing_json(one), "notification": _told_json(said.get(one.id))} for one in shown],
        "others": [{"id": name, **(_told_json(one) or {})} for name, one in others.items()],
    }
    out.value(data, _status_text(wanted.full_name, shown, said, others))
    if len(shown) < len(found):
        out.say(f"the newest {len(shown):,} of {len(found):,}: --limit {len(found)} shows all")


def _told(brokers: str | None, topic: str | None, prefix: str | None) -> Mapping[str, Told]:
    if brokers is None or topic is None:
        return {}
    from headwater.config.kafka_client import KafkaClient, client_options  # noqa: PLC0415
    from headwater.services.signals.notifications import read_notifications, told  # noqa: PLC0415

    return told(read_notifications(client_options(KafkaClient(brokers=brokers), Path()), topic, prefix))


def _status_text(name: str, shown: Sequence[Standing], said: Mapping[str, Told], others: Mapping[str, Told]) -> str:
    if not shown and not others:
        return f"{name}: no signals"
    rows = [
        (one.id, f"{one.kind} {one.type}".strip(), ", ".join(one.tables) or None, _progress(one, said.get(one.id)))
        for one in shown
    ]
    rows += [(one_id, one.about, None, _told_text(one)) for one_id, one in others.items()]
    return table(("id", "signal", "tables", "progress"), rows)


def _progress(standing: Standing, said: Told | None) -> str | None:
    return "; ".join(part for part in (standing.progress, _told_text(said)) if part) or None


def _told_text(said: Told | None) -> str:
    if said is None:
        return ""
    current = f" {said.current}" if said.current else ""
    scanned = "".join(f", {name}: {result}" for name, result in said.scanned.items())
    return f"{said.state}{current}{scanned}"


def _standing_json(one: Standing) -> dict[str, Json]:
    from headwater.services.signals.message import written_at  # noqa: PLC0415

    written = written_at(one.id)
    return {
        "id": one.id,
        "type": one.type,
        "snapshot": one.kind or None,
        "tables": list(one.tables),
        "written": written.isoformat() if written else None,
        "chunks": {"begun": one.chunks_begun, "read": one.chunks_read},
        "last_seen": one.last_seen,
        "progress": one.progress,
    }


def _told_json(said: Told | None) -> dict[str, Json] | None:
    if said is None:
        return None
    return {
        "about": said.about,
        "state": said.state,
        "current": said.current,
        "chunks": said.chunks,
        "scanned": dict(said.scanned),
    }
