"""PostgreSQL → Debezium → Kafka → Headwater → three tables: a bank's customers, and what is known of them on both ends."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from headwater.services.connect.client import ConnectClient
from headwater.services.connect.templates import PostgresCapture, postgres_template
from tests.support.replication_slots import drop_slot
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = """
CREATE SCHEMA burst_bank;
CREATE TABLE burst_bank.customer (
    custkey bigint PRIMARY KEY,
    first_name text,
    city text,
    state char(2),
    fico smallint,
    registration_date date,
    balance numeric(12,2),
    notes text
);
ALTER TABLE burst_bank.customer ALTER notes SET STORAGE EXTERNAL;
CREATE PUBLICATION headwater FOR TABLE burst_bank.customer;
"""
LONG = "long " * 1000  # PostgreSQL keeps it beside the row, and does not send it where it did not change


class Bank(World):
    """One database, the topic of its connector, and a pipeline into three kinds of tables."""

    def __init__(
        self, folder: Path, spark: SparkSession, database: str, brokers: str, connector: str, namespace: str
    ) -> None:
        self.database, self.namespace = database, namespace
        self.topic = f"{connector}.burst_bank.customer"
        tables = [("customer_changes", "changes"), ("customer", "merge"), ("customer_history", "history")]
        super().__init__(
            folder,
            {"kafka": {"brokers": brokers, "topics": [self.topic], "format": "debezium"}},
            [{"iceberg": {"table": f"{namespace}.{table}", "mode": mode}} for table, mode in tables],
            name=connector,
            spark=spark,
        )

    def execute(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def cycle(self) -> None:
        """One cycle; a topic that is not there yet is nothing new."""
        result = self.run_after_crash()
        if result.error is not None and result.error.code != "source-unreachable":
            raise result.error

    def source(self) -> list[tuple]:
        with psycopg.connect(self.database) as connection:
            return connection.execute("SELECT * FROM burst_bank.customer ORDER BY custkey").fetchall()

    @property
    def columns(self) -> list[str]:
        with psycopg.connect(self.database) as connection:
            cursor = connection.execute("SELECT * FROM burst_bank.customer LIMIT 0")
            return [column.name for column in cursor.description or ()]

    def consumed(self) -> list[tuple]:
        return self.select(f"SELECT {', '.join(self.columns)} FROM {self.namespace}.customer ORDER BY custkey")

    def current_versions(self) -> list[tuple]:
        columns = ", ".join(self.columns)
        return self.select(f"SELECT {columns} FROM {self.namespace}.customer_history WHERE is_current ORDER BY custkey")

    def run_until(self, done: Callable[[], bool], seconds: float = 90) -> None:
        """Cycles until it is true, or time is up: then the caller's assertion shows what differs."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.cycle()
            if self.has_table(f"{self.namespace}.customer") and done():
                return

    def follow(self) -> None:
        """Until both ends are equal, row for row."""
        self.run_until(lambda: self.has_columns() and self.consumed() == self.source())
        assert self.consumed() == self.source()
        assert self.current_versions() == self.source()

    def has_columns(self) -> bool:
        there = self.spark.table(f"{self.namespace}.customer").columns
        return set(self.columns) <= set(there)


@contextmanager
def bank(
    connect: str, brokers: str, database: str, folder: Path, spark: SparkSession, namespace: str
) -> Iterator[Bank]:
    """The whole chain; everything that it started ends with it."""
    name = f"bank_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(DDL)
    at = psycopg.conninfo.conninfo_to_dict(database)
    capture = PostgresCapture(
        name=name,
        database=str(at["dbname"]),
        tables=["burst_bank.customer"],
        host=str(at["host"]),
        port=str(at["port"]),
        user=str(at["user"]),
        publication="headwater",
        signal_table="public.debezium_signal",
    )
    config: Any = postgres_template(capture)["config"]
    config["database.password"] = at.get("password") or "none"
    client = ConnectClient(connect)
    client.put(name, config)
    try:
        yield Bank(folder, spark, database, brokers, name, namespace)
    finally:
        client.delete(name)
        drop_slot(database, name)
