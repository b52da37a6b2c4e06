"""PostgreSQL → Debezium → Kafka → Headwater → three tables: a bank's customers, and what is known of them on both ends."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from headwater.api import Project
from headwater.config.load import load_project
from headwater.engine.result import CycleResult
from headwater.model.progress import HistoryEntry
from headwater.services.connect.client import ConnectClient
from headwater.services.connect.templates import PostgresCapture, postgres_template
from headwater.testing.crashes import expire_lease
from tests.support.replication_slots import drop_slot

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


@dataclass
class Bank:
    """One database, its connector, and a pipeline of its own."""

    database: str
    topic: str
    folder: Path
    spark: SparkSession
    namespace: str

    def execute(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def run_once(self) -> CycleResult:
        with Project(load_project(self.folder), self.folder, spark=self.spark) as project:
            return project.pipelines([self.folder / "bank.yaml"])[0].run_once()

    def history(self) -> Sequence[HistoryEntry]:
        with Project(load_project(self.folder), self.folder, spark=self.spark) as project:
            return project.pipelines([self.folder / "bank.yaml"])[0].history(100)

    def run(self) -> None:
        """One cycle; a topic that is not there yet is nothing new, and a dead process's lease has run out."""
        result = self.run_once()
        if result.error is not None and result.error.code == "lease-held":
            expire_lease(self.folder, self.topic.partition(".")[0])
            result = self.run_once()
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
        return self.sql(f"SELECT {', '.join(self.columns)} FROM {self.namespace}.customer ORDER BY custkey")

    def current_versions(self) -> list[tuple]:
        columns = ", ".join(self.columns)
        return self.sql(f"SELECT {columns} FROM {self.namespace}.customer_history WHERE is_current ORDER BY custkey")

    def sql(self, text: str) -> list[tuple]:
        return [tuple(row) for row in self.spark.sql(text).collect()]

    def run_until(self, done: Callable[[], bool], seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.run()
            if self.spark.catalog.tableExists(f"{self.namespace}.customer") and done():
                return
            time.sleep(0.2)

    def catch_up(self) -> None:
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
    (folder / "headwater.yaml").write_text("{}")
    topic = f"{name}.burst_bank.customer"
    (folder / "bank.yaml").write_text(
        json.dumps(
            {
                "pipeline": name,
                "lease": "2s",
                "source": {"kafka": {"brokers": brokers, "topics": [topic], "format": "debezium"}},
                "sinks": [
                    {"iceberg": {"table": f"{namespace}.customer_changes", "mode": "changes"}},
                    {"iceberg": {"table": f"{namespace}.customer", "mode": "merge"}},
                    {"iceberg": {"table": f"{namespace}.customer_history", "mode": "history"}},
                ],
            }
        )
    )
    try:
        yield Bank(database, topic, folder, spark, namespace)
    finally:
        client.delete(name)
        drop_slot(database, name)
