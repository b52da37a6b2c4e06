"""Real services for every test: one PostgreSQL per run, one Spark session per worker."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from headwater.config.project import LakeSettings, ProjectSettings, SparkSettings
from headwater.engine.session import start_session
from headwater.services.jars import ensure_jars
from headwater.services.postgres_server import running_postgres
from tests.stack import kafka, pytest_sessionfinish, stack

__all__ = ["kafka", "pytest_sessionfinish", "stack"]  # found here by pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """The superuser's address of the run's one PostgreSQL server; the first worker that asks starts it."""
    if worker_id == "master":
        with running_postgres() as server:
            yield server.url()
        return
    shared = tmp_path_factory.getbasetemp().parent / "postgres"
    with shared_postgres(shared) as url:
        yield url


class shared_postgres:  # noqa: N801 - a context manager, read as a verb
    """Start the server once for all workers; the last one to leave ends it."""

    def __init__(self, path: Path) -> None:
        self._state, self._lock = path.with_suffix(".json"), path.with_suffix(".lock")

    def __enter__(self) -> str:
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = json.loads(self._state.read_text()) if self._state.exists() else None
            if state is None or state["users"] == 0:
                state = self._start()
            state["users"] += 1
            self._state.write_text(json.dumps(state))
            return str(state["url"])

    def _start(self) -> dict[str, object]:
        command = [sys.executable, "-m", "headwater.services.postgres_server"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stdout
        url = process.stdout.readline().strip()
        assert url, "PostgreSQL did not start"
        return {"url": url, "pid": process.pid, "users": 0}

    def __exit__(self, *_: object) -> None:
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = json.loads(self._state.read_text())
            state["users"] -= 1
            self._state.write_text(json.dumps(state))
            if state["users"] == 0:
                os.kill(state["pid"], signal.SIGTERM)


@pytest.fixture
def database(postgres_url: str) -> Iterator[str]:
    """The address of an empty database of the test's own."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
    yield postgres_url.rsplit("/", 1)[0] + f"/{name}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        for (gid,) in admin.execute("SELECT gid FROM pg_prepared_xacts WHERE database = %s", [name]).fetchall():
            with psycopg.connect(postgres_url.rsplit("/", 1)[0] + f"/{name}", autocommit=True) as own:
                own.execute(f"ROLLBACK PREPARED '{gid}'")
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the worker's shared lake; the catalog is called `lake`."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def jars() -> Sequence[Path]:
    """The JVM libraries; fetched here on a machine that has never run Spark."""
    return ensure_jars(print)


@pytest.fixture(scope="session")
def spark(lake_folder: Path, jars: Sequence[Path]) -> Iterator[SparkSession]:
    """The worker's one session, with the catalog `lake` under `lake_folder`."""
    settings = ProjectSettings(
        lake=LakeSettings(warehouse=str(lake_folder)), spark=SparkSettings(master="local[2]", memory="1g")
    )
    session = start_session(settings, lake_folder, jars)
    yield session
    session.stop()


@pytest.fixture
def namespace(spark: SparkSession) -> str:
    """A namespace of the test's own in the shared lake: `lake.ns_…`."""
    name = f"lake.ns_{uuid.uuid4().hex[:10]}"
    spark.sql(f"CREATE NAMESPACE {name}")
    return name


def wait_until(condition, seconds: float = 30.0) -> None:
    """Poll with a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)
