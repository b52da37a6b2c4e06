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
from headwater.services.folder_lock import locked
from headwater.services.kafka_server import Kafka
from headwater.services.ports import is_free
from headwater.services.service import Recipe, Say, Service, State

Address = Mapping[str, str]
_FILE = "stack.json"

# In the order of their start. A recipe may need the addresses of those before it.
_RECIPES: Mapping[str, Callable[[Mapping[str, Address]], Recipe]] = {
    "kafka": lambda _: Kafka(),
}
_NEEDS: Mapping[str, Sequence[str]] = {}
NAMES = tuple(_RECIPES)


class Record(TypedDict):
    """What stack.json holds about one server."""

    version: str
    address: dict[str, str]
    pid: int | None
    started: str | None
    ports: dict[str, int]
    folder: str
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

    def __init__(self, folder: Path, say: Say = lambda _: None) -> None:
        self.folder, self._say = folder.absolute(), say

    def up(self, names: Sequence[str]) -> Mapping[str, Address]:
        """Start what does not run yet. Returns the addresses of what was asked for, when all of it answers."""
        for name in names:
            if name not in NAMES:
                raise InputError(f"no server is called '{name}'", hint=f"there are: {', '.join(NAMES)}")
        wanted = {needed for name in names for needed in (name, *_NEEDS.get(name, ()))}
        with locked(self.folder):
            for name in NAMES:
                if name in wanted:
                    self._up(name)
            return {name: self._read()[name]["address"] for name in NAMES if name in names}

    def _up(self, name: str) -> None:
        service = self._service(name)
        state = service.state()
        if state == "running":
            self._say(f"{name} is running already: {_shown(service.address)}")
            return
        if state == "not answering":
            raise EnvironmentFault(
                f"{name} runs (process {service.process.pid if service.process else None}) and does not answer",
                hint=f"look at {service.log}, or run: headwater stack down",
            )
        if not all(is_free(port) for port in service.ports.values()):
            service.ports = {}  # somebody took them while we were down
        self._say(f"{name} {service.recipe.version} starts")
        began = time.monotonic()
        try:
            service.launch(self._say)
            self._write(service)
            service.wait_until_ready()
        except BaseException:
            service.stop()
            self._write(service)
            raise
        self._say(f"{name} answers after {time.monotonic() - began:.1f} s: {_shown(service.address)}")

    def status(self) -> Sequence[Standing]:
        """Every server that was ever started here, asked now."""
        return [self._standing(self._service(name)) for name in NAMES if name in self._read()]

    def down(self) -> Sequence[str]:
        """End what runs here, last started first; returns its names. Data and ports stay for the next time."""
        ended = []
        with locked(self.folder):
            for name in reversed([name for name in NAMES if name in self._read()]):
                service = self._service(name)
                if service.process is not None and service.process.alive():
                    service.stop()
                    self._say(f"{name} has ended")
                    ended.append(name)
                self._write(service)
        return ended

    def _service(self, name: str) -> Service:
        records = self._read()
        recipe = _RECIPES[name]({known: record["address"] for known, record in records.items()})
        record = records.get(name)
        if record is None:
            return Service(recipe, self.folder / name)
        pid, started = record["pid"], record["started"]
        process = ChildProcess(pid, started) if pid and started else None
        return Service(recipe, Path(record["folder"]), ports=record["ports"], process=process)

    @staticmethod
    def _standing(service: Service) -> Standing:
        pid = service.process.pid if service.process else None
        return Standing(service.recipe.name, service.recipe.version, service.state(), pid, service.address, service.log)

    def _read(self) -> dict[str, Record]:
        try:
            return dict(json.loads((self.folder / _FILE).read_text()))
        except FileNotFoundError:
            return {}

    def _write(self, service: Service) -> None:
        running = service.process if service.process and service.process.alive() else None
        record: Record = {
            "version": service.recipe.version,
            "address": dict(service.address),
            "pid": running.pid if running else None,
            "started": running.started if running else None,
            "ports": service.ports,
            "folder": str(service.folder),
            "log": str(service.log),
        }
        scratch = self.folder / f"{_FILE}.new"
        scratch.write_text(json.dumps({**self._read(), service.recipe.name: record}, indent=2))
        scratch.replace(self.folder / _FILE)


def _shown(address: Address) -> str:
    return next(iter(address.values()))
