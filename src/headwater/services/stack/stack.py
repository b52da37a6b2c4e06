"""The local stack: real servers in one folder, recorded in stack.json; only servers started here are stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from headwater.model.errors import EnvironmentFault, InputError
from headwater.model.json_codec import json_name
from headwater.services.jars import lock_folder
from headwater.services.stack.kafka import Connect, Kafka
from headwater.services.stack.postgres import Postgres
from headwater.services.stack.s3 import S3
from headwater.services.stack.service import LOG, ChildProcess, Recipe, Say, Service, State, is_free

Address = Mapping[str, str]
_FILE = "stack.json"

_RecipeFactory = Callable[[Mapping[str, Address]], Recipe]

# In the order of their start. A recipe may need the addresses of those before it.
RECIPES: Mapping[str, _RecipeFactory] = {
    "postgres": lambda _: Postgres(),
    "s3": lambda _: S3(),
    "kafka": lambda _: Kafka(),
    "connect": lambda addresses: Connect(addresses["kafka"]["brokers"]),
}
_NEEDS = {"connect": ("kafka",)}
NAMES = tuple(RECIPES)


class Record(TypedDict):
    """The entry of one server in stack.json."""

    version: str
    address: dict[str, str]
    pid: int | None
    started: str | None
    ports: dict[str, int]
    log: str


@dataclass(frozen=True)
class ServerStatus:
    """One server of the stack and its current state."""

    name: str = field(metadata=json_name("server"))
    state: State
    version: str
    pid: int | None
    address: Address
    log: Path


class Stack:
    """The servers of one folder. Several processes may use it: each change holds the folder's lock."""

    def __init__(
        self, folder: Path, say: Say = lambda _: None, recipes: Mapping[str, _RecipeFactory] = RECIPES
    ) -> None:
        self.folder, self._say, self._recipes = folder.absolute(), say, recipes

    def up(self, names: Sequence[str] = NAMES) -> Mapping[str, Address]:
        """Start servers that do not run. Returns the requested addresses when all of them answer."""
        requested = _check_names(names)
        needed = {other for name in requested for other in _NEEDS.get(name, ())}
        with lock_folder(self.folder):
            for name in NAMES:
                if name in {*requested, *needed}:
                    self._up(self._service(name))
            return {name: self._read()[name]["address"] for name in requested}

    def _up(self, service: Service) -> None:
        name, state = service.recipe.name, service.state()
        if state == "running":
            self._say(f"{name} already runs: {_first_address(service.address)}")
            return
        if state == "not answering":
            raise EnvironmentFault(
                f"{name} runs (process {service.process and service.process.pid}) and does not answer",
                hint=f"read {service.log}, or run: headwater stack down",
            )
        if not all(is_free(port) for port in service.ports.values()):
            service.ports = {}  # another process took them in the meantime
        self._say(f"{name} starts")
        began = time.monotonic()
        service.launch(self._say)
        try:
            # Before it answers: after an interrupt here, `down` can still stop it.
            self._write(service)
            service.wait_until_ready()
        except BaseException:
            service.stop()
            self._write(service)
            raise
        seconds = time.monotonic() - began
        self._say(f"{name} ({service.recipe.version}) answers after {seconds:.1f} s: {_first_address(service.address)}")

    def status(self, names: Sequence[str] | None = None) -> Sequence[ServerStatus]:
        """The current state of these servers, or of all that were ever started here."""
        records = self._read()
        return [
            self._server_status(name, records[name]) if name in records else self._never_started(name)
            for name in (list(records) if names is None else _check_names(names))
        ]

    def down(self, names: Sequence[str] = NAMES) -> Sequence[str]:
        """Stop servers that were started here, the last one first. Data and ports stay for the next start."""
        requested = _check_names(names)
        ended: list[str] = []
        if not self._read():
            return ended  # without creating a folder
        with lock_folder(self.folder):
            for name in reversed([name for name in requested if name in self._read()]):
                service = self._service(name)
                if service.process is not None and service.process.alive():
                    service.stop()
                    self._say(f"{name} stopped")
                    ended.append(name)
                self._write(service)
        return ended

    def remove(self) -> None:
        """Delete the servers' data, and nothing else. Only after `down`."""
        if not self._read():
            return
        with lock_folder(self.folder):
            for name in self._read():
                self._service(name).remove()
            (self.folder / _FILE).unlink(missing_ok=True)

    def _service(self, name: str) -> Service:
        records = self._read()
        recipe = self._recipes[name]({other: record["address"] for other, record in records.items()})
        record = records.get(name)
        if record is None:
            return Service(recipe, self.folder / name)
        pid, started = record["pid"], record["started"]
        process = ChildProcess(pid, started) if pid and started else None
        return Service(recipe, self.folder / name, ports=record["ports"], process=process)

    def _server_status(self, name: str, record: Record) -> ServerStatus:
        state = self._service(name).state()
        return ServerStatus(name, state, record["version"], record["pid"], record["address"], Path(record["log"]))

    def _never_started(self, name: str) -> ServerStatus:
        return ServerStatus(name, "down", "", None, {}, self.folder / name / LOG)

    def _read(self) -> dict[str, Record]:
        file = self.folder / _FILE
        try:
            return dict(json.loads(file.read_text()))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise EnvironmentFault(
                f"{file} cannot be read: {error}",
                hint=f"stop the servers by hand (it may hold their process ids) and remove {file}",
            ) from error

    def _write(self, service: Service) -> None:
        process = service.process if service.process and service.process.alive() else None
        record: Record = {
            "version": service.recipe.version,
            "address": dict(service.address),
            "pid": process.pid if process else None,
            "started": process.started if process else None,
            "ports": service.ports,
            "log": str(service.log),
        }
        records = {**self._read(), service.recipe.name: record}
        scratch = self.folder / f"{_FILE}.new"
        scratch.write_text(json.dumps({name: records[name] for name in NAMES if name in records}, indent=2))
        scratch.replace(self.folder / _FILE)


def _check_names(names: Sequence[str]) -> Sequence[str]:
    for name in names:
        if name not in NAMES:
            raise InputError(f"unknown server '{name}'", hint=f"servers: {', '.join(NAMES)}")
    return [name for name in NAMES if name in names]


def _first_address(address: Address) -> str:
    return next(iter(address.values()))
