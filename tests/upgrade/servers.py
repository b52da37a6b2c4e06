"""The servers that recorded sources live in: each comes up on a free port, on the data that was packed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3
from botocore.client import BaseClient

from headwater.services.stack import s3
from headwater.services.stack.kafka import Kafka
from headwater.services.stack.postgres import Postgres, client_program
from headwater.services.stack.s3 import S3
from headwater.services.stack.service import Service, as_user, running
from tests.upgrade.archive import unpack

BUCKET = "recorded"
_NOBODY = 65534  # PostgreSQL refuses to run as root
_POSTGRES = {
    "fsync": "off",
    "full_page_writes": "off",  # small segments of the WAL
    "shared_buffers": "16MB",
    "min_wal_size": "2MB",
    "max_wal_size": "8MB",
    "max_replication_slots": "10",
    "autovacuum": "off",  # what is packed does not depend on when it was recorded
}
# Recorded producers and transactions are older than a day when they are read again.
_KAFKA = {"log.retention.ms": "-1", "offsets.retention.minutes": "525600000", "log.segment.bytes": "1048576"}


@dataclass(frozen=True)
class PostgresFixture:
    """A server with a database for each cell that needs one."""

    service: Service
    data: Path

    def url(self, database: str) -> str:
        return self.service.address["url"].rpartition("/")[0] + f"/{database}"


@dataclass(frozen=True)
class S3Fixture:
    """A server that keeps objects as files, so that their time of change can be set: bookmarks hold it."""

    address: Mapping[str, str]
    objects: Path

    def put(self, key: str, content: bytes, modified: int) -> None:
        self._client().put_object(Bucket=BUCKET, Key=key, Body=content)
        os.utime(self.objects / BUCKET / key, (modified, modified))

    def make_bucket(self) -> None:
        self._client().create_bucket(Bucket=BUCKET)

    def _client(self) -> BaseClient:
        return boto3.client(
            "s3",
            endpoint_url=self.address["endpoint"],
            region_name=self.address["region"],
            aws_access_key_id=self.address["access_key"],
            aws_secret_access_key=self.address["secret_key"],
        )


@contextmanager
def postgres_server(packed: Path | None) -> Iterator[PostgresFixture]:
    """On the data folder in the archive `packed`; without one on a new and small cluster."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))  # where the server's own user may enter
    folder.chmod(0o755)
    data = folder / "data"
    try:
        if packed is None:
            _make_cluster(data)
        else:
            unpack(packed, data)
            _give_to_server(data)
        with running(Postgres(_POSTGRES), folder) as service:
            yield PostgresFixture(service, data)
    finally:
        shutil.rmtree(folder)


def _give_to_server(data: Path) -> None:
    """PostgreSQL opens only what belongs to its user, and what nobody else can read."""
    for path in (data, *data.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
        if os.getuid() == 0:
            os.chown(path, _NOBODY, _NOBODY)


def _make_cluster(data: Path) -> None:
    data.mkdir()
    _give_to_server(data)
    subprocess.run(
        [
            client_program("initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
            "--wal-segsize=1", "--no-sync",
        ],
        check=True, capture_output=True, cwd="/", env={**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC"},
        **as_user(_NOBODY if os.getuid() == 0 else None),
    )  # fmt: skip


@contextmanager
def kafka_server(folder: Path, packed: Path | None) -> Iterator[str]:
    """The brokers of a server in `folder`, with the log in the archive `packed` or with an empty one."""
    if packed is not None:
        unpack(packed, folder / "data")
    with running(Kafka(_KAFKA), folder) as service:
        yield service.address["brokers"]


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Fixture]:
    with running(S3(may_build=False), folder) as service:
        server = S3Fixture(service.address, folder / "objects")
        server.make_bucket()
        yield server


def s3_keeps_times() -> bool:
    """moto, which takes the place of versitygw, keeps no time of change that could be set."""
    return s3.versitygw_program().exists()
