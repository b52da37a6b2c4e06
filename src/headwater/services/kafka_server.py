"""A Kafka broker of our own, one node that is its own controller: for tests and tries on a laptop."""

from __future__ import annotations

import base64
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headwater.engine.java import find_java
from headwater.model.errors import EnvironmentFault
from headwater.services.child_process import Launch
from headwater.services.jars import JarSet, cache_folder, declared_version, ensure_jars
from headwater.services.kafka_security import (
    Listener,
    listener_settings,
    make_certificate,
    protocol,
    scram_arguments,
)
from headwater.services.service import Say

_CHECK_SECONDS = 2.0
JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

# One node has nobody to replicate to, and a laptop has few cores: internal topics are small.
_ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAIN",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that was killed is let in again only after this time; by default that is 9 s.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": "2097152",
}


@dataclass(frozen=True)
class Kafka:
    """The broker.

    `settings` are lines of its server.properties, such as log.retention.check.interval.ms. `listeners` come beside the
    plain one; those with `sasl` let in `users` (name → password) by PLAIN and SCRAM.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    listeners: Sequence[Listener] = ()
    users: Mapping[str, str] = field(default_factory=dict)

    name = "kafka"
    stop_signal = signal.SIGTERM

    @property
    def port_names(self) -> Sequence[str]:
        return ("plain", "controller", *self.listeners)

    @property
    def version(self) -> str:
        return declared_version(JarSet.broker)

    def prepare(self, folder: Path, ports: Mapping[str, int], say: Say) -> Launch:
        ensure_jars(say, JarSet.broker)
        java = str(find_java().executable)
        libraries = f"{cache_folder(JarSet.broker)}/*"
        if any("tls" in listener for listener in self.listeners):
            make_certificate(folder)
        properties = folder / "server.properties"
        properties.touch(mode=0o600)  # it may hold passwords
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings(folder, ports).items()))
        if not (folder / "data" / "meta.properties").exists():
            _format([java, "-Xmx128m", *JVM_FLAGS, "-cp", libraries], properties, scram_arguments(self.users))
        return Launch([java, "-Xms64m", "-Xmx256m", *JVM_FLAGS, "-cp", libraries, "kafka.Kafka", properties])

    def _settings(self, folder: Path, ports: Mapping[str, int]) -> Mapping[str, str]:
        protocols = {"plain": "PLAINTEXT", "controller": "PLAINTEXT"} | {
            name: protocol(name) for name in self.listeners
        }
        return {
            **_ONE_NODE,
            **listener_settings(self.listeners, self.users, folder),
            "controller.quorum.voters": f"1@127.0.0.1:{ports['controller']}",
            "listeners": ",".join(f"{name.upper()}://127.0.0.1:{ports[name]}" for name in self.port_names),
            "listener.security.protocol.map": ",".join(f"{name.upper()}:{kind}" for name, kind in protocols.items()),
            "log.dirs": str(folder / "data"),
            **self.settings,
        }

    def check(self, ports: Mapping[str, int]) -> None:
        # librdkafka would tell the terminal about every refused connection.
        admin = AdminClient({"bootstrap.servers": self.address(ports)["brokers"], "log_level": 0})
        try:
            brokers = admin.list_topics(timeout=_CHECK_SECONDS).brokers
        except KafkaException as error:
            raise EnvironmentFault(f"kafka at {self.address(ports)['brokers']}: {error}") from error
        if not brokers:
            raise EnvironmentFault("kafka: the controller has not let the broker in yet")

    def address(self, ports: Mapping[str, int]) -> Mapping[str, str]:
        """Brokers by the plain listener, and by the name of each other one."""
        return {"brokers": f"127.0.0.1:{ports['plain']}"} | {n: f"127.0.0.1:{ports[n]}" for n in self.listeners}


def _format(java: Sequence[str], properties: Path, more: Sequence[str]) -> None:
    cluster = "-"
    while cluster.startswith("-"):  # it would be taken for an option
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentFault(f"Kafka could not prepare its data folder: {(done.stderr or done.stdout).strip()}")
