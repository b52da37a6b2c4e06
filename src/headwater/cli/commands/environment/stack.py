"""`headwater stack`: real servers on this machine, for experiments with pipelines."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import Yes, confirm
from headwater.cli.output import Output, table
from headwater.model.errors import InputError
from headwater.model.json_codec import to_json

if TYPE_CHECKING:
    from headwater.services.stack.stack import Stack

_NOT_RUNNING = 3


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
            help="up: start servers. status: check each; exits 3 if one is down. down: stop servers that `up` started.",
        ),
    ],
    servers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[kafka|connect|postgres|s3]…",
            help="Which servers. Default: all. Connect needs Kafka and starts it.",
        ),
    ] = None,
    *,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="The folder of data, logs and stack.json.")
    ] = Path(".headwater/stack"),
    remove: Annotated[
        bool, typer.Option("--remove", help="With down: also delete the servers' data. Asks first.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Start, check or stop local servers for experiments.

    Kafka, Kafka Connect with Debezium, PostgreSQL and S3: real ones, without Docker, on loopback and free ports. They keep
    running after the command, and restart on the same ports with the same data.
    """
    from headwater.services.stack.stack import NAMES, Stack

    if remove and (action is not Action.down or servers):
        raise InputError("--remove deletes the data of all servers", hint="headwater stack down --remove")
    local_stack = Stack(folder, out.say)
    if action is Action.up:
        addresses = local_stack.up(servers or NAMES)
        rows = [(server, key, value) for server, address in addresses.items() for key, value in address.items()]
        out.value({server: dict(address) for server, address in addresses.items()}, table(("server", "", ""), rows))
    elif action is Action.status:
        _status(out, local_stack, servers)
    else:
        _down(out, local_stack, servers or NAMES, remove=remove, yes=yes)


def _status(out: Output, local: Stack, names: Sequence[str] | None) -> None:
    servers = local.status(names)
    rows = [
        (
            server.name,
            server.state,
            server.version,
            server.pid and str(server.pid),
            next(iter(server.address.values()), None),
        )
        for server in servers
    ]
    empty_text = f"no servers in {local.folder}\n  → headwater stack up"
    text = f"{table(('server', 'state', 'version', 'process', 'address'), rows)}\nlogs in {local.folder}"
    out.value({"folder": str(local.folder), "servers": to_json(servers)}, text if servers else empty_text)
    if not servers or any(server.state != "running" for server in servers):
        raise typer.Exit(_NOT_RUNNING)


def _down(out: Output, local: Stack, names: Sequence[str], *, remove: bool, yes: bool) -> None:
    if remove:
        out.say(f"stops the servers of {local.folder} and deletes their data")
        confirm(out, "remove", yes=yes)
    stopped = local.down(names)
    if remove:
        local.remove()
    text = f"stopped: {', '.join(stopped)}" if stopped else f"no server of {local.folder} is running"
    out.value({"ended": list(stopped)}, text)
