"""The local stack: real servers under one folder, known by stack.json, ended only if we started them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from headwater.model.errors import EnvironmentFault, InputError
from headwater.services.child_process import ChildProcess
from headwater.services.connect_server import Connect
from headwater.services.folder_lock import locked
from headwater.services.kafka_server import Kafka
from headwater.services.ports import is_free
from headwater.services.postgres_server import Postgres
from headwater.services.s3_server import S3
from headwater.services.service import LOG, Recipe, Say, Service, State

Address = Mapping[str, str]
_FILE = "stack.json"

_MakesRecipe = Callable[[Mapping[str, Address]], Recipe]

# In the order of their start. A recipe may need the addresses of those before it.
RECIPES: Mapping[str, _MakesRecipe] = {
    "postgres": lambda _: Postgres(),
    "s3": lambda _: S3(),
    "kafka": lambda _: Kafka(),
    "connect": lambda addresses: Connect(addresses["kafka"]["brokers"]),
}
_NEEDS = {"connect": ("kafka",)}
NAMES = tuple(RECIPES)


class Record(TypedDict):
    """What stack.json holds about one server."""

    version: str
    address: dict[str, str]
    pid: int | None
    started: str | None
    ports: dict[str, int]
    log: str


@dataclass(frozen=True)
class Standing:
    """What is known about one server, and how it is now."""

    name: str
    version: str
    state: State
    pid: int | None
    address: Address
    log: Path


class Stack:
    """The servers of one folder. Several processes may use it at once: each change is made under the folder's lock."""

    def __init__(self, folder: Path, say: Say = lambda _: None, recipes: Mapping[str, _MakesRecipe] = RECIPES) -> None:
        self.folder, self._say, self._recipes = folder.absolute(), say, recipes

    def up(self, names: Sequence[str] = NAMES) -> Mapping[str, Address]:
        """Start what does not run yet. Returns the addresses of what was asked for, when all of it answers."""
        asked = _known(names)
        needed = {other for name in asked for other in _NEEDS.get(name, ())}
        with locked(self.folder):
            for name in NAMES:
                if name in {*asked, *needed}:
                    self._up(self._service(name))
            return {name: self._read()[name]["address"] for name in asked}

    def _up(self, service: Service) -> None:
        name, state = service.recipe.name, service.state()
        if state == "running":
            self._say(f"{name} is running already: {_shown(service.address)}")
            return
        if state == "not answering":
            raise EnvironmentFault(
                f"{name} runs (process {service.process and service.process.pid}) and does not answer",
                hint=f"look into {service.log}, or run: headwater stack down",
            )
        if not all(is_free(port) for port in service.ports.values()):
            service.ports = {}  # somebody took them while we were down
        self._say(f"{name} starts")
        began = time.monotonic()
        service.launch(self._say)
        try:
            # Before it answers: whoever interrupts us now can still end it with `down`.
            self._write(service)
            service.wait_until_ready()
        except BaseException:
            service.stop()
            self._write(service)
            raise
        seconds = time.monotonic() - began
        self._say(f"{name} ({service.recipe.version}) answers after {seconds:.1f} s: {_shown(service.address)}")

    def status(self, names: Sequence[str] | None = None) -> Sequence[Standing]:
        """The servers asked for, or every one that was ever started here, as they are now."""
        records = self._read()
        return [
            self._standing(name, records[name]) if name in records else self._never_started(name)
            for name in (list(records) if names is None else _known(names))
        ]

    def down(self, names: Sequence[str] = NAMES) -> Sequence[str]:
        """End what we started and what still runs, last started first. Data and ports stay for the next time."""
        asked = _known(names)
        ended: list[str] = []
        if not self._read():
            return ended  # and make no folder
        with locked(self.folder):
            for name in reversed([name for name in asked if name in self._read()]):
                service = self._service(name)
                if service.process is not None and service.process.alive():
                    service.stop()
                    self._say(f"{name} has ended")
                    ended.append(name)
                self._write(service)
        return ended

    def remove(self) -> None:
        """Delete what the servers keep. Only after `down`; nothing but what we made here is touched."""
        if not self._read():
            return
        with locked(self.folder):
            for name in self._read():
                self._service(name).remove()
            (self.folder / _FILE).unlink(missing_ok=True)

    def _service(self, name: str) -> Service:
        records = self._read()
        recipe = self._recipes[name]({known: record["address"] for known, record in records.items()})
        record = records.get(name)
        if record is None:
            return Service(recipe, self.folder / name)
        pid, started = record["pid"], record["started"]
        process = ChildProcess(pid, started) if pid and started else None
        return Service(recipe, self.folder / name, ports=record["ports"], process=process)

    def _standing(self, name: str, record: Record) -> Standing:
        state = self._service(name).state()
        return Standing(name, record["version"], state, record["pid"], record["address"], Path(record["log"]))

    def _never_started(self, name: str) -> Standing:
        return Standing(name, "", "down", None, {}, self.folder / name / LOG)

    def _read(self) -> dict[str, Record]:
        file = self.folder / _FILE
        try:
            return dict(json.loads(file.read_text()))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise EnvironmentFault(
                f"{file} cannot be read: {error}",
                hint=f"end the servers by hand (their process ids may be in it) and remove {file}",
            ) from error

    def _write(self, service: Service) -> None:
        running = service.process if service.process and service.process.alive() else None
        record: Record = {
            "version": service.recipe.version,
            "address": dict(service.address),
            "pid": running.pid if running else None,
            "started": running.started if running else None,
            "ports": service.ports,
            "log": str(service.log),
        }
        records = {**self._read(), service.recipe.name: record}
        scratch = self.folder / f"{_FILE}.new"
        scratch.write_text(json.dumps({name: records[name] for name in NAMES if name in records}, indent=2))
        scratch.replace(self.folder / _FILE)


def _known(names: Sequence[str]) -> Sequence[str]:
    for name in names:
        if name not in NAMES:
            raise InputError(f"no server is called '{name}'", hint=f"there are: {', '.join(NAMES)}")
    return [name for name in NAMES if name in names]


def _shown(address: Address) -> str:
    return next(iter(address.values()))
