"""Ways to the run's PostgreSQL server: plain, and behind a door that speaks TLS, which that server does not."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from headwater.pg.copy import reader
from headwater.pg.copy.reader import libpq_chunks

WAYS = ["plain", "encrypted", "libpq"]  # the last as over Kerberos, which has no server here


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and its key, in one file."""
    if not shutil.which("openssl"):
        pytest.skip("openssl, which makes the certificate, is not installed")
    folder = tmp_path_factory.mktemp("certificate")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run([*request, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    certificate.write_text(certificate.read_text() + key.read_text())
    return certificate


@pytest.fixture(params=WAYS)
def url(request: pytest.FixtureRequest, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty database of the test's own, by any way."""
    if request.param == "libpq":
        monkeypatch.setattr(reader, "receiver", lambda _: libpq_chunks)
    if request.param != "encrypted":
        yield database
        return
    with encrypting_door(database, request.getfixturevalue("certificate")) as encrypted:
        yield encrypted


@contextmanager
def encrypting_door(url: str, certificate: Path) -> Iterator[str]:
    """The address of a door that encrypts what passes between a client and the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    parts = urlsplit(url)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        door = threading.Thread(target=let_in, args=(listening, context, (parts.hostname, parts.port)), daemon=True)
        door.start()
        address = parts._replace(netloc=f"{parts.username}@127.0.0.1:{listening.getsockname()[1]}")
        yield urlunsplit(address) + "?sslmode=require"


def let_in(listening: socket.socket, context: ssl.SSLContext, server: tuple[str, int]) -> None:
    while True:
        try:
            plain, _ = listening.accept()
        except OSError:
            return  # the door is closed
        assert plain.recv(8)[4:] == b"\x04\xd2\x16\x2f"  # SSLRequest
        plain.sendall(b"S")
        outside, inside = context.wrap_socket(plain, server_side=True), socket.create_connection(server)
        for here, there in ((outside, inside), (inside, outside)):
            threading.Thread(target=carry, args=(here, there), daemon=True).start()


def carry(here: socket.socket, there: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := here.recv(65536):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)
