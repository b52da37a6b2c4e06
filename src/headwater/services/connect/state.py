"""What a worker says about its plugins and connectors, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.model.marks import Json

RUNNING, FAILED = "RUNNING", "FAILED"
_AT_REST = {RUNNING, FAILED, "PAUSED", "STOPPED"}
_CAUSED_BY = re.compile(r"^Caused by: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Plugin:
    """A connector class that a worker has."""

    name: str
    kind: str  # source, sink
    version: str

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Plugin:
        return cls(str(data["class"]), str(data["type"]), str(data.get("version") or ""))

    @property
    def aliases(self) -> tuple[str, ...]:
        """What Connect takes for the class: its name, without its package, and without `Connector` at its end."""
        simple = self.name.rpartition(".")[2]
        return self.name, simple, simple.removesuffix("Connector")


@dataclass(frozen=True)
class Part:
    """A connector itself, or one of its tasks."""

    state: str
    worker: str
    trace: str = ""
    task: int | None = None  # None: the connector itself

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Part:
        return cls(data["state"], data.get("worker_id", ""), data.get("trace") or "", data.get("id"))

    @property
    def error(self) -> str:
        """The first line of the trace."""
        return self.trace.splitlines()[0].strip() if self.trace.strip() else ""

    @property
    def cause(self) -> str:
        """The innermost cause: the first line often only says that something else went wrong."""
        found: Sequence[str] = _CAUSED_BY.findall(self.trace)
        return found[-1].strip() if found else ""


@dataclass(frozen=True)
class ConnectorState:
    """A connector and its tasks, as the worker that was asked knows them."""

    name: str
    kind: str
    connector: Part
    tasks: tuple[Part, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> ConnectorState:
        tasks = sorted((Part.from_json(task) for task in data["tasks"]), key=lambda part: part.task or 0)
        return cls(data["name"], data.get("type", ""), Part.from_json(data["connector"]), tuple(tasks))

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.connector, *self.tasks

    @property
    def failed(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.state == FAILED)

    @property
    def at_rest(self) -> bool:
        """Nothing is being started, stopped or moved. A connector that runs has tasks; one that was stopped has none."""
        if self.connector.state == RUNNING and not self.tasks:
            return False
        return all(part.state in _AT_REST for part in self.parts) and not self._on_the_way

    @property
    def _on_the_way(self) -> bool:
        """The connector rests or runs, and its tasks do not yet."""
        goal = self.connector.state
        if goal == "STOPPED":
            return bool(self.tasks)
        return goal in {RUNNING, "PAUSED"} and any(task.state not in {goal, FAILED} for task in self.tasks)


@dataclass(frozen=True)
class FieldErrors:
    """What a connector has to say against one of its settings."""

    field: str
    errors: tuple[str, ...]


@dataclass(frozen=True)
class Validation:
    """A connector's own look at its settings."""

    problems: tuple[FieldErrors, ...]
    secret: frozenset[str]  # fields of type PASSWORD

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Validation:
        problems, secret = [], set()
        for config in data["configs"]:
            value, definition = config["value"], config.get("definition") or {}
            if definition.get("type") == "PASSWORD":
                secret.add(value["name"])
            if value.get("errors"):
                problems.append(FieldErrors(value["name"], tuple(value["errors"])))
        return cls(tuple(problems), frozenset(secret))
