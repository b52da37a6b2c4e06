"""Real services for every test: one set of servers per run (see support/stack.py), one Spark session per worker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import settings

from headwater.config.project import LakeSettings, ProjectSettings, SparkSettings
from headwater.engine.spark.session import start_session
from headwater.services.jars import ensure_jars
from tests.support.moto_server import moto, moto_bucket
from tests.support.postgres_tls import certificate, url
from tests.support.stack import (
    bucket,
    connect,
    kafka,
    postgres_url,
    pytest_collection_modifyitems,
    pytest_sessionfinish,
    pytest_sessionstart,
    s3,
    stack,
)
from tests.support.wait import wait_until

# How long an example takes depends on the machine, and fails no test. What CI chooses besides (no random seed) stays.
settings.register_profile("headwater", settings.default, deadline=None)
settings.register_profile("few", settings.get_profile("headwater"), max_examples=10)
settings.load_profile("headwater")

# Found here by pytest.
__all__ = [
    "bucket",
    "certificate",
    "connect",
    "kafka",
    "moto",
    "moto_bucket",
    "postgres_url",
    "pytest_collection_modifyitems",
    "pytest_sessionfinish",
    "pytest_sessionstart",
    "s3",
    "stack",
    "url",
]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        wait_until(lambda: drop_slots(admin, name))
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def drop_slots(admin: psycopg.Connection, database: str) -> bool:
    """A slot that a test left keeps its database from being dropped; one whose session is ending takes a moment."""
    admin.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = %s", [database])
    left = admin.execute(
        "SELECT active OR temporary, slot_name FROM pg_replication_slots WHERE database = %s", [database]
    ).fetchall()
    for busy, slot in left:
        if not busy:
            admin.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    return not any(busy for busy, _ in left)


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
