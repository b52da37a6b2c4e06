"""`headwater stack`: real servers on this machine, to try pipelines on."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import Output, table
from headwater.cli.rewind import confirm
from headwater.model.errors import InputError

if TYPE_CHECKING:
    from headwater.model.marks import Json
    from headwater.services.stack import Stack

_SOMETHING_IS_DOWN = 3


class Action(enum.StrEnum):
    """What to do with the servers."""

    up = "up"
    status = "status"
    down = "down"


def stack(
    out: Output,
    action: Annotated[
        Action,
        typer.Argument(
            metavar="up|status|down",
            help="up: start what does not run. status: ask each; exits 3 if one is down. down: end what `up` started.",
        ),
    ],
    servers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[kafka|connect|postgres|s3]…", help="Which servers. Default: all. Connect brings Kafka along."
        ),
    ] = None,
    *,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Where the servers keep their data, logs and stack.json.")
    ] = Path(".headwater/stack"),
    remove: Annotated[
        bool, typer.Option("--remove", help="With down: also delete the servers' data. Asks first.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before removing.")] = False,
) -> None:
    """Start, ask or end servers for tries on this machine.

    Kafka, Kafka Connect with Debezium, PostgreSQL and S3: real ones, without Docker, on loopback and free ports. They go
    on when the command ends, and come back on the same ports with the same data.
    """
    from headwater.services.stack import NAMES, Stack  # noqa: PLC0415 - not paid for by --help

    if remove and (action is not Action.down or servers):
        raise InputError("--remove deletes the data of all servers", hint="headwater stack down --remove")
    local = Stack(folder, out.say)
    if action is Action.up:
        addresses = local.up(servers or NAMES)
        rows = [(server, key, value) for server, address in addresses.items() for key, value in address.items()]
        out.value({server: dict(address) for server, address in addresses.items()}, table(("server", "", ""), rows))
    elif action is Action.status:
        _status(out, local, servers)
    else:
        _down(out, local, servers or NAMES, remove=remove, yes=yes)


def _status(out: Output, local: Stack, servers: Sequence[str] | None) -> None:
    standings = local.status(servers)
    data: list[Json] = [
        {
            "server": standing.name,
            "state": standing.state,
            "version": standing.version,
            "pid": standing.pid,
            "address": dict(standing.address),
            "log": str(standing.log),
        }
        for standing in standings
    ]
    rows = [(s.name, s.state, s.version, s.pid and str(s.pid), next(iter(s.address.values()), None)) for s in standings]
    nothing = f"no server was started in {local.folder}\n  → headwater stack up"
    shown = f"{table(('server', 'state', 'version', 'process', 'address'), rows)}\nlogs in {local.folder}"
    out.value({"folder": str(local.folder), "servers": data}, shown if standings else nothing)
    if not standings or any(standing.state != "running" for standing in standings):
        raise typer.Exit(_SOMETHING_IS_DOWN)


def _down(out: Output, local: Stack, names: Sequence[str], *, remove: bool, yes: bool) -> None:
    if remove:
        out.say(f"ends the servers of {local.folder} and deletes their data")
        if not yes:
            confirm(out, "remove")
    ended = local.down(names)
    if remove:
        local.remove()
    text = f"ended: {', '.join(ended)}" if ended else f"nothing that was started in {local.folder} is running"
    out.value({"ended": list(ended)}, text)
