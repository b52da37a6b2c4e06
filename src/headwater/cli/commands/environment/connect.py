"""`headwater connect`: the connectors of a Kafka Connect cluster, from files, with their state and their errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags, Yes, confirm, seconds_of
from headwater.cli.commands.environment.connector_output import (
    failures,
    plan_json,
    plan_text,
    state_json,
    states_text,
    summary,
)
from headwater.cli.output import Output, table
from headwater.model.errors import InputError
from headwater.model.json_codec import to_json

if TYPE_CHECKING:
    from headwater.model.errors import SettingsProblem
    from headwater.services.connect.apply import ConnectorPlan
    from headwater.services.connect.client import ConnectClient
    from headwater.services.connect.connector import ConnectorState

Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE…", help="JSON: a connector, or a list of them. `connect template` prints one."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The connector's name.")]


def apply(
    out: Output, flags: ProjectFlags, files: Files, *, env: Env = None, url: Url = None, wait: Wait = "60s"
) -> None:
    """Create connectors, or update them to the settings of the files.

    Sends nothing where nothing differs. Validates all changes first, then waits until every connector and task runs, and
    exits 1 with the error of one that does not.
    """
    from headwater.services.connect.apply import plan_connector, wait_until_settled
    from headwater.services.connect.connector import read_connectors

    seconds, connectors = seconds_of("--wait", wait), read_connectors(files, variables(env))
    with open_worker(out, flags, url) as client:
        plugins = client.plugins()
        plans = [plan_connector(client, connector, plugins) for connector in connectors]
        _refuse_invalid(plans)
        for plan in plans:
            if plan.outcome != "unchanged":
                client.put(plan.connector.name, plan.connector.config)
                out.say(f"{plan.connector.name}: {plan.outcome}")
        states: dict[str, ConnectorState | None] = {}
        for plan in plans:
            name, changed = plan.connector.name, plan.outcome != "unchanged"
            states[name] = wait_until_settled(client, name, seconds, changed=changed) if seconds else client.state(name)
        data = [plan_json(plan, states[plan.connector.name], client) for plan in plans]
        text = [plan_text(plan, states[plan.connector.name]) for plan in plans]
        out.value({"url": client.url, "connectors": data}, "\n".join(text))
        if seconds:
            exit_on_failure(out, client, states, seconds)


def validate(out: Output, flags: ProjectFlags, files: Files, *, env: Env = None, url: Url = None) -> None:
    """Let connector classes validate the settings of the files.

    Prints every problem, and exits 2; changes nothing. Debezium also connects to its database.
    """
    from headwater.services.connect.apply import ConnectorPlan, validate_connector
    from headwater.services.connect.connector import read_connectors

    connectors = read_connectors(files, variables(env))
    with open_worker(out, flags, url) as client:
        plugins = client.plugins()
        _refuse_invalid(
            [
                ConnectorPlan(connector, "unchanged", problems=validate_connector(client, connector, plugins)[0])
                for connector in connectors
            ]
        )
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
        bool, typer.Option("--trace", help="The whole stack trace of a failure, not only its first line.")
    ] = False,
) -> None:
    """Show connectors and tasks with their workers and offsets.

    Exits 1 if one of them has failed, with the first line of its error.
    """
    from headwater.services.connect.connector import secret_values

    with open_worker(out, flags, url) as client:
        states, offsets = [], {}
        for connector in client.names() if name is None else [name]:
            state, config = client.state(connector), client.config(connector)
            if state is None or config is None:
                if name is None:
                    continue  # deleted since it was listed
                raise client.unknown_connector(connector)
            client.hide(secret_values(config))
            states.append(state)
            offsets[connector] = client.offsets(connector)
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

    A failed task stays failed until it is restarted. Exits 1 if it fails again.
    """
    seconds = seconds_of("--wait", wait)
    with open_worker(out, flags, url) as client:
        numbers = [run.task for run in client.require_state(name).tasks]
        if task is not None and task not in numbers:
            raise InputError(f"{name} has no task {task}", hint=f"its tasks: {', '.join(map(str, numbers)) or 'none'}")
        client.restart(name, task)
        show_outcome(out, client, name, seconds)


@dataclass(frozen=True)
class Action:
    """A request to a connector that takes nothing but its name, and the state it leads to."""

    name: str
    goal: str
    help: str

    @property
    def command(self) -> Callable[..., None]:
        def run(out: Output, flags: ProjectFlags, name: Name, *, url: Url = None, wait: Wait = "60s") -> None:
            seconds = seconds_of("--wait", wait)
            with open_worker(out, flags, url) as client:
                client.require_state(name)
                client.change_state(name, self.name)
                show_outcome(out, client, name, seconds, self.goal)

        run.__name__, run.__doc__ = self.name, self.help
        return run


ACTIONS = (
    Action("pause", "PAUSED", "Pause a connector; its tasks keep their offsets."),
    Action("resume", "RUNNING", "Resume a connector that was paused or stopped."),
    Action("stop", "STOPPED", "Stop a connector's tasks; its settings and offsets stay."),
)


def delete(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    *,
    url: Url = None,
    yes: Yes = False,
) -> None:
    """Delete a connector.

    Its topics stay, and so does what it created in its source, such as the replication slot.
    """
    with open_worker(out, flags, url) as client:
        config = client.config(name)
        if config is None:
            raise client.unknown_connector(name)
        out.say(f"deletes the connector {name} ({config.get('connector.class')}) at {client.url}; its topics stay")
        slot = config.get("slot.name")
        if slot:
            out.say(
                f"  the slot '{slot}' stays too, and retains WAL of {config.get('database.dbname')} "
                f"until you drop it: SELECT pg_drop_replication_slot('{slot}')"
            )
        confirm(out, "delete", yes=yes)
        client.delete(name)
        out.value({"url": client.url, "name": name, "deleted": True}, f"{name}: deleted")


def plugins(out: Output, flags: ProjectFlags, *, url: Url = None) -> None:
    """List the connector classes of the worker."""
    with open_worker(out, flags, url) as client:
        worker_plugins = client.plugins()
        rows = [(plugin.name, plugin.type, plugin.version) for plugin in worker_plugins]
        out.value({"url": client.url, "plugins": to_json(worker_plugins)}, table(("class", "type", "version"), rows))


def _refuse_invalid(plans: Sequence[ConnectorPlan]) -> None:
    """Raise the errors of all fields, each with its line, before anything is sent."""
    from headwater.config.problems import settings_error
    from headwater.services.connect.connector import problem_of

    problems: list[SettingsProblem] = [
        problem_of(plan.connector, problem.field, " ".join(error.split()))
        for plan in plans
        for problem in plan.problems
        for error in problem.errors
    ]
    if problems:
        raise settings_error(problems)


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
    typer.Option("--env", metavar="FILE", help="A file with variables for `${NAME}`. Default: .env, if it exists."),
]
Wait = Annotated[
    str,
    typer.Option("--wait", metavar="DURATION", help="How long to wait until it runs or fails. 0s: do not wait."),
]


@contextmanager
def open_worker(out: Output, flags: ProjectFlags, url: str | None) -> Iterator[ConnectClient]:
    """The worker to use; says on stderr which one it is and where its address comes from."""
    from headwater.config.load import load_project
    from headwater.model.secret import masked
    from headwater.services.connect.client import ConnectClient, find_worker

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
    """The values of `${NAME}`: the environment's, else those of a `.env` file."""
    from headwater.pg.address import read_dotenv

    default = Path(".env")
    file = env or (default if default.exists() else None)
    return {**(read_dotenv(file) if file else {}), **os.environ}


def show_outcome(out: Output, client: ConnectClient, name: str, seconds: float, goal: str | None = None) -> None:
    """Wait for the outcome of a request, and show it."""
    from headwater.services.connect.apply import wait_until_settled

    starts = goal not in {"PAUSED", "STOPPED"}  # its tasks may fail after a moment
    state = wait_until_settled(client, name, seconds, goal=goal, changed=starts) if seconds else client.state(name)
    data = None if state is None else state_json(state, client, None, trace=False)
    out.value({"url": client.url, "connector": data}, f"{name}: {summary(state)}")
    if seconds:
        exit_on_failure(out, client, {name: state}, seconds, goal)


def exit_on_failure(
    out: Output,
    client: ConnectClient,
    states: Mapping[str, ConnectorState | None],
    seconds: float,
    goal: str | None = None,
) -> None:
    """Exit 1 with the error of a connector that failed, or is not ready in time."""
    errors: list[str] = []
    for name, state in states.items():
        hint = f"headwater connect status {name} --trace; then headwater connect restart {name}"
        errors += [f"error: {line}\n  → {hint}" for line in failures(state, client)]
        late = state is None or not state.settled or (goal is not None and state.connector.state != goal)
        if late and not (state and state.failed):
            errors.append(
                f"error: {name}: after {seconds:g} s it is {summary(state)}\n  → look again: headwater connect status {name}"
            )
    for error in errors:
        out.say(error)
    if errors:
        raise typer.Exit(1)
