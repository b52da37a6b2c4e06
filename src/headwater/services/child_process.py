"""A process that may outlive the command that started it, and is never mistaken for another one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_POLL_SECONDS = 0.05
_KILL_SECONDS = 10.0

# Children that end while we run are reaped through these; those that outlive us must not make Python warn.
_started_here: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Launch:
    """How a server's process is started."""

    command: Sequence[str | Path]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: int | None = None  # root gives up its rights for servers that refuse them


@dataclass(frozen=True)
class ChildProcess:
    """A process by its id and the moment of its start: ids are given out again, the pair is not."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ChildProcess:
        return cls(pid, _moment_of_start(pid) or "gone")

    def alive(self) -> bool:
        if (here := _started_here.get(self.pid)) is not None:
            here.poll()
        return _moment_of_start(self.pid) == self.started

    def end(self, asked: signal.Signals, seconds: float) -> None:
        """Ask it to end; kill it when it has not done so after `seconds`. Returns when it is gone."""
        self._send(asked)
        if not self._gone_within(seconds):
            self.kill()

    def kill(self) -> None:
        """End it as a power cut would. Returns when it is gone."""
        self._send(signal.SIGKILL)
        self._gone_within(_KILL_SECONDS)

    def _send(self, what: signal.Signals) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):  # it ended by itself in between
                os.kill(self.pid, what)

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True


def spawn(launch: Launch, log: Path) -> ChildProcess:
    """Start the process in a session of its own: Ctrl-C at our terminal is not meant for it."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(launch.command), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/",
            env={**os.environ, **launch.environment}, start_new_session=True, **as_user(launch.user),
        )  # fmt: skip
    _started_here[process.pid] = process
    return ChildProcess.of(process.pid)


def as_user(user: int | None) -> dict[str, Any]:
    """What `subprocess` needs to run a program as that user; None stands for ourselves."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def _moment_of_start(pid: int) -> str | None:
    """The kernel's own word for when the process started; None when it is gone or has ended and waits for its parent."""
    if not Path("/proc/self/stat").exists():
        return _moment_by_ps(pid)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # A killed JVM's first thread ends before the others, and these still hold its ports.
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, ticks_since_boot = fields[0], fields[19]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None if state in "ZX" and threads <= 1 else f"{boot}+{ticks_since_boot}"


def _moment_by_ps(pid: int) -> str | None:
    shown = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, moment = shown.stdout.strip().partition(" ")
    return None if not moment or state.startswith("Z") else moment.strip()
