"""The run's one set of servers, shared by all its workers: started by the first test that asks, ended with the run."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.services.stack import Stack


def shared_folder(factory: pytest.TempPathFactory, *, in_worker: bool) -> Path:
    """The same for all workers of a run: each has its own folder within the controller's."""
    own = factory.getbasetemp()
    return (own.parent if in_worker else own) / "stack"


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Stack:
    return Stack(shared_folder(tmp_path_factory, in_worker=worker_id != "master"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The controller comes last, with xdist and without."""
    if hasattr(session.config, "workerinput"):
        return
    factory: pytest.TempPathFactory = session.config._tmp_path_factory
    if (folder := shared_folder(factory, in_worker=False)).exists():
        Stack(folder).down()


@dataclass(frozen=True)
class KafkaForTests:
    """The run's broker; a test makes topics of its own, so tests do not meet."""

    brokers: str
    admin: AdminClient

    def topic(self, *, partitions: int = 1, name: str = "t", config: dict[str, str] | None = None) -> str:
        """A new topic whose name nobody else has; it is there for every client when this returns."""
        unique = f"{name}_{uuid.uuid4().hex[:10]}"
        self.create(unique, partitions=partitions, config=config)
        return unique

    def create(self, name: str, *, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
        self.admin.create_topics([topic])[name].result()

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result()


def kafka_at(brokers: str) -> KafkaForTests:
    """The same for a broker of the test's own: `kafka_at(service.address["brokers"])`."""
    return KafkaForTests(brokers, AdminClient({"bootstrap.servers": brokers, "log_level": 0}))


@pytest.fixture(scope="session")
def kafka(stack: Stack) -> KafkaForTests:
    return kafka_at(stack.up(["kafka"])["kafka"]["brokers"])
