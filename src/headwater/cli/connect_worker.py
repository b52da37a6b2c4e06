"""What the commands of `headwater connect` share: which worker, how long to wait, and when to exit 1."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.connect_shapes import failures, state_json, summary
from headwater.cli.output import Output
from headwater.model.errors import InputError

if TYPE_CHECKING:
    from headwater.services.connect.client import ConnectClient
    from headwater.services.connect.state import ConnectorState

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="A worker. Default: HEADWATER_CONNECT_URL, headwater.yaml, the local stack, http://localhost:8083.",
    ),
]
Env = Annotated[
    Path | None,
    typer.Option("--env", metavar="FILE", help="A file with variables for `${NAME}`. Default: .env, if it is there."),
]
Wait = Annotated[
    str,
    typer.Option("--wait", metavar="DURATION", help="How long it may take until it runs or fails. 0s: do not wait."),
]


@contextmanager
def opened_worker(out: Output, flags: ProjectFlags, url: str | None) -> Iterator[ConnectClient]:
    """The worker that is meant; people are told which, and why that one."""
    from headwater.config.loading import load_project  # noqa: PLC0415 - not paid for by --help
    from headwater.model.secret import masked  # noqa: PLC0415
    from headwater.services.connect.address import find_worker  # noqa: PLC0415
    from headwater.services.connect.client import ConnectClient  # noqa: PLC0415

    folder = flags.folder or Path.cwd()
    settings = load_project(folder, flags.overrides).connect
    address = find_worker(url, os.environ, settings, folder)
    if address.origin != "--url":
        out.say(f"Kafka Connect at {masked(address.url)} ({address.origin})")
    client = ConnectClient(address.url, settings.username, settings.password)
    try:
        yield client
    finally:
        client.close()


def variables(env: Path | None) -> Mapping[str, str]:
    """What `${NAME}` is replaced from: the environment, and what it does not have from a `.env` file."""
    from headwater.sources.postgres.readiness.dotenv import read_dotenv  # noqa: PLC0415 - not paid for by --help

    usual = Path(".env")
    file = env or (usual if usual.exists() else None)
    return {**(read_dotenv(file) if file else {}), **os.environ}


def see_through(out: Output, client: ConnectClient, name: str, seconds: float, goal: str | None = None) -> None:
    """Wait for what an order leads to, and show it."""
    from headwater.services.connect.applying import wait_until_at_rest  # noqa: PLC0415 - not paid for by --help

    state = wait_until_at_rest(client, name, seconds, goal=goal) if seconds else client.state(name)
    data = None if state is None else state_json(state, client, None, trace=False)
    out.value({"url": client.url, "connector": data}, f"{name}: {summary(state)}")
    if seconds:
        exit_unless_fine(out, client, {name: state}, seconds, goal)


def exit_unless_fine(
    out: Output,
    client: ConnectClient,
    states: Mapping[str, ConnectorState | None],
    seconds: float,
    goal: str | None = None,
) -> None:
    """Exit 1 with the error of what failed, or of what is not there in time."""
    bad = False
    for name, state in states.items():
        for line in failures(state, client):
            out.say(
                f"error: {line}\n  → headwater connect status {name} --trace; then headwater connect restart {name}"
            )
            bad = True
        late = state is None or not state.at_rest or (goal is not None and state.connector.state != goal)
        if late and not (state and state.failed):
            out.say(
                f"error: {name}: after {seconds:g} s it is {summary(state)}\n  → look again: headwater connect status {name}"
            )
            bad = True
    if bad:
        raise typer.Exit(1)


def seconds_of(wait: str) -> float:
    from headwater.config.frozen import parse_duration  # noqa: PLC0415 - not paid for by --help

    try:
        return parse_duration(wait).total_seconds()
    except ValueError as error:
        raise InputError(f"--wait {wait}: {error}") from error
