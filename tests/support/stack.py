"""The run's one set of servers, shared by all its workers: started by the first test that asks, ended with the run."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyarrow import fs

from headwater.services.stack.postgres import NO_FSYNC, Postgres
from headwater.services.stack.s3 import S3, client
from headwater.services.stack.service import ChildProcess
from headwater.services.stack.stack import RECIPES, Stack

_FOLDER, _OWNER = "stack", "owner.json"
_MANY_SLOTS = {"max_replication_slots": "60", "max_wal_senders": "60"}  # every worker's tests may hold several
_FOR_TESTS = {
    **RECIPES,
    "postgres": lambda _: Postgres({**NO_FSYNC, **_MANY_SLOTS}),
    "s3": lambda _: S3(may_build=False),  # a build takes longer than a test may; `make test` builds before
}


def pytest_sessionstart(session: pytest.Session) -> None:
    """End what earlier runs left behind that were killed before they could end it themselves."""
    if _is_worker(session.config):
        return
    own = _base(session.config)
    for folder in own.parent.glob(f"*/{_FOLDER}"):
        owner = folder / _OWNER
        if owner.exists() and not ChildProcess(**json.loads(owner.read_text())).alive():
            _end(folder)
    (own / _FOLDER).mkdir()
    (own / _FOLDER / _OWNER).write_text(json.dumps(vars(ChildProcess.of(os.getpid()))))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The controller comes last, with workers and without."""
    if not _is_worker(session.config):
        _end(_base(session.config) / _FOLDER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for a server that takes seconds to start is no fast test."""
    for item in items:
        if {"kafka", "connect", "s3", "bucket"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.servers)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _base(config: pytest.Config) -> Path:
    """The run's folder: each worker has its own within the controller's."""
    own: Path = config._tmp_path_factory.getbasetemp()  # noqa: SLF001 - pytest shows it to fixtures only, and hooks need it
    return own.parent if _is_worker(config) else own


def _end(folder: Path) -> None:
    stack = Stack(folder, recipes=_FOR_TESTS)
    stack.down()
    stack.remove()
    (folder / _OWNER).unlink(missing_ok=True)


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest) -> Stack:
    """The run's servers; `stack.up(["kafka"])` starts one or finds it running."""
    return Stack(_base(request.config) / _FOLDER, recipes=_FOR_TESTS)


@pytest.fixture(scope="session")
def postgres_url(stack: Stack) -> str:
    """The superuser's address of the run's PostgreSQL server."""
    return stack.up(["postgres"])["postgres"]["url"]


@dataclass(frozen=True)
class KafkaForTests:
    """A broker; on the run's shared one a test makes topics of its own, so that tests do not meet."""

    brokers: str
    admin: AdminClient

    def topic(self, *, partitions: int = 1, name: str = "t", config: dict[str, str] | None = None) -> str:
        """A new topic whose name nobody else has."""
        unique = f"{name}_{uuid.uuid4().hex[:10]}"
        self.create(unique, partitions=partitions, config=config)
        return unique

    def create(self, name: str, *, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=1, config={"retention.ms": "-1", **(config or {})}
        )  # some messages are dated long ago
        self.admin.create_topics([topic])[name].result()

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result()


def kafka_at(brokers: str) -> KafkaForTests:
    """The same for a broker of the test's own: `kafka_at(service.address["brokers"])`."""
    return KafkaForTests(brokers, AdminClient({"bootstrap.servers": brokers, "log_level": 0}))


@pytest.fixture(scope="session")
def kafka(stack: Stack) -> KafkaForTests:
    """The run's broker."""
    return kafka_at(stack.up(["kafka"])["kafka"]["brokers"])


@pytest.fixture(scope="session")
def connect(stack: Stack) -> str:
    """The address of the run's Kafka Connect worker; it works on the broker of `kafka`."""
    return stack.up(["connect"])["connect"]["url"]


@dataclass(frozen=True)
class S3ForTests:
    """The run's S3 server."""

    endpoint: str
    region: str
    access_key: str
    secret_key: str

    @property
    def files(self) -> fs.S3FileSystem:
        """Arrow's client: `s3.files.open_output_stream("bucket/key")`."""
        return client(vars(self))

    @property
    def environment(self) -> dict[str, str]:
        """AWS's own variables, as a user would set them."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }


@pytest.fixture(scope="session")
def s3(stack: Stack) -> S3ForTests:
    """The run's S3 server."""
    return S3ForTests(**stack.up(["s3"])["s3"])


@pytest.fixture
def bucket(s3: S3ForTests) -> str:
    """A new, empty bucket of the test's own."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    s3.files.create_dir(name)
    return name
