"""Every source keeps the contract of sources."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from confluent_kafka import TopicCollection

from headwater.config.pipeline import SourceSettings
from headwater.model.progress import Lease
from headwater.model.protocols.source import Source
from headwater.sources.open import SourceContext, open_source
from headwater.testing import SourceContract, SourceOrigin
from tests.sources.debezium.reading import as_bytes, event, field, with_schema
from tests.sources.kafka.poller import send
from tests.sources.objects.ledger import PipelineLedger
from tests.support.s3_objects import put
from tests.support.stack import KafkaForTests, S3ForTests
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOWHERE = "127.0.0.1:9"  # the port of the discard service, where nothing listens
SECRET = "hush-hush-4711"  # noqa: S105 - shown nowhere


class Origin(SourceOrigin):
    """A system whose source is opened by its settings, as a pipeline opens it."""

    def __init__(self, folder: Path = Path(), around: SourceContext | None = None, **settings: object) -> None:
        self.folder, self.around, self.settings = folder, around or SourceContext(), settings

    def open(self) -> Source:
        return self.opened(self.settings)

    def opened(self, settings: dict[str, object]) -> Source:
        return open_source(SourceSettings.model_validate(settings), self.folder, 2, self.around)

    def changed(self, **changes: object) -> Source:
        """The same source with other settings."""
        ((kind, settings),) = self.settings.items()
        assert isinstance(settings, dict)
        return self.opened({kind: {**settings, **changes}})


class PostgresTables(Origin):
    """Two tables with a primary key that grows."""

    streams = ("public.orders", "public.items")
    secret = SECRET

    def __init__(self, url: str, kind: str = "sql", **settings: object) -> None:
        self.url = with_password(url)
        super().__init__(**{kind: {"url": self.url, "tables": list(self.streams), **settings}})
        self.execute(*(f"CREATE TABLE {table} (id bigint PRIMARY KEY, note text NOT NULL)" for table in self.streams))

    def append(self, stream: str, ids: Sequence[int]) -> None:
        rows = ", ".join(f"({n}, 'note {n}')" for n in ids)
        self.execute(f"INSERT INTO {stream} VALUES {rows}")

    def open_unreachable(self) -> tuple[Source, str]:
        return self.changed(url=f"postgresql://us:{SECRET}@{NOWHERE}/shop"), SECRET

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)


class TestSqlOnPostgres(SourceContract):
    @pytest.fixture
    def origin(self, database: str) -> SourceOrigin:
        return PostgresTables(database, cursor="id")


class TestPostgresSlot(SourceContract):
    @pytest.fixture
    def origin(self, database: str) -> SourceOrigin:
        return PostgresTables(database, "postgres", slot=f"t_{uuid.uuid4().hex[:16]}")


class SqliteTable(Origin):
    """One table in a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, sql={"url": "sqlite:///shop.db", "table": "orders", "cursor": "id"})
        self.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT NOT NULL)")

    def append(self, stream: str, ids: Sequence[int]) -> None:
        rows = ", ".join(f"({n}, 'note {n}')" for n in ids)
        self.execute(f"INSERT INTO {stream} VALUES {rows}")

    def open_unreachable(self) -> tuple[Source, str]:
        return self.changed(url="sqlite:///nowhere/shop.db"), ""

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.folder / "shop.db")) as connection, connection:
            connection.execute(statement)


class TestSqlOnSqlite(SourceContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> SourceOrigin:
        return SqliteTable(tmp_path)


class JdbcTable(PostgresTables):
    """One of the tables, through PostgreSQL's JDBC driver."""

    streams = ("public.orders",)

    def __init__(self, url: str, spark: SparkSession) -> None:
        super().__init__(url, cursor="id")
        self.settings = {"sql": {"url": f"jdbc:{self.url}", "table": "public.orders", "cursor": "id"}}
        self.around, self._spark = SourceContext(spark=lambda: spark), spark

    def open_unreachable(self) -> tuple[Source, str]:
        return self.changed(url=f"jdbc:postgresql://us:{SECRET}@{NOWHERE}/shop"), SECRET

    def spark(self) -> SparkSession:
        return self._spark


@pytest.mark.spark
class TestSqlByJdbc(SourceContract):
    @pytest.fixture
    def origin(self, database: str, spark: SparkSession) -> SourceOrigin:
        return JdbcTable(database, spark)


class Topics(Origin):
    """Two topics of two partitions each."""

    def __init__(self, kafka: KafkaForTests, **settings: object) -> None:
        self._kafka = kafka
        self.streams = tuple(kafka.topic(name=name, partitions=2) for name in ("orders", "items"))
        # The broker that made a topic may take a moment until it knows it.
        wait_until(lambda: all(self._is_described(topic) for topic in self.streams))
        topics = {"brokers": kafka.brokers, "topics": list(self.streams), "timeout": "20s"}
        super().__init__(kafka={**topics, **settings})

    def append(self, stream: str, ids: Sequence[int]) -> None:
        for partition in (0, 1):
            values = [self.message(n) for n in ids if n % 2 == partition]
            send(self._kafka.brokers, stream, values, partition=partition)

    def _is_described(self, topic: str) -> bool:
        (described,) = self._kafka.admin.describe_topics(TopicCollection([topic])).values()
        return described.exception() is None

    def message(self, number: int) -> bytes | None:
        return as_bytes({"id": number, "note": f"note {number}"})

    def open_unreachable(self) -> tuple[Source, str]:
        login = {"mechanism": "PLAIN", "username": "us", "password": SECRET}
        return self.changed(brokers=NOWHERE, security=login, timeout="1s"), SECRET


class TestKafka(SourceContract):
    @pytest.fixture
    def origin(self, kafka: KafkaForTests) -> SourceOrigin:
        return Topics(kafka, format="json", group=f"g_{uuid.uuid4().hex[:10]}")


class DebeziumTopics(Topics):
    """Events with their schemas, as a connector writes them."""

    def message(self, number: int) -> bytes | None:
        return as_bytes(insert_event(number))


class TestDebeziumOverKafka(SourceContract):
    @pytest.fixture
    def origin(self, kafka: KafkaForTests) -> SourceOrigin:
        return DebeziumTopics(kafka, format="debezium", debezium={"key": ["id"]})


class Objects(Origin):
    """A folder; every append is an object of its own."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self._book, self._objects = PipelineLedger(folder), folder / "orders"
        self._objects.mkdir()
        around = SourceContext(ledger=lambda: self._book.ledger)
        super().__init__(folder, around, objects={"url": "orders", "format": "json", **settings})

    @property
    def lease(self) -> Lease:
        return self._book.lease

    def append(self, stream: str, ids: Sequence[int]) -> None:
        self.put(f"{ids[0]:06}.json", b"".join(self.line(n) + b"\n" for n in ids))

    def put(self, key: str, data: bytes) -> None:
        # Under another name first: a listing finds the object whole.
        written = self.folder / key
        written.write_bytes(data)
        written.rename(self._objects / key)

    def line(self, number: int) -> bytes:
        return as_bytes({"id": number, "note": f"note {number}"}) or b""

    def open_unreachable(self) -> tuple[Source, str]:
        return self.changed(url="nowhere"), ""


class ObjectsContract(SourceContract):
    latest_brings_unseen = "`latest` is the newest generation of the ledger: what no listing has found is new"


class TestObjectsInAFolder(ObjectsContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> SourceOrigin:
        return Objects(tmp_path)


class S3Objects(Objects):
    """The same in a bucket."""

    def __init__(self, folder: Path, s3: S3ForTests, bucket: str) -> None:
        super().__init__(folder, url=f"s3://{bucket}/orders/", s3=vars(s3))
        self._server, self._bucket, self.secret = s3, bucket, s3.secret_key

    def put(self, key: str, data: bytes) -> None:
        put(self._server, self._bucket, {f"orders/{key}": data})

    def open_unreachable(self) -> tuple[Source, str]:
        login = {**vars(self._server), "endpoint": f"http://{NOWHERE}", "secret_key": SECRET}
        return self.changed(s3=login), SECRET


class TestObjectsOnS3(ObjectsContract):
    @pytest.fixture
    def origin(self, tmp_path: Path, s3: S3ForTests, bucket: str) -> SourceOrigin:
        return S3Objects(tmp_path, s3, bucket)


class DebeziumObjects(Objects):
    """Events, one a line."""

    def line(self, number: int) -> bytes:
        return as_bytes(insert_event(number)) or b""


class TestDebeziumOverObjects(ObjectsContract):
    @pytest.fixture
    def origin(self, tmp_path: Path) -> SourceOrigin:
        return DebeziumObjects(tmp_path, format="debezium", debezium={"key": ["id"]})


def insert_event(number: int) -> dict:
    """Every event has a place of its own in the log."""
    sequence = json.dumps([str(number), str(number)])
    inserted = event("c", {"id": number, "note": f"note {number}"}, sequence=sequence, lsn=number)
    return with_schema([field("id", "int64"), field("note", "string")], inserted)


def with_password(url: str) -> str:
    """The same address with a password, which a server that trusts everybody does not ask for."""
    scheme, _, rest = url.partition("://")
    login, at, server = rest.rpartition("@")
    user = login.partition(":")[0] if at else "postgres"
    return f"{scheme}://{user}:{SECRET}@{server}"
