"""A local Kafka broker, one node that is its own controller, and a Kafka Connect worker: for tests and experiments."""

from __future__ import annotations

import base64
import http.client
import signal
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headwater.engine.spark.session import find_java
from headwater.model.errors import EnvironmentFault
from headwater.services.jars import JarSet, cache_folder, declared_version, ensure_jars, lock_folder
from headwater.services.stack.service import Launch, Say

_CHECK_SECONDS = 2.0
JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

# One node has no replicas, and a laptop has few cores: internal topics are small.
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
    # A killed broker may rejoin only after this time; the default is 9 s.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": "2097152",
}


@dataclass(frozen=True)
class Kafka:
    """The broker.

    `settings` are lines of its server.properties, such as log.retention.check.interval.ms. `listeners` are added to
    the plain one; those with `sasl` admit `users` (name → password) by PLAIN and SCRAM.
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
            create_certificate(folder)
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
            "listener.security.protocol.map": ",".join(
                f"{name.upper()}:{protocol_name}" for name, protocol_name in protocols.items()
            ),
            "log.dirs": str(folder / "data"),
            **self.settings,
        }

    def check(self, ports: Mapping[str, int]) -> None:
        # librdkafka would print every refused connection to the terminal.
        admin = AdminClient({"bootstrap.servers": self.address(ports)["brokers"], "log_level": 0})
        try:
            brokers = admin.list_topics(timeout=_CHECK_SECONDS).brokers
        except KafkaException as error:
            raise EnvironmentFault(f"kafka at {self.address(ports)['brokers']}: {error}") from error
        if not brokers:
            raise EnvironmentFault("kafka: the controller has not registered the broker yet")

    def address(self, ports: Mapping[str, int]) -> Mapping[str, str]:
        """The address of the plain listener, and of every other one by its name."""
        return {"brokers": f"127.0.0.1:{ports['plain']}"} | {n: f"127.0.0.1:{ports[n]}" for n in self.listeners}


def _format(java: Sequence[str], properties: Path, options: Sequence[str]) -> None:
    cluster = "-"
    while cluster.startswith("-"):  # it would be read as an option
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties), *options]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise EnvironmentFault(f"Kafka could not prepare its data folder: {(process.stderr or process.stdout).strip()}")


Listener = Literal["sasl", "tls", "sasl_tls"]

_PROTOCOLS: Mapping[str, str] = {"sasl": "SASL_PLAINTEXT", "tls": "SSL", "sasl_tls": "SASL_SSL"}
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN = "org.apache.kafka.common.security"
_STORE_PASSWORD = "headwater"  # noqa: S105 - of a key that lives on this machine for a test
_YEARS_10 = "3650"


def certificate(folder: Path) -> Path:
    """The certificate that clients of the TLS listeners trust, as PEM; created at the first start."""
    return folder / "certificate.pem"


def listener_settings(listeners: Sequence[Listener], users: Mapping[str, str], folder: Path) -> Mapping[str, str]:
    """The lines of server.properties for the listeners."""
    settings: dict[str, str] = {}
    for listener in listeners:
        prefix = f"listener.name.{listener}"
        if "sasl" in listener:
            settings[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(("PLAIN", *_SCRAM))
            accounts = " ".join(f"user_{name}={_quoted(password)}" for name, password in users.items())
            settings[f"{prefix}.plain.sasl.jaas.config"] = f"{_LOGIN}.plain.PlainLoginModule required {accounts};"
            for mechanism in _SCRAM:
                login = f"{_LOGIN}.scram.ScramLoginModule required;"
                settings[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = login
        if "tls" in listener:
            settings[f"{prefix}.ssl.keystore.type"] = "PKCS12"
            settings[f"{prefix}.ssl.keystore.location"] = str(_key_store(folder))
            settings[f"{prefix}.ssl.keystore.password"] = _STORE_PASSWORD
    return settings


def protocol(listener: Listener) -> str:
    return _PROTOCOLS[listener]


def scram_arguments(users: Mapping[str, str]) -> Sequence[str]:
    """Arguments for formatting a new data folder, so that the users exist before the first connection."""
    return [
        argument
        for name, password in users.items()
        for mechanism in _SCRAM
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]


def create_certificate(folder: Path) -> None:
    """Create a self-signed certificate for 127.0.0.1 and localhost, with Java's keytool."""
    if certificate(folder).exists():
        return
    _key_store(folder).unlink(missing_ok=True)
    tool = find_java().executable.resolve().with_name("keytool")
    store = ["-alias", "broker", "-keystore", str(_key_store(folder)), "-storepass", _STORE_PASSWORD]
    key = ["-storetype", "PKCS12", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", _YEARS_10]
    owner = ["-dname", "CN=headwater", "-ext", "san=ip:127.0.0.1,dns:localhost"]
    _run([tool, "-genkeypair", *store, *key, *owner])
    _run([tool, "-exportcert", *store, "-rfc", "-file", certificate(folder)])


def _run(command: Sequence[str | Path]) -> None:
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise EnvironmentFault(f"cannot create a certificate for Kafka: {(process.stdout + process.stderr).strip()}")


def _key_store(folder: Path) -> Path:
    return folder / "key.p12"


def _quoted(password: str) -> str:
    """Quoted for JAAS; backslashes once more for the properties file around it."""
    return '"' + password.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\") + '"'


_WORKER_CHECK_SECONDS = 5.0
_JSON = "org.apache.kafka.connect.json.JsonConverter"

# One worker beside one broker: no rebalance to wait for, no replicas.
_ONE_WORKER = {
    "group.id": "headwater-connect",
    "key.converter": _JSON,
    "value.converter": _JSON,
    "config.storage.topic": "headwater-connect-configs",
    "config.storage.replication.factor": "1",
    "offset.storage.topic": "headwater-connect-offsets",
    "offset.storage.replication.factor": "1",
    "offset.storage.partitions": "4",
    "offset.flush.interval.ms": "1000",
    "status.storage.topic": "headwater-connect-status",
    "status.storage.replication.factor": "1",
    "status.storage.partitions": "2",
    "scheduled.rebalance.max.delay.ms": "0",
    "plugin.discovery": "service_load",
}


@dataclass(frozen=True)
class Connect:
    """The worker on the broker at `brokers`; `settings` are lines of its properties file."""

    brokers: str
    settings: Mapping[str, str] = field(default_factory=dict)

    name = "connect"
    port_names = ("http",)
    stop_signal = signal.SIGTERM

    @property
    def version(self) -> str:
        return f"{declared_version(JarSet.connect)} with Debezium {declared_version(JarSet.debezium)}"

    def prepare(self, folder: Path, ports: Mapping[str, int], say: Say) -> Launch:
        ensure_jars(say, JarSet.connect)
        settings = {
            **_ONE_WORKER,
            "bootstrap.servers": self.brokers,
            "listeners": self.address(ports)["url"],
            "rest.advertised.host.name": "127.0.0.1",
            "plugin.path": str(_plugins(say)),
            **self.settings,
        }
        properties = folder / "connect.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        libraries = f"{cache_folder(JarSet.connect)}/*"
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        return Launch(
            [find_java().executable, "-Xms64m", "-Xmx384m", *JVM_FLAGS, "-cp", libraries, main, properties],
        )

    def check(self, ports: Mapping[str, int]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", ports["http"], timeout=_WORKER_CHECK_SECONDS)
        try:
            connection.request("GET", "/health")
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise EnvironmentFault(f"connect at {self.address(ports)['url']}: {error}") from error
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise EnvironmentFault(f"connect at {self.address(ports)['url']}: {response.status} {text}")

    def address(self, ports: Mapping[str, int]) -> Mapping[str, str]:
        return {"url": f"http://127.0.0.1:{ports['http']}"}


def _plugins(say: Say) -> Path:
    """The folder of unpacked connectors."""
    (archive,) = ensure_jars(say, JarSet.debezium)
    plugins = archive.parent / "plugins"
    with lock_folder(archive.parent):
        if not plugins.exists():
            with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".unpacking-") as work:
                with tarfile.open(archive) as tar:
                    # Python before 3.11.4 has no filters; the archive's digest was checked.
                    tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
                    tar.extractall(Path(work) / "plugins")  # noqa: S202 - as above
                (Path(work) / "plugins").rename(plugins)
    return plugins
