"""One server of ours: started on ports that it keeps, asked whether it answers, stopped, started again."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

from headwater.model.errors import EnvironmentFault
from headwater.services.child_process import ChildProcess, Launch, spawn
from headwater.services.ports import free_port, is_free

Say = Callable[[str], None]
State = Literal["running", "not answering", "down"]

_READY_SECONDS = 120.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.1
_LOG_LINES = 12

LOG = "server.log"
ELSEWHERE = "elsewhere"  # a link in the service's folder, to data that had to live somewhere else


class Recipe(Protocol):
    """What there is to know about a kind of server. Holds settings, no state: `Service` runs it."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def port_names(self) -> Sequence[str]: ...

    @property
    def stop_signal(self) -> signal.Signals: ...

    def prepare(self, folder: Path, ports: Mapping[str, int], say: Say) -> Launch:
        """Fetch what is missing, make the data on the first start, write the settings. Called before every start."""
        ...

    def check(self, ports: Mapping[str, int]) -> None:
        """Ask the server something that only a working one answers. Raises EnvironmentFault within a few seconds."""
        ...

    def address(self, ports: Mapping[str, int]) -> Mapping[str, str]:
        """What a client needs to reach it."""
        ...


class Service:
    """A recipe, the folder it lives in, its ports, and the process that runs it if there is one."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        *,
        ports: Mapping[str, int] | None = None,
        process: ChildProcess | None = None,
    ) -> None:
        self.recipe, self.folder, self.process = recipe, folder, process
        self.ports = dict(ports or {})
        self._log_begins = 0

    @property
    def log(self) -> Path:
        return self.folder / LOG

    @property
    def address(self) -> Mapping[str, str]:
        return self.recipe.address(self.ports)

    def start(self, say: Say = lambda _: None) -> None:
        """Return when the server answers."""
        self.launch(say)
        self.wait_until_ready()

    def launch(self, say: Say = lambda _: None) -> None:
        """Start the process, on the ports of the last time if there was one."""
        for name in self.recipe.port_names:
            port = self.ports.setdefault(name, free_port())
            if not is_free(port):
                raise EnvironmentFault(
                    f"{self.recipe.name}: port {port} ({name}) is taken by another process",
                    hint="end that process, or remove the stack's folder to get other ports",
                )
        self.folder.mkdir(parents=True, exist_ok=True)
        launch = self.recipe.prepare(self.folder, self.ports, say)
        self._log_begins = self.log.stat().st_size if self.log.exists() else 0
        self.process = spawn(launch, self.log)

    def wait_until_ready(self, seconds: float = _READY_SECONDS) -> None:
        """Return when the server answers. Raises with the end of its log when it ends, or says nothing, instead."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.recipe.check(self.ports)
                return
            except EnvironmentFault as fault:
                if self.process is None or not self.process.alive():
                    raise self._failure("ended while it started") from None
                if time.monotonic() > deadline:
                    raise self._failure(f"did not answer within {seconds:g} s ({fault.message})") from None
            time.sleep(_POLL_SECONDS)

    def state(self) -> State:
        if self.process is None or not self.process.alive():
            return "down"
        try:
            self.recipe.check(self.ports)
        except EnvironmentFault:
            return "not answering"
        return "running"

    def stop(self) -> None:
        """An orderly end, with what is in memory written down."""
        if self.process is not None:
            self.process.end(self.recipe.stop_signal, _STOP_SECONDS)

    def kill(self) -> None:
        """The end that a power cut makes."""
        if self.process is not None:
            self.process.kill()

    def restart(self) -> None:
        """Stop and start on the same ports and data."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Delete its data and its log."""
        if (elsewhere := self.folder / ELSEWHERE).is_symlink():
            shutil.rmtree(elsewhere.readlink(), ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _failure(self, what: str) -> EnvironmentFault:
        with self.log.open("rb") as log:
            log.seek(self._log_begins)
            lines = log.read().decode(errors="replace").strip().splitlines()
        end = "\n".join(f"    {line}" for line in lines[-_LOG_LINES:]) or "    (empty)"
        return EnvironmentFault(f"{self.recipe.name} {what}; the end of its log:\n{end}", hint=f"all of it: {self.log}")


@contextmanager
def running(recipe: Recipe, folder: Path, say: Say = lambda _: None) -> Iterator[Service]:
    """The server for the block; its folder stays."""
    service = Service(recipe, folder)
    try:
        service.start(say)
        yield service
    finally:
        service.stop()
