"""A Kafka Connect worker of our own, with Debezium's PostgreSQL connector and Kafka's file connectors."""

from __future__ import annotations

import http.client
import signal
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headwater.engine.java import find_java
from headwater.model.errors import EnvironmentFault
from headwater.services.child_process import Launch
from headwater.services.folder_lock import locked
from headwater.services.jars import JarSet, cache_folder, declared_version, ensure_jars
from headwater.services.kafka_server import JVM_FLAGS
from headwater.services.service import Say

_CHECK_SECONDS = 5.0
_JSON = "org.apache.kafka.connect.json.JsonConverter"

# One worker beside one broker: nobody to wait for, nobody to replicate to.
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
        connection = http.client.HTTPConnection("127.0.0.1", ports["http"], timeout=_CHECK_SECONDS)
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise EnvironmentFault(f"connect at {self.address(ports)['url']}: {error}") from error
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise EnvironmentFault(f"connect at {self.address(ports)['url']}: {answer.status} {text}")

    def address(self, ports: Mapping[str, int]) -> Mapping[str, str]:
        return {"url": f"http://127.0.0.1:{ports['http']}"}


def _plugins(say: Say) -> Path:
    """The folder of the unpacked connectors."""
    (archive,) = ensure_jars(say, JarSet.debezium)
    plugins = archive.parent / "plugins"
    with locked(archive.parent):
        if not plugins.exists():
            with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".unpacking-") as work:
                with tarfile.open(archive) as packed:
                    # Pythons before 3.11.4 know no filters; what is unpacked was checked by its digest.
                    packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
                    packed.extractall(Path(work) / "plugins")  # noqa: S202 - as above
                (Path(work) / "plugins").rename(plugins)
    return plugins
