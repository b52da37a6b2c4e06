"""Change capture from end to end: PostgreSQL, Debezium in Kafka Connect, Kafka, and three Iceberg tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.flows.debezium.bank import LONG, Bank, bank
from tests.support.stack import KafkaForTests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def customers(
    connect: str, kafka: KafkaForTests, database: str, tmp_path: Path, spark: SparkSession, namespace: str
) -> Iterator[Bank]:
    with bank(connect, kafka.brokers, database, tmp_path, spark, namespace) as shop_bank:
        yield shop_bank


def insert(number: int, name: str, notes: str = LONG) -> str:
    values = f"{number}, '{name}', 'Boston', 'MA', 700, '2026-03-02', 12.50, '{notes}'"
    return f"INSERT INTO burst_bank.customer VALUES ({values})"


def test_the_tables_follow_the_source_through_everything_that_happens_to_it(customers: Bank):
    customers.execute(insert(1, "Ann"), insert(2, "Bob"), insert(3, "Cy"))
    customers.follow()
    customers.execute(
        "UPDATE burst_bank.customer SET fico = 712 WHERE custkey = 1",
        "DELETE FROM burst_bank.customer WHERE custkey = 2",
        "UPDATE burst_bank.customer SET custkey = 30, city = 'Salem' WHERE custkey = 3",
    )
    customers.follow()
    assert customers.source()[-1][-1] == LONG  # it never travelled again
    customers.execute(
        "BEGIN; INSERT INTO burst_bank.customer (custkey) VALUES (4), (5); "
        "UPDATE burst_bank.customer SET city = 'Lynn' WHERE custkey = 4; "
        "DELETE FROM burst_bank.customer WHERE custkey = 5; COMMIT",
        "ALTER TABLE burst_bank.customer ADD tier text DEFAULT 'gold'",
        "UPDATE burst_bank.customer SET tier = 'silver'",
        "ALTER TABLE burst_bank.customer ALTER fico TYPE integer",
        insert(6, "Dee").replace("')", "', 'bronze')"),
    )
    customers.follow()
    customers.execute("TRUNCATE burst_bank.customer", insert(1, "Eve").replace("')", "', 'new')"))
    customers.follow()
    learned = "; ".join(entry.why for entry in customers.history())
    assert "new column tier string" in learned
    operations = customers.select(f"SELECT DISTINCT _op FROM {customers.namespace}.customer_changes ORDER BY 1")
    assert [op for (op,) in operations] in (["c", "d", "t", "u"], ["c", "d", "r", "t", "u"])
