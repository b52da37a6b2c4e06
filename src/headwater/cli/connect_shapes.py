"""Connectors and their states as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.cli.output import table

if TYPE_CHECKING:
    from headwater.model.marks import Json
    from headwater.services.connect.applying import Difference, Intention
    from headwater.services.connect.client import ConnectClient
    from headwater.services.connect.state import ConnectorState, Part

Offsets = Sequence[Mapping[str, "Json"]] | None


def summary(state: ConnectorState | None) -> str:
    """One line: `RUNNING, 1 task RUNNING`."""
    if state is None:
        return "not known to the worker yet"
    if not state.tasks:
        return f"{state.connector.state}, no tasks"
    counts: dict[str, int] = {}
    for task in state.tasks:
        counts[task.state] = counts.get(task.state, 0) + 1
    tasks = ", ".join(f"{count} task{'s' if count > 1 else ''} {name}" for name, count in counts.items())
    return f"{state.connector.state}, {tasks}"


def failures(state: ConnectorState | None, client: ConnectClient) -> list[str]:
    """A line for each part that failed: the first of its error, and the innermost cause."""
    if state is None:
        return []
    return [f"{state.name}{_of_task(part)} failed: {_error(part, client)}" for part in state.failed]


def applied_text(intention: Intention, state: ConnectorState | None) -> str:
    lines = [f"{intention.connector.name}: {intention.outcome}; {summary(state)}"]
    if intention.outcome == "changed":
        lines += [f"  {each.key}: {_side(each.before)} → {_side(each.after)}" for each in intention.differences]
    return "\n".join(lines)


def applied_json(intention: Intention, state: ConnectorState | None, client: ConnectClient) -> dict[str, Json]:
    changes = intention.differences if intention.outcome == "changed" else ()
    return {
        "name": intention.connector.name,
        "outcome": intention.outcome,
        "changes": [_change_json(each) for each in changes],
        "connector": None if state is None else state_json(state, client, None, trace=False),
    }


def state_json(state: ConnectorState, client: ConnectClient, offsets: Offsets, *, trace: bool) -> dict[str, Json]:
    return {
        "name": state.name,
        "type": state.kind,
        **_part_json(state.connector, client, trace=trace),
        "tasks": [{"task": task.task, **_part_json(task, client, trace=trace)} for task in state.tasks],
        "offsets": None if offsets is None else list(offsets),
    }


def states_text(
    states: Sequence[ConnectorState], client: ConnectClient, offsets: Mapping[str, Offsets], *, trace: bool
) -> str:
    rows = [
        (state.name, "" if part.task is None else f"task {part.task}", part.state, part.worker)
        for state in states
        for part in state.parts
    ]
    lines = [table(("connector", "", "state", "worker"), rows)]
    for state in states:
        for part in state.failed:
            what = f"{state.name}{_of_task(part)}"
            if trace:
                lines += [f"{what} failed:", client.without_secrets(part.trace.rstrip())]
            else:
                lines += [
                    f"{what} failed: {_error(part, client)}",
                    f"  → headwater connect status {state.name} --trace",
                ]
        lines += [f"{state.name} has come to {line}" for line in map(_offset_text, offsets[state.name] or ())]
    return "\n".join(lines)


def _offset_text(one: Mapping[str, Json]) -> str:
    """A sink's is a Kafka offset; a source's is in words of its own."""
    partition, offset = one.get("partition") or {}, one.get("offset") or {}
    if "kafka_topic" in partition:
        return f"{partition['kafka_topic']} {partition.get('kafka_partition')}: {offset.get('kafka_offset')}"
    return f"{json.dumps(partition, ensure_ascii=False)}: {json.dumps(offset, ensure_ascii=False)}"


def _part_json(part: Part, client: ConnectClient, *, trace: bool) -> dict[str, Json]:
    data: dict[str, Json] = {"state": part.state, "worker": part.worker}
    if part.trace:
        data |= {"error": client.without_secrets(part.error), "cause": client.without_secrets(part.cause)}
        data |= {"trace": client.without_secrets(part.trace)} if trace else {}
    return data


def _change_json(each: Difference) -> dict[str, Json]:
    return {"key": each.key, "before": each.before, "after": each.after}


def _error(part: Part, client: ConnectClient) -> str:
    cause = f"; caused by {part.cause}" if part.cause else ""
    return client.without_secrets(f"{part.error}{cause}") or "the worker does not say why"


def _of_task(part: Part) -> str:
    return "" if part.task is None else f" task {part.task}"


def _side(value: str | None) -> str:
    return "–" if value is None else value or '""'
