"""`headwater connect`: the connectors of a Kafka Connect cluster, from files, with their state and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.connect_shapes import applied_json, applied_text, state_json, states_text
from headwater.cli.connect_worker import (
    Env,
    Url,
    Wait,
    exit_unless_fine,
    opened_worker,
    seconds_of,
    see_through,
    variables,
)
from headwater.cli.output import Output, table
from headwater.model.errors import InputError

if TYPE_CHECKING:
    from headwater.model.errors import SettingsProblem
    from headwater.services.connect.applying import Intention
    from headwater.services.connect.client import ConnectClient
    from headwater.services.connect.state import ConnectorState

Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE…", help="JSON: a connector, or a list of them. `connect template` makes some."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The connector's name.")]


def apply(
    out: Output, flags: ProjectFlags, files: Files, *, env: Env = None, url: Url = None, wait: Wait = "60s"
) -> None:
    """Create connectors, or give them the settings of the files.

    Nothing is sent where nothing differs. What differs is validated first, all of it; then Headwater waits until every
    connector and task runs, and exits 1 with the error of one that does not.
    """
    from headwater.services.connect.applying import intend, wait_until_at_rest  # noqa: PLC0415 - not paid for by --help
    from headwater.services.connect.connector_file import read_connectors  # noqa: PLC0415

    seconds, connectors = seconds_of(wait), read_connectors(files, variables(env))
    with opened_worker(out, flags, url) as client:
        plugins = client.plugins()
        intentions = [intend(client, connector, plugins) for connector in connectors]
        _refuse_invalid(intentions)
        for intention in intentions:
            if intention.outcome != "unchanged":
                client.put(intention.connector.name, intention.connector.config)
                out.say(f"{intention.connector.name}: {intention.outcome}")
        states: dict[str, ConnectorState | None] = {}
        for intention in intentions:
            name, changed = intention.connector.name, intention.outcome != "unchanged"
            states[name] = wait_until_at_rest(client, name, seconds, changed=changed) if seconds else client.state(name)
        data = [applied_json(intention, states[intention.connector.name], client) for intention in intentions]
        text = [applied_text(intention, states[intention.connector.name]) for intention in intentions]
        out.value({"url": client.url, "connectors": data}, "\n".join(text))
        if seconds:
            exit_unless_fine(out, client, states, seconds)


def validate(out: Output, flags: ProjectFlags, files: Files, *, env: Env = None, url: Url = None) -> None:
    """Let connector classes look at the settings of the files.

    Prints what they have against each, and exits 2; changes nothing. Debezium also connects to its database.
    """
    from headwater.services.connect.applying import Intention  # noqa: PLC0415 - not paid for by --help
    from headwater.services.connect.applying import validate as ask  # noqa: PLC0415
    from headwater.services.connect.connector_file import read_connectors  # noqa: PLC0415

    connectors = read_connectors(files, variables(env))
    with opened_worker(out, flags, url) as client:
        plugins = client.plugins()
        asked = [Intention(each, "unchanged", problems=ask(client, each, plugins)[0]) for each in connectors]
        _refuse_invalid(asked)
        names = [connector.name for connector in connectors]
        data = {"url": client.url, "connectors": [{"name": name, "valid": True} for name in names]}
        out.value(data, "\n".join(f"{name}: valid" for name in names))


def status(
    out: Output,
    flags: ProjectFlags,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this connector.")] = None,
    *,
    url: Url = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="The whole error of what failed, not only its first line.")
    ] = False,
) -> None:
    """Show connectors and tasks, where they run, how far they are.

    Exits 1 if one of them has failed, with the first line of its error.
    """
    from headwater.services.connect.secrecy import secret_values  # noqa: PLC0415 - not paid for by --help

    with opened_worker(out, flags, url) as client:
        states, offsets = [], {}
        for each in client.names() if name is None else [name]:
            state, config = client.state(each), client.config(each)
            if state is None or config is None:
                if name is None:
                    continue  # deleted since it was listed
                raise client.known(each)
            client.hide(secret_values(config))
            states.append(state)
            offsets[each] = client.offsets(each)
        data = [state_json(state, client, offsets[state.name], trace=trace) for state in states]
        text = (
            states_text(states, client, offsets, trace=trace)
            if states
            else "no connectors\n  → headwater connect apply FILE"
        )
        out.value({"url": client.url, "connectors": data}, text)
        if any(state.failed for state in states):
            raise typer.Exit(1)


def restart(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    *,
    task: Annotated[int | None, typer.Option("--task", min=0, help="Only this task.")] = None,
    url: Url = None,
    wait: Wait = "60s",
) -> None:
    """Restart a connector with its tasks, or one task.

    A task that failed stays so until somebody does this. Exits 1 if it fails again.
    """
    seconds = seconds_of(wait)
    with opened_worker(out, flags, url) as client:
        state = _known(client, name)
        if task is not None and task not in {part.task for part in state.tasks}:
            numbers = ", ".join(str(part.task) for part in state.tasks)
            raise InputError(f"{name} has no task {task}", hint=f"it has {numbers}" if numbers else "it has none")
        client.restart(name, task)
        see_through(out, client, name, seconds)


def pause(out: Output, flags: ProjectFlags, name: Name, *, url: Url = None, wait: Wait = "60s") -> None:
    """Let a connector rest; its tasks stay where they are."""
    seconds = seconds_of(wait)
    with opened_worker(out, flags, url) as client:
        _turn(client, name, "pause")
        see_through(out, client, name, seconds, "PAUSED")


def resume(out: Output, flags: ProjectFlags, name: Name, *, url: Url = None, wait: Wait = "60s") -> None:
    """Let a connector go on that was paused or stopped."""
    seconds = seconds_of(wait)
    with opened_worker(out, flags, url) as client:
        _turn(client, name, "resume")
        see_through(out, client, name, seconds, "RUNNING")


def stop(out: Output, flags: ProjectFlags, name: Name, *, url: Url = None, wait: Wait = "60s") -> None:
    """End a connector's tasks; its settings and offsets stay."""
    seconds = seconds_of(wait)
    with opened_worker(out, flags, url) as client:
        _turn(client, name, "stop")
        see_through(out, client, name, seconds, "STOPPED")


def delete(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    *,
    url: Url = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a connector.

    Its topics stay, and so does what it made in its source, such as the replication slot.
    """
    from headwater.cli.rewind import confirm  # noqa: PLC0415 - not paid for by --help

    with opened_worker(out, flags, url) as client:
        config = client.config(name)
        if config is None:
            raise client.known(name)
        out.say(f"deletes the connector {name} ({config.get('connector.class')}) at {client.url}; its topics stay")
        slot = config.get("slot.name")
        if slot:
            out.say(
                f"  the slot '{slot}' stays as well, and keeps the log of {config.get('database.dbname')} "
                f"until it is dropped: SELECT pg_drop_replication_slot('{slot}')"
            )
        if not yes:
            confirm(out, "delete")
        client.delete(name)
        out.value({"url": client.url, "name": name, "deleted": True}, f"{name}: deleted")


def plugins(out: Output, flags: ProjectFlags, *, url: Url = None) -> None:
    """List the connector classes that the worker has."""
    with opened_worker(out, flags, url) as client:
        found = client.plugins()
        data = [{"class": plugin.name, "type": plugin.kind, "version": plugin.version} for plugin in found]
        rows = [(plugin.name, plugin.kind, plugin.version) for plugin in found]
        out.value({"url": client.url, "plugins": data}, table(("class", "type", "version"), rows))


def _turn(client: ConnectClient, name: str, action: str) -> None:
    _known(client, name)
    client.turn(name, action)


def _known(client: ConnectClient, name: str) -> ConnectorState:
    state = client.state(name)
    if state is None:
        raise client.known(name)
    return state


def _refuse_invalid(intentions: Sequence[Intention]) -> None:
    """Every field's error, with its place; nothing has been sent yet."""
    from headwater.config.problems import settings_error  # noqa: PLC0415 - not paid for by --help
    from headwater.services.connect.connector_file import problem_of  # noqa: PLC0415

    problems: list[SettingsProblem] = [
        problem_of(intention.connector, problem.field, " ".join(error.split()))
        for intention in intentions
        for problem in intention.problems
        for error in problem.errors
    ]
    if problems:
        raise settings_error(problems)
