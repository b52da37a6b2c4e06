"""A Kafka Connect worker of our own: its connectors are there, and Debezium brings a row from PostgreSQL to Kafka."""

from __future__ import annotations

import json
import urllib.request
import uuid

import psycopg
import pytest
from confluent_kafka import Consumer

from tests.support.replication_slots import drop_slot
from tests.support.stack import KafkaForTests
from tests.support.wait import wait_until

pytestmark = pytest.mark.servers


def ask(url: str, method: str = "GET", body: object = None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own server
        return json.loads(answer.read() or "null")


def test_the_connectors_are_there(connect: str):
    known = {plugin["class"].rpartition(".")[2]: plugin["version"] for plugin in ask(f"{connect}/connector-plugins")}
    assert known == {
        "PostgresConnector": "3.6.3.Final",
        "FileStreamSourceConnector": "4.2.0",
        "FileStreamSinkConnector": "4.2.0",
    }


def test_debezium_brings_a_row_from_postgres_to_kafka(connect: str, kafka: KafkaForTests, database: str):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
        connection.execute("INSERT INTO orders VALUES (1, 'apple')")
    name = f"shop_{uuid.uuid4().hex[:8]}"
    at = psycopg.conninfo.conninfo_to_dict(database)
    connector = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": at["host"],
        "database.port": at["port"],
        "database.user": at["user"],
        "database.dbname": at["dbname"],
        "topic.prefix": name,
        "slot.name": name,
        "publication.name": name,
        "table.include.list": "public.orders",
    }
    ask(f"{connect}/connectors", "POST", {"name": name, "config": connector})
    try:
        assert first_value(kafka.brokers, f"{name}.public.orders")["payload"]["after"] == {"id": 1, "item": "apple"}
    finally:
        ask(f"{connect}/connectors/{name}", "DELETE")
        drop_slot(database, name)


def first_value(brokers: str, topic: str):
    settings = {"bootstrap.servers": brokers, "group.id": topic, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({**settings, "topic.metadata.refresh.interval.ms": 200})
    consumer.subscribe([topic])
    payloads: list[bytes] = []

    def arrived() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            payloads.append(message.value())
        return bool(payloads)

    wait_until(arrived, 60)
    consumer.close()
    return json.loads(payloads[0])
