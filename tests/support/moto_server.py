"""A second S3 server, for keys that one which keeps objects as files cannot hold."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from headwater.services.stack.service import free_port
from tests.support.stack import S3ForTests
from tests.support.wait import wait_until

_START_SECONDS = 60


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3ForTests]:
    """Moto keeps any key, and lends keys for roles. It looks at no signature: the other server does."""
    port = free_port()
    log: Path = tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=out, stderr=out
        )
    try:
        wait_until(lambda: _answers(port, server, log), _START_SECONDS, log.read_text)
        yield S3ForTests(f"http://127.0.0.1:{port}", "us-east-1", "headwater", "headwater-secret")
    finally:
        server.terminate()
        server.wait()


def _answers(port: int, server: subprocess.Popen[bytes], log: Path) -> bool:
    assert server.poll() is None, log.read_text()
    try:
        urllib3.request("GET", f"http://127.0.0.1:{port}/moto-api/", retries=False)
    except urllib3.exceptions.HTTPError:
        return False
    return True


@pytest.fixture
def moto_bucket(moto: S3ForTests, request: pytest.FixtureRequest) -> str:
    """A new, empty bucket of the test's own."""
    name = f"b{abs(hash(request.node.nodeid)):x}"
    moto.files.create_dir(name)
    return name
