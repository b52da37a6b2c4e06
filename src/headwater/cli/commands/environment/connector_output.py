"""Connectors and their states as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.cli.output import table
from headwater.model.json_codec import to_json

if TYPE_CHECKING:
    from headwater.model.position.marks import Json
    from headwater.services.connect.apply import ConnectorPlan
    from headwater.services.connect.client import ConnectClient
    from headwater.services.connect.connector import ConnectorState, RunState

Offsets = Sequence[Mapping[str, "Json"]] | None


def summary(state: ConnectorState | None) -> str:
    """One line: `RUNNING, 1 task RUNNING`."""
    if state is None:
        return "unknown to the worker yet"
    if not state.tasks:
        return f"{state.connector.state}, no tasks"
    counts: dict[str, int] = {}
    for task in state.tasks:
        counts[task.state] = counts.get(task.state, 0) + 1
    tasks = ", ".join(f"{count} task{'s' if count > 1 else ''} {name}" for name, count in counts.items())
    return f"{state.connector.state}, {tasks}"


def failures(state: ConnectorState | None, client: ConnectClient) -> list[str]:
    """A line per failed connector or task: the first of its error, and the innermost cause."""
    if state is None:
        return []
    return [f"{state.name}{_task_suffix(run)} failed: {_error(run, client)}" for run in state.failed]


def plan_text(plan: ConnectorPlan, state: ConnectorState | None) -> str:
    lines = [f"{plan.connector.name}: {plan.outcome}; {summary(state)}"]
    if plan.outcome == "changed":
        lines += [
            f"  {difference.key}: {_value(difference.before)} → {_value(difference.after)}"
            for difference in plan.differences
        ]
    return "\n".join(lines)


def plan_json(plan: ConnectorPlan, state: ConnectorState | None, client: ConnectClient) -> dict[str, Json]:
    changes = plan.differences if plan.outcome == "changed" else ()
    return {
        "name": plan.connector.name,
        "outcome": plan.outcome,
        "changes": to_json(changes),
        "connector": None if state is None else state_json(state, client, None, trace=False),
    }


def state_json(state: ConnectorState, client: ConnectClient, offsets: Offsets, *, trace: bool) -> dict[str, Json]:
    return {
        "name": state.name,
        "type": state.type,
        **_run_json(state.connector, client, trace=trace),
        "tasks": [{"task": task.task, **_run_json(task, client, trace=trace)} for task in state.tasks],
        "offsets": None if offsets is None else list(offsets),
    }


def states_text(
    states: Sequence[ConnectorState], client: ConnectClient, offsets: Mapping[str, Offsets], *, trace: bool
) -> str:
    rows = [
        (state.name, "" if run.task is None else f"task {run.task}", run.state, run.worker)
        for state in states
        for run in state.runs
    ]
    lines = [table(("connector", "", "state", "worker"), rows)]
    for state in states:
        for run in state.failed:
            title = f"{state.name}{_task_suffix(run)}"
            if trace:
                lines += [f"{title} failed:", client.without_secrets(run.trace.rstrip())]
            else:
                lines += [
                    f"{title} failed: {_error(run, client)}",
                    f"  → headwater connect status {state.name} --trace",
                ]
        lines += [f"{state.name} is at {line}" for line in map(_offset_text, offsets[state.name] or ())]
    return "\n".join(lines)


def _offset_text(entry: Mapping[str, Json]) -> str:
    """A sink has Kafka offsets; a source has its own format."""
    partition, offset = entry.get("partition") or {}, entry.get("offset") or {}
    if "kafka_topic" in partition:
        return f"{partition['kafka_topic']} {partition.get('kafka_partition')}: {offset.get('kafka_offset')}"
    return f"{json.dumps(partition, ensure_ascii=False)}: {json.dumps(offset, ensure_ascii=False)}"


def _run_json(run: RunState, client: ConnectClient, *, trace: bool) -> dict[str, Json]:
    data: dict[str, Json] = {"state": run.state, "worker": run.worker}
    if run.trace:
        data |= {"error": client.without_secrets(run.error), "cause": client.without_secrets(run.cause)}
        data |= {"trace": client.without_secrets(run.trace)} if trace else {}
    return data


def _error(run: RunState, client: ConnectClient) -> str:
    cause = f"; caused by {run.cause}" if run.cause else ""
    return client.without_secrets(f"{run.error}{cause}") or "no reason reported"


def _task_suffix(run: RunState) -> str:
    return "" if run.task is None else f" task {run.task}"


def _value(value: str | None) -> str:
    return "–" if value is None else value or '""'
