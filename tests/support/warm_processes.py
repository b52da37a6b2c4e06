"""Processes without a cold start: forked from one that has imported everything already.

Tests start hundreds of processes, and most of their time would go into imports. A forked one has its own environment,
folder and pipes, and dies its own death. Commands of the documentation do not pay for a JVM either: they borrow the
worker's, with a Spark session and a catalog of their own. `WARM_JVM` in their environment says which one.

    warm_processes.py SOCKET     serves requests on a Unix socket until its stdin ends
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headwater.testing.crashes import borrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGES = ("headwater.engine", "headwater.pg", "headwater.progress", "headwater.sinks", "headwater.sources")
_MODULES = ("headwater.api", "headwater.cli.main", "pyspark.sql")
# Sends its arguments, folder, environment and pipes, and ends as the other process ended.
_CLIENT = """\
#!{python} -SI
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = json.dumps([os.path.basename(sys.argv[0]), sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
server.sendall(request)
status = int(server.recv(16) or b"-9")
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


class WarmPrograms(NamedTuple):
    """What to start instead of a cold Python."""

    child: Path  # `child SCRIPT ARGUMENT…`: a Python; to kill it from outside kills only who waits for it
    commands: Path  # a folder for the PATH, with `headwater` in it


@functools.cache
def warm_programs() -> WarmPrograms:
    """Served by a process of this one's own; the end of this one ends it."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-warm-"))
    address = folder / "socket"
    (folder / "commands").mkdir()
    programs = WarmPrograms(folder / "child", folder / "commands")
    for program in (programs.child, programs.commands / "headwater"):
        program.write_text(_CLIENT.format(python=sys.executable, address=str(address)))
        program.chmod(0o755)
    command = [sys.executable, __file__, str(address)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return programs


def main(address: Path) -> None:
    _import_everything()
    gc.freeze()  # so that no child copies, by looking at it, what it shares
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        _end_with_stdin(address.parent)
        request = _wait_for_request(listener)
    _become(request)


def _import_everything() -> None:
    for name in _MODULES:
        importlib.import_module(name)
    for name in _PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(module.name)


def _end_with_stdin(folder: Path) -> None:
    """A process that reads until the parent is gone, and then ends this one."""
    server = os.getpid()
    if os.fork() == 0:
        sys.stdin.buffer.read()
        os.kill(server, signal.SIGTERM)
        shutil.rmtree(folder)
        os._exit(0)


def _wait_for_request(listener: socket.socket) -> Request:
    """Returns in the process that was asked for alone: the server never comes back from here."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            break
        connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    listener.close()
    head, pipes, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as stream:
        request = Request(*json.loads(stream.read(int.from_bytes(head, "big"))))
    asked_for = os.fork()
    if asked_for:
        for pipe in pipes:
            os.close(pipe)
        _, status = os.waitpid(asked_for, 0)
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    return request


class Request(NamedTuple):
    """A process as its parent wants it."""

    program: str
    arguments: Sequence[str]
    folder: str
    environment: Mapping[str, str]


def _become(request: Request) -> None:
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    if jvm := os.environ.pop("WARM_JVM", None):
        _own_session(json.loads(jvm))
    if request.program == "headwater":
        from headwater.cli.main import main as headwater

        headwater(request.arguments)
    else:
        sys.argv = list(request.arguments)
        sys.path[0] = str(Path(request.arguments[0]).absolute().parent)
        runpy.run_path(request.arguments[0], run_name="__main__")


def _own_session(jvm: Mapping[str, str]) -> None:
    """A session beside the worker's: PySpark gives it to whoever asks this process for one, with their settings."""
    from pyspark.sql import SparkSession

    os.environ.update(jvm)
    session = borrow().newSession()
    for name in session.conf.getAll:
        if name.startswith("spark.sql.catalog."):  # of the worker's lake
            session.conf.unset(name)
    SparkSession._instantiatedSession = SparkSession._activeSession = session  # noqa: SLF001 - PySpark offers no other way
    make_default(session)
    for name in jvm:
        del os.environ[name]


def make_default(session: SparkSession) -> None:
    """Threads of the JVM that serve no session in particular use this one."""
    sessions = session._jvm.org.apache.spark.sql.classic.SparkSession  # noqa: SLF001 - PySpark offers no other way
    sessions.setDefaultSession(session._jsparkSession)  # noqa: SLF001 - PySpark offers no other way
    sessions.setActiveSession(session._jsparkSession)  # noqa: SLF001 - PySpark offers no other way


if __name__ == "__main__":
    main(Path(sys.argv[1]))
