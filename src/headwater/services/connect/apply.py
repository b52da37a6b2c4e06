"""Applies connector settings: differences, validation, and the wait for a settled state."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headwater.model.errors import InputError, closest
from headwater.services.connect.client import ConnectClient
from headwater.services.connect.connector import Connector, ConnectorState, FieldErrors, Plugin, display, secret_values

Outcome = Literal["created", "changed", "unchanged"]

_SIMILARITY = 0.85  # a typing error, not another connector
_POLL_SECONDS = 0.25
# Right after a change a worker still reports the tasks that it is about to replace, and a running task may fail at
# its first poll: a state counts only when it lasts this long.
_STEADY_SECONDS = 3.0


@dataclass(frozen=True)
class Difference:
    """A setting that differs; None: absent. For people, without secrets."""

    key: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class ConnectorPlan:
    """What applying a connector does."""

    connector: Connector
    outcome: Outcome
    differences: tuple[Difference, ...] = ()
    problems: tuple[FieldErrors, ...] = ()


def plan_connector(client: ConnectClient, connector: Connector, plugins: Sequence[Plugin]) -> ConnectorPlan:
    """Compare with the worker's settings, and let the connector's class validate changes. Changes nothing."""
    client.hide(secret_values(connector.config))
    current = client.config(connector.name)
    if current == connector.config:
        return ConnectorPlan(connector, "unchanged")
    problems, secret = validate_connector(client, connector, plugins)
    outcome: Outcome = "created" if current is None else "changed"
    return ConnectorPlan(connector, outcome, differences(connector, current or {}, secret), problems)


def validate_connector(
    client: ConnectClient, connector: Connector, plugins: Sequence[Plugin]
) -> tuple[tuple[FieldErrors, ...], frozenset[str]]:
    """The class's problems with the settings, and the fields that it declares secret."""
    if not any(connector.connector_class in plugin.aliases for plugin in plugins):
        suggestion = closest(connector.connector_class, [plugin.name for plugin in plugins], _SIMILARITY)
        question = f"; did you mean '{suggestion}'?" if suggestion else ""
        raise InputError(
            f"{connector.name}: the worker at {client.url} has no connector class {connector.connector_class}{question}",
            hint=f"it has {_plugin_list(plugins)}; put the connector's archive on the worker's plugin.path and restart it",
        )
    client.hide(secret_values(connector.config))
    validation = client.validate(connector.connector_class, connector.config)
    client.hide(secret_values(connector.config, validation.secret))
    problems = tuple(
        FieldErrors(problem.field, tuple(client.without_secrets(error) for error in problem.errors))
        for problem in validation.problems
    )
    return problems, validation.secret


def _plugin_list(plugins: Sequence[Plugin]) -> str:
    return ", ".join(f"{plugin.name} {plugin.version}" for plugin in plugins) or "none"


def differences(
    connector: Connector, current: Mapping[str, str], secret: Collection[str] = ()
) -> tuple[Difference, ...]:
    """Setting by setting. A value from a variable is shown as written, and the value that it replaces is masked."""
    changes = []
    for key in sorted({*connector.config, *current} - {"name"}):
        before, after = current.get(key), connector.config.get(key)
        if before == after:
            continue
        text = connector.written.get(key)
        from_variable = text is not None and text != after
        secret_keys = {*secret, key} if from_variable else secret
        changes.append(
            Difference(
                key,
                None if before is None else display(key, before, secret_keys),
                None if text is None else display(key, text, secret),
            )
        )
    return tuple(changes)


def wait_until_settled(
    client: ConnectClient, name: str, seconds: float, *, goal: str | None = None, changed: bool = True
) -> ConnectorState | None:
    """The connector's state once it is settled, or its state after `seconds`.

    `goal`: the state that the connector itself must reach. Returns None if the worker does not know it (yet).
    """
    deadline = time.monotonic() + seconds
    steady, since = None, time.monotonic()
    while True:
        state = client.state(name)
        now = time.monotonic()
        reached = state is not None and state.settled and (state.failed or goal in (None, state.connector.state))
        if not reached or state != steady:
            steady, since = state, now
        if reached and (not changed or now - since >= _STEADY_SECONDS):
            return state
        if now >= deadline:
            return state
        time.sleep(min(_POLL_SECONDS, max(deadline - now, 0.01)))
