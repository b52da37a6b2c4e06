"""Records what Debezium's MySQL connector writes into Kafka: the files of `recorded_mysql`.

No MySQL server comes with a Python or Java package, so it is not run by the tests; this is run by hand where one is at
hand (with its binary log in rows, GTIDs, and a user who may do everything), and needs PyMySQL:

    python -m tests.sources.debezium.record_mysql mysql://ann:secret@127.0.0.1:3306 debezium-connector-mysql-…-plugin.tar.gz
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tarfile
import tempfile
import time
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pymysql
from confluent_kafka import Consumer, Message

from headwater.services.connect.client import ConnectClient
from headwater.services.stack.kafka import Connect, Kafka
from headwater.services.stack.service import running
from tests.sources.debezium.mysql_things import CREATED, EMPTIED, HAPPENED, MODES
from tests.sources.debezium.reading import RECORDED_MYSQL

_QUIET_SECONDS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("server")
    parser.add_argument("plugin", type=Path)
    arguments = parser.parse_args()
    server = urllib.parse.urlsplit(arguments.server)
    with tempfile.TemporaryDirectory() as work, running(Kafka(), Path(work) / "kafka") as kafka:
        with tarfile.open(arguments.plugin) as packed:
            packed.extractall(Path(work) / "plugins", filter="data")
        brokers = kafka.address["brokers"]
        recipe = Connect(brokers, {"plugin.path": str(Path(work) / "plugins")})
        with running(recipe, Path(work) / "connect") as connect:
            record(server, brokers, connect.address["url"])


def record(server: urllib.parse.SplitResult, brokers: str, connect: str) -> None:
    database = pymysql.connect(
        host=server.hostname, port=server.port or 3306, user=server.username, password=server.password, autocommit=True
    )

    def run(statements: Sequence[str]) -> None:
        with database.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    run(["DROP DATABASE IF EXISTS recorded", "RESET BINARY LOGS AND GTIDS", "SET time_zone = '+00:00'", *CREATED])
    with contextlib.closing(ConnectClient(connect)) as client:
        for number, mode in enumerate(MODES):
            start(client, mode, server, brokers, number)
    wait_until_quiet(brokers)
    run(HAPPENED)
    wait_until_quiet(brokers)  # the snapshot that was asked for must be over before its table is emptied
    run(EMPTIED)
    wait_until_quiet(brokers)
    for mode in MODES:
        write(mode, messages(brokers, f"{mode}.recorded.things"))


def start(connect: ConnectClient, mode: str, server: urllib.parse.SplitResult, brokers: str, number: int) -> None:
    config = {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": server.hostname,
        "database.port": str(server.port or 3306),
        "database.user": server.username,
        "database.password": server.password,
        "database.server.id": str(5000 + number),
        "database.ssl.mode": "preferred",
        "driver.allowPublicKeyRetrieval": "true",
        "topic.prefix": mode,
        "table.include.list": "recorded.things,recorded.signals",
        "signal.data.collection": "recorded.signals",
        "schema.history.internal.kafka.bootstrap.servers": brokers,
        "schema.history.internal.kafka.topic": f"{mode}-history",
        "skipped.operations": "none",
        **MODES[mode][0],
    }
    connect.put(mode, config)


def wait_until_quiet(brokers: str) -> None:
    """Until no topic of a mode grew for a while."""
    before, since = -1, time.monotonic()
    while time.monotonic() - since < _QUIET_SECONDS:
        time.sleep(1)
        count = sum(len(messages(brokers, f"{mode}.recorded.things")) for mode in MODES)
        if count != before or not count:
            before, since = count, time.monotonic()


def messages(brokers: str, topic: str) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": brokers, "group.id": f"recorder-{time.monotonic()}", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        messages = []
        while (one := consumer.poll(1 if messages else 5)) is not None:  # a tombstone is false
            if not one.error():
                messages.append(one)
        return messages
    finally:
        consumer.unsubscribe()
        consumer.close()


def write(mode: str, messages: Sequence[Message]) -> None:
    """One event a line; a schema stands once, in front of the first that has it."""
    schemas: list[Any] = []

    def document(data: bytes | None) -> Any:
        value = None if data is None else json.loads(data)
        if isinstance(value, dict) and set(value) == {"schema", "payload"}:
            if value["schema"] not in schemas:
                schemas.append(value["schema"])
            return {"schema": schemas.index(value["schema"]), "payload": value["payload"]}
        return value

    events = [
        {
            "headers": [[n, v.decode()] for n, v in one.headers() or []],
            "key": document(one.key()),
            "value": document(one.value()),
        }
        for one in messages
    ]
    lines = [json.dumps({"schema": schema}) for schema in schemas] + [json.dumps(event) for event in events]
    (RECORDED_MYSQL / f"{mode}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
