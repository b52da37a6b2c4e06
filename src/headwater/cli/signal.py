"""`headwater signal`: ask a running Debezium connector for snapshots, by rows in its signal table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import Output
from headwater.model.errors import InputError
from headwater.sources.postgres.readiness.login import Login

if TYPE_CHECKING:
    from headwater.model.marks import Json
    from headwater.services.signals.asking import Asked
    from headwater.services.signals.message import SnapshotKind
    from headwater.services.signals.table import SignalTable
    from headwater.sources.postgres.readiness.address import Connection

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
        str | None, typer.Option("--role", metavar="NAME", help="Also let the connector's role read and write it.")
    ] = None,
) -> None:
    """Make the signal table in each database named.

    What is there already is left as it is; --database can be repeated. A table of that name with another shape is refused
    before any database is changed.
    """
    from headwater.services.signals.table import create, refuse_what_init_needs  # noqa: PLC0415
    from headwater.services.signals.table import signal_table as named  # noqa: PLC0415
    from headwater.sources.postgres.readiness.address import addresses, connected  # noqa: PLC0415 - as --help

    wanted, found = named(signal_table), addresses(login)
    for address in found:
        with connected(address) as connection:
            refuse_what_init_needs(connection, wanted, publication, role)
    done = {}
    for address in found:
        with connected(address) as connection:
            done[address.database] = create(connection, wanted, publication, role)
    data: Json = {
        "table": wanted.full_name,
        "databases": [
            {"database": name, "created": _created(statements), "sql": [f"{one};" for one in statements]}
            for name, statements in done.items()
        ],
    }
    out.value(data, "\n".join(_init_line(wanted.full_name, name, statements) for name, statements in done.items()))


def _created(statements: Sequence[str]) -> bool:
    return any(statement.startswith("CREATE TABLE") for statement in statements)


def _init_line(name: str, database: str, statements: Sequence[str]) -> str:
    more = "".join(f"\n  {one};" for one in statements if not one.startswith("CREATE TABLE"))
    return f"{database}: {name} {'created' if _created(statements) else 'was already there'}{more}"


def snapshot(
    out: Output,
    login: Login,
    tables: Annotated[list[str], typer.Argument(metavar="TABLE…", help="schema.table, or a pattern: 'sales.*'.")],
    *,
    blocking: Annotated[
        bool, typer.Option("--blocking", help="Read each table in one go; streaming waits. Needs no primary key.")
    ] = False,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="TABLE=CONDITION", help="Only rows of a table that fulfil it. Repeatable."),
    ] = None,
    signal_table: SignalTableName = DEFAULT_TABLE,
) -> None:
    """Ask for the rows of tables as they are now.

    Incremental: in chunks, along the primary key, while changes go on. Tables that are not there or have no primary key
    are refused by name before anything is written. Prints the signal's id.
    """
    from headwater.services.signals.asking import ask_snapshot  # noqa: PLC0415 - as --help

    conditions = _conditions(filters or [])
    kind: SnapshotKind = "blocking" if blocking else "incremental"
    _ask(
        out,
        login,
        signal_table,
        lambda connection, wanted, signal_id: ask_snapshot(
            connection, wanted, signal_id, tables=tables, kind=kind, filters=conditions
        ),
        f"{kind} snapshot",
    )


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
    from headwater.services.signals.asking import ask_stop  # noqa: PLC0415 - as --help

    _ask(
        out,
        login,
        signal_table,
        lambda connection, wanted, signal_id: ask_stop(connection, wanted, signal_id, tables or ()),
        "end of the incremental snapshot",
    )


def pause(out: Output, login: Login, *, signal_table: SignalTableName = DEFAULT_TABLE) -> None:
    """Let an incremental snapshot wait."""
    from headwater.services.signals.asking import ask_plainly  # noqa: PLC0415 - as --help
    from headwater.services.signals.message import PAUSE  # noqa: PLC0415

    _ask(
        out, login, signal_table, lambda known, wanted, signal_id: ask_plainly(known, wanted, signal_id, PAUSE), "pause"
    )


def resume(out: Output, login: Login, *, signal_table: SignalTableName = DEFAULT_TABLE) -> None:
    """Let a paused incremental snapshot go on."""
    from headwater.services.signals.asking import ask_plainly  # noqa: PLC0415 - as --help
    from headwater.services.signals.message import RESUME  # noqa: PLC0415

    _ask(
        out,
        login,
        signal_table,
        lambda known, wanted, signal_id: ask_plainly(known, wanted, signal_id, RESUME),
        "resumption",
    )


def _ask(
    out: Output,
    login: Login,
    written: str,
    ask: Callable[[Connection, SignalTable, str], Asked],
    what: str,
) -> None:
    from headwater.services.signals.message import new_id  # noqa: PLC0415
    from headwater.services.signals.table import signal_table  # noqa: PLC0415
    from headwater.sources.postgres.readiness.address import connected, only_address  # noqa: PLC0415

    address = only_address(login)
    with connected(address) as connection:
        asked = ask(connection, signal_table(written), new_id(dt.datetime.now(dt.UTC)))
    for notice in asked.notices:
        out.say(f"note: {notice}")
    of = f" of {', '.join(asked.tables)}" if asked.tables else ""
    data: Json = {
        "id": asked.signal.id,
        "type": asked.signal.type,
        "database": address.database,
        "tables": list(asked.tables),
        "data": asked.signal.data,
        "notices": list(asked.notices),
    }
    out.value(data, f"{asked.signal.id}: asked for the {what}{of}")


def _conditions(filters: Sequence[str]) -> Mapping[str, str]:
    from headwater.sources.postgres.readiness.naming import split_setting  # noqa: PLC0415

    conditions = {}
    for text in filters:
        name, condition = split_setting(text)
        if name is None or not condition:
            raise InputError(
                "--filter needs a table and a condition", hint="write --filter \"sales.orders=state = 'DE'\""
            )
        if name in conditions:
            raise InputError(f"--filter says two things about {name}", hint="join them: a AND b")
        conditions[name] = condition
    return conditions
