"""Servers for tests: a throw-away PostgreSQL that speaks TLS, a door before any TCP server that tests can shut."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from headwater.model.errors import EnvironmentFault
from headwater.services.stack.postgres import PostgresServer, running_postgres

_DEBIAN = Path("/usr/lib/postgresql")  # which keeps the server's programs off the PATH
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_NOBODY = 65534  # runs the server where we are root
_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True)
class TlsPostgres:
    """A running server: `plain_url` for clients without TLS, `url` for those that check its certificate and its name."""

    server: PostgresServer
    authority: Path

    def plain_url(self) -> str:
        return f"{self.server.url()}?sslmode=disable"

    def url(self, database: str = "postgres") -> str:
        query = urlencode({"sslmode": "verify-full", "sslrootcert": str(self.authority)})
        return f"{self.server.url(database)}?{query}"


def why_no_tls() -> str:
    """Why no such server can run here, and what to install; empty: one can."""
    if _programs() is None:
        return "no PostgreSQL server with TLS is installed (apt-get install postgresql)"
    return "" if shutil.which("openssl") else "openssl is not installed, which makes the server's certificate"


@contextmanager
def running_tls_postgres(options: Mapping[str, str] | None = None) -> Iterator[TlsPostgres]:
    """The server in a temporary folder on a free port, with an authority of its own; all ends with the block."""
    reason = why_no_tls()
    if reason:
        raise EnvironmentFault(reason)
    with tempfile.TemporaryDirectory(prefix="headwater-tls-") as work:
        folder = Path(work)
        _make_certificates(folder)
        settings = {"ssl": "on", "ssl_cert_file": f"{folder}/server.pem", "ssl_key_file": f"{folder}/server.key"}
        with running_postgres({**settings, **(options or {})}, _programs()) as server:
            yield TlsPostgres(server, folder / "authority.pem")


def _programs() -> Path | None:
    installed = sorted(_DEBIAN.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return installed[-1].parent if installed else None


def _make_certificates(folder: Path) -> None:
    authority = ["-keyout", "authority.key", "-out", "authority.pem", "-subj", "/CN=Headwater's tests", "-days", "2"]
    _openssl(folder, ["req", "-x509", *_KEY, *authority])
    _openssl(folder, ["req", "-new", *_KEY, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost"])
    (folder / "names").write_text(_NAMES)
    signed = ["-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-extfile", "names", "-days", "2"]
    _openssl(folder, ["x509", "-req", "-in", "server.csr", "-out", "server.pem", *signed])
    (folder / "server.key").chmod(0o600)
    if os.getuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, _NOBODY, _NOBODY)


def _openssl(folder: Path, arguments: list[str]) -> None:
    process = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise EnvironmentFault(f"openssl {arguments[0]} failed: {process.stderr.strip()}")


class Door:
    """Forwards a loopback port to a server while it is open."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._lock = threading.Lock()
        self._pairs: list[socket.socket] = []
        self._listener = self._listen(0)
        self.port = int(self._listener.getsockname()[1])

    def shut(self) -> None:
        """Break every connection and refuse new ones."""
        with contextlib.suppress(OSError):  # shut before
            # Wakes the thread that waits in accept: the port is free only after it.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        with self._lock:
            for end in self._pairs:
                with contextlib.suppress(OSError):  # it may have been closed by its own side already
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
            self._pairs.clear()

    def open(self) -> None:
        """Forward again, on the same port."""
        self._listener = self._listen(self.port)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), reuse_port=False)
        self._accepting = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        self._accepting.start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                return  # shut
            with self._lock:
                self._pairs += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the door was shut, or one side hung up: the copy ends either way
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def door_to(port: int) -> Iterator[Door]:
    """A door that is shut for good at the end of the block."""
    door = Door(port)
    try:
        yield door
    finally:
        door.shut()
