"""From a connector as it should be to one that runs so: what differs, is it valid, and does it start."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headwater.config.expected import closest
from headwater.model.errors import InputError
from headwater.services.connect.client import ConnectClient
from headwater.services.connect.connector_file import Connector
from headwater.services.connect.secrecy import secret_values, shown
from headwater.services.connect.state import ConnectorState, FieldErrors, Plugin

Outcome = Literal["created", "changed", "unchanged"]

_NEARLY = 0.85  # how alike: a slip of the finger, not another connector
_POLL_SECONDS = 0.25
# Right after a change a worker still reports the tasks that it is about to replace, and a task that runs may fail at
# its first poll: what is said must be said for so long.
_STEADY_SECONDS = 3.0


@dataclass(frozen=True)
class Difference:
    """One setting that is not as it should be; None: not there. Without secrets, for people."""

    key: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Intention:
    """What applying a connector would do."""

    connector: Connector
    outcome: Outcome
    differences: tuple[Difference, ...] = ()
    problems: tuple[FieldErrors, ...] = field(default=())


def intend(client: ConnectClient, connector: Connector, plugins: Sequence[Plugin]) -> Intention:
    """Compare with what the worker has, and let the connector's class look at what is new. Changes nothing."""
    client.hide(secret_values(connector.config))
    current = client.config(connector.name)
    if current == connector.config:
        return Intention(connector, "unchanged")
    problems, secret = validate(client, connector, plugins)
    outcome: Outcome = "created" if current is None else "changed"
    return Intention(connector, outcome, differences(connector, current or {}, secret), problems)


def validate(
    client: ConnectClient, connector: Connector, plugins: Sequence[Plugin]
) -> tuple[tuple[FieldErrors, ...], frozenset[str]]:
    """What the class has against the settings, and which of them it calls secret."""
    if not any(connector.kind in plugin.aliases for plugin in plugins):
        meant = closest(connector.kind, [plugin.name for plugin in plugins], _NEARLY)
        guess = f"; did you mean '{meant}'?" if meant else ""
        raise InputError(
            f"{connector.name}: the worker at {client.url} has no connector class {connector.kind}{guess}",
            hint=f"it has {_listed(plugins)}; put the connector's archive on the worker's plugin.path and restart it",
        )
    client.hide(secret_values(connector.config))
    answer = client.validate(connector.kind, connector.config)
    client.hide(secret_values(connector.config, answer.secret))
    problems = tuple(
        FieldErrors(problem.field, tuple(client.without_secrets(error) for error in problem.errors))
        for problem in answer.problems
    )
    return problems, answer.secret


def _listed(plugins: Sequence[Plugin]) -> str:
    return ", ".join(f"{plugin.name} {plugin.version}" for plugin in plugins) or "none at all"


def differences(
    connector: Connector, current: Mapping[str, str], secret: Collection[str] = ()
) -> tuple[Difference, ...]:
    """Setting by setting. What came from a variable is shown as it was written, and so is what it replaces hidden."""
    found = []
    for key in sorted({*connector.config, *current} - {"name"}):
        before, after = current.get(key), connector.config.get(key)
        if before == after:
            continue
        written = connector.written.get(key)
        from_variable = written is not None and written != after
        hidden = {*secret, key} if from_variable else secret
        found.append(
            Difference(
                key,
                None if before is None else shown(key, before, hidden),
                None if written is None else shown(key, written, secret),
            )
        )
    return tuple(found)


def wait_until_at_rest(
    client: ConnectClient, name: str, seconds: float, *, goal: str | None = None, changed: bool = True
) -> ConnectorState | None:
    """The connector's state once nothing moves any more, or after so many seconds whatever it is then.

    `goal`: the state that the connector itself must have reached. None: the worker does not know it (yet).
    """
    deadline = time.monotonic() + seconds
    steady, since = None, time.monotonic()
    while True:
        state = client.state(name)
        now = time.monotonic()
        there = state is not None and state.at_rest and (state.failed or goal in (None, state.connector.state))
        if not there or state != steady:
            steady, since = state, now
        if there and (not changed or now - since >= _STEADY_SECONDS):
            return state
        if now >= deadline:
            return state
        time.sleep(min(_POLL_SECONDS, max(deadline - now, 0.01)))
