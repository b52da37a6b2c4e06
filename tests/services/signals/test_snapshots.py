"""Signals end to end: a real Debezium, as a role that may do no more than `headwater postgres prepare` allows it."""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from confluent_kafka import Consumer
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner

from headwater.cli.main import app
from tests.support.stack import KafkaForTests
from tests.support.wait import wait_until

pytestmark = pytest.mark.servers

TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, state text);
INSERT INTO orders SELECT n, CASE WHEN n <= 20 THEN 'DE' ELSE 'FR' END FROM generate_series(1, 25) AS n;
CREATE TABLE "odd name" (id int PRIMARY KEY);
INSERT INTO "odd name" VALUES (1), (2), (3);
CREATE TABLE "dollar$" (id int PRIMARY KEY);
INSERT INTO "dollar$" VALUES (7);
CREATE TABLE log (line text);
ALTER TABLE log REPLICA IDENTITY FULL;
INSERT INTO log VALUES ('a'), ('b');
CREATE TABLE big (id int PRIMARY KEY);
INSERT INTO big SELECT generate_series(1, 20000);
CREATE TABLE long (id int PRIMARY KEY);
INSERT INTO long SELECT generate_series(1, 8000);
CREATE TABLE parts (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE parts_2025 PARTITION OF parts FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE parts_2026 PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
INSERT INTO parts VALUES (1, '2025-05-05'), (2, '2026-06-06'), (3, '2026-07-07');
"""
CAPTURED = ("orders", '"odd name"', '"dollar$"', "log", "big", "long", "parts")


@dataclass(frozen=True)
class Captured:
    """A database under capture, and the command line on it."""

    url: str
    name: str  # of the connector, its slot, its publication, its topics' prefix
    brokers: str

    @property
    def notifications(self) -> str:
        return f"{self.name}.notifications"

    def signal(self, *arguments: str) -> dict:
        done = CliRunner().invoke(app, ["signal", *arguments, "--url", self.url, "--json"])
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    def status(self, signal_id: str) -> dict:
        flags = ("--brokers", self.brokers, "--notifications", self.notifications, "--topic-prefix", self.name)
        return next(one for one in self.signal("status", *flags)["signals"] if one["id"] == signal_id)

    def state(self, signal_id: str) -> str | None:
        notification = self.status(signal_id)["notification"]
        return notification and notification["state"]

    def chunks(self, signal_id: str) -> int:
        """That were read so far; without the notifications, which take longer to ask for than a chunk to read."""
        return next(one for one in self.signal("status")["signals"] if one["id"] == signal_id)["chunks"]["read"]

    def reads(self, table: str) -> list[dict]:
        """The rows that snapshots have brought so far."""
        return [event["after"] for event in self.events(table) if event["op"] == "r"]

    def events(self, table: str) -> list[dict]:
        settings = {"bootstrap.servers": self.brokers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "enable.partition.eof": True, "log_level": 0})
        topic = f"{self.name}.public.{table}"
        if topic not in consumer.list_topics(timeout=20).topics:
            consumer.close()
            return []
        consumer.subscribe([topic])
        messages = []
        while (message := consumer.poll(20)) is not None and message.error() is None:
            if message.value():
                messages.append(json.loads(message.value()))
        consumer.close()
        return messages


def ask(url: str, method: str = "GET", body: object = None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own server
        return json.loads(answer.read() or "null")


def configuration(url: str, name: str) -> dict[str, str]:
    at = conninfo_to_dict(url)
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": at["host"],
        "database.port": at["port"],
        "database.user": name,
        "database.dbname": at["dbname"],
        "topic.prefix": name,
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "disabled",
        "table.include.list": "public.(orders|odd name|dollar[$]|log|big|long|parts)",
        "snapshot.mode": "no_data",
        "signal.data.collection": "public.debezium_signal",
        "incremental.snapshot.chunk.size": "10",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": f"{name}.notifications",
        "poll.interval.ms": "50",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    }


@pytest.fixture(scope="module")
def captured(postgres_url: str, connect: str, kafka: KafkaForTests) -> Iterator[Captured]:
    name = f"signals_{uuid.uuid4().hex[:8]}"
    url = f"{postgres_url.rpartition('/')[0]}/{name}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        with psycopg.connect(url, autocommit=True) as own:
            own.execute(TABLES)
        tables = [part for table in CAPTURED for part in ("--table", f"public.{table}")]
        flags = ("--publication", name, "--role", name, "--url", url)
        for command in (("postgres", "prepare", *tables, "--apply", "--yes"), ("signal", "init")):
            done = CliRunner().invoke(app, [*command, *flags])
            assert done.exit_code == 0, done.stderr
        ask(f"{connect}/connectors/{name}/config", "PUT", configuration(url, name))
        try:
            wait_until(lambda: slot_is(admin, name, active=True), 60)
            yield Captured(url, name, kafka.brokers)
        finally:
            ask(f"{connect}/connectors/{name}", "DELETE")
            wait_until(lambda: slot_is(admin, name, active=False), 60)
            admin.execute("SELECT pg_drop_replication_slot(%s)", [name])
            with psycopg.connect(url, autocommit=True) as own:
                own.execute(f"DROP OWNED BY {name}")
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
            admin.execute(f"DROP ROLE {name}")


def slot_is(admin: psycopg.Connection, name: str, *, active: bool) -> bool:
    query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND active = %s"
    return admin.execute(query, [name, active]).fetchone() == (1,)


def test_an_incremental_snapshot_brings_the_rows_that_the_filter_chooses(captured: Captured):
    request = captured.signal("snapshot", "public.orders", "public.dollar$", "--filter", "public.orders=state = 'DE'")
    wait_until(lambda: captured.state(request["id"]) == "COMPLETED", 90)
    assert sorted(row["id"] for row in captured.reads("orders")) == list(range(1, 21))
    assert [row["id"] for row in captured.reads("dollar_")] == [7]
    status = captured.status(request["id"])
    assert status["notification"]["scanned"]["public.orders"] == "20 rows"
    assert status["chunks"]["read"] >= 3
    assert status["chunks"]["begun"] == status["chunks"]["read"]
    assert status["progress"].endswith("chunks read")


def test_a_partitioned_table_is_read_and_followed_under_its_own_name(captured: Captured):
    request = captured.signal("snapshot", "public.parts")
    wait_until(lambda: captured.state(request["id"]) == "COMPLETED", 90)
    assert sorted(row["id"] for row in captured.reads("parts")) == [1, 2, 3]
    with psycopg.connect(captured.url, autocommit=True) as connection:
        connection.execute("UPDATE parts SET day = '2026-08-08' WHERE id = 3")
    wait_until(
        lambda: [event["op"] for event in captured.events("parts")].count("r") < len(captured.events("parts")), 60
    )
    assert captured.events("parts_2026") == []


def test_a_stop_stops(captured: Captured):
    request = captured.signal("snapshot", "public.big")
    wait_until(lambda: captured.chunks(request["id"]) > 3, 60)
    captured.signal("stop", "public.big")
    wait_until(lambda: captured.state(request["id"]) == "ABORTED", 60)
    read = len(captured.reads("big"))
    assert 30 < read < 20000
    again = captured.signal("snapshot", "public.orders")
    wait_until(lambda: captured.state(again["id"]) == "COMPLETED", 60)
    assert len(captured.reads("big")) == read


def test_a_pause_pauses_and_a_resumption_resumes(captured: Captured):
    request = captured.signal("snapshot", "public.long")
    wait_until(lambda: captured.chunks(request["id"]) > 3, 60)
    captured.signal("pause")
    wait_until(lambda: captured.state(request["id"]) == "PAUSED", 60)
    paused = captured.chunks(request["id"])
    # Changes go on meanwhile, and bring no chunk along.
    with psycopg.connect(captured.url, autocommit=True) as connection:
        connection.execute("INSERT INTO orders VALUES (100, 'IT')")
    wait_until(lambda: any(event["op"] == "c" for event in captured.events("orders")), 60)
    assert captured.chunks(request["id"]) <= paused + 1
    assert len(captured.reads("long")) < 8000
    captured.signal("resume")
    wait_until(lambda: captured.state(request["id"]) == "COMPLETED", 90)
    assert {row["id"] for row in captured.reads("long")} == set(range(1, 8001))


def test_a_paused_snapshot_is_stopped_when_it_is_resumed(captured: Captured):
    request = captured.signal("snapshot", "public.big")
    wait_until(lambda: captured.chunks(request["id"]) > 3, 60)
    captured.signal("pause")
    wait_until(lambda: captured.state(request["id"]) == "PAUSED", 60)
    paused = captured.chunks(request["id"])
    captured.signal("stop")
    captured.signal("resume")
    wait_until(lambda: captured.state(request["id"]) == "ABORTED", 60)
    assert captured.chunks(request["id"]) <= paused + 2


def test_a_blocking_snapshot_reads_a_table_without_a_key(captured: Captured):
    refused = CliRunner().invoke(app, ["signal", "snapshot", "public.log", "--url", captured.url])
    assert refused.exit_code == 2
    assert "without a primary key: public.log" in refused.stderr
    filters = ("--filter", "public.log=line = 'b'", "--filter", 'public."odd name"=id > 1')
    captured.signal("snapshot", "public.log", 'public."odd name"', "--blocking", *filters)
    wait_until(lambda: bool(captured.reads("log")) and len(captured.reads("odd_name")) > 1, 90)
    assert [row["line"] for row in captured.reads("log")] == ["b"]
    assert sorted(row["id"] for row in captured.reads("odd_name")) == [2, 3]
