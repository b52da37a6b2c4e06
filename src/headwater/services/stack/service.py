"""One local server: a process that may outlive its command, fixed ports, health check, stop, restart."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from headwater.model.errors import EnvironmentFault

_PROCESS_POLL_SECONDS = 0.05
_KILL_SECONDS = 10.0

# Children that end first are reaped through these; those that outlive us must not make Python warn.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Launch:
    """The command line of a server."""

    command: Sequence[str | Path]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: int | None = None  # for servers that refuse to run as root


@dataclass(frozen=True)
class ChildProcess:
    """A process by its id and start time: ids are reused, the pair is not."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ChildProcess:
        return cls(pid, _start_time(pid) or "gone")

    def alive(self) -> bool:
        if (child := _children.get(self.pid)) is not None:
            child.poll()
        return _start_time(self.pid) == self.started

    def end(self, stop_signal: signal.Signals, seconds: float) -> None:
        """Send the signal; kill the process after `seconds`. Returns when it has ended."""
        self._send(stop_signal)
        if not self._wait_for_end(seconds):
            self.kill()

    def kill(self) -> None:
        """Kill it. Returns when it has ended."""
        self._send(signal.SIGKILL)
        self._wait_for_end(_KILL_SECONDS)

    def _send(self, number: signal.Signals) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):  # it ended in the meantime
                os.kill(self.pid, number)

    def _wait_for_end(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(_PROCESS_POLL_SECONDS)
        return True


def spawn(launch: Launch, log: Path) -> ChildProcess:
    """Start the process in its own session, so that Ctrl-C at our terminal does not reach it."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(launch.command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/",
            env={**os.environ, **launch.environment}, start_new_session=True, **as_user(launch.user),
        )  # fmt: skip
    _children[process.pid] = process
    return ChildProcess.of(process.pid)


def as_user(user: int | None) -> dict[str, Any]:
    """Arguments of `subprocess` to run a program as that user; None: as the current one."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def _start_time(pid: int) -> str | None:
    """The kernel's start time of the process; None if it has ended, or is a zombie."""
    if not Path("/proc/self/stat").exists():
        return _start_time_by_ps(pid)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # A killed JVM's first thread ends before the others, which still hold its ports.
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, ticks_since_boot = fields[0], fields[19]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None if state in "ZX" and threads <= 1 else f"{boot}+{ticks_since_boot}"


def _start_time_by_ps(pid: int) -> str | None:
    process = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, moment = process.stdout.strip().partition(" ")
    return None if not moment or state.startswith("Z") else moment.strip()


Say = Callable[[str], None]
State = Literal["running", "not answering", "down"]

_READY_SECONDS = 120.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.1
_LOG_LINES = 12

LOG = "server.log"
DATA_LINK = "elsewhere"  # a link in the service's folder, to data in another folder


class Recipe(Protocol):
    """The description of a server type. Holds settings, no state: `Service` runs it."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def port_names(self) -> Sequence[str]: ...

    @property
    def stop_signal(self) -> signal.Signals: ...

    def prepare(self, folder: Path, ports: Mapping[str, int], say: Say) -> Launch:
        """Fetch files, create the data on the first start, write the settings. Called before every start."""
        ...

    def check(self, ports: Mapping[str, int]) -> None:
        """Send a request that only a working server answers. Raises EnvironmentFault within a few seconds."""
        ...

    def address(self, ports: Mapping[str, int]) -> Mapping[str, str]:
        """The connection settings for a client."""
        ...


class Service:
    """A recipe with its folder, its ports, and its process if it runs."""

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
        self._log_offset = 0

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
        """Start the process, on the ports of its last start."""
        for name in self.recipe.port_names:
            port = self.ports.setdefault(name, free_port())
            if not is_free(port):
                raise EnvironmentFault(
                    f"{self.recipe.name}: port {port} ({name}) is in use by another process",
                    hint="stop that process, or remove the stack's folder to get other ports",
                )
        self.folder.mkdir(parents=True, exist_ok=True)
        launch = self.recipe.prepare(self.folder, self.ports, say)
        self._log_offset = self.log.stat().st_size if self.log.exists() else 0
        self.process = spawn(launch, self.log)

    def wait_until_ready(self, seconds: float = _READY_SECONDS) -> None:
        """Return when the server answers. Raises with the end of its log if it exits or does not answer in time."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.recipe.check(self.ports)
                return
            except EnvironmentFault as fault:
                if self.process is None or not self.process.alive():
                    raise self._failure("exited during its start") from None
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
        """Stop it in order, with everything flushed to disk."""
        if self.process is not None:
            self.process.end(self.recipe.stop_signal, _STOP_SECONDS)

    def kill(self) -> None:
        """Kill it, as a power cut would."""
        if self.process is not None:
            self.process.kill()

    def restart(self) -> None:
        """Stop and start on the same ports and data."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Delete its data and its log."""
        if (link := self.folder / DATA_LINK).is_symlink():
            shutil.rmtree(link.readlink(), ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _failure(self, problem: str) -> EnvironmentFault:
        with self.log.open("rb") as log:
            log.seek(self._log_offset)
            lines = log.read().decode(errors="replace").strip().splitlines()
        end = "\n".join(f"    {line}" for line in lines[-_LOG_LINES:]) or "    (empty)"
        return EnvironmentFault(
            f"{self.recipe.name} {problem}; the end of its log:\n{end}", hint=f"the whole log: {self.log}"
        )


@contextmanager
def running(recipe: Recipe, folder: Path, say: Say = lambda _: None) -> Iterator[Service]:
    """The server for the block; its folder stays."""
    service = Service(recipe, folder)
    try:
        service.start(say)
        yield service
    finally:
        service.stop()


# Below the range of outgoing connections (32768 and up on Linux, 49152 on macOS): a client that keeps calling a stopped
# server's port in that range can connect to itself and block the port.
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
_MAX_TRIES = 200


def free_port() -> int:
    """A port without a listener."""
    for _ in range(_MAX_TRIES):
        port = random.randint(_FIRST_PORT, _LAST_PORT)  # noqa: S311 - no secret; spreads processes that choose at the same time
        if is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether a server can listen there; connections in TIME_WAIT do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
