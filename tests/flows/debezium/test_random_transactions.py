"""Random transactions, with DDL among them, through real Debezium and Kafka: all three tables are what PostgreSQL holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.flows.debezium.bank import LONG, Bank, bank
from tests.flows.debezium.topic_oracle import TopicOracle
from tests.support.stack import KafkaForTests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.spark]

TABLE = "burst_bank.customer"
KEYS = st.integers(1, 8)
ROWS = st.one_of(
    st.builds(
        lambda key, fico: (
            f"INSERT INTO {TABLE} (custkey, fico, notes) VALUES ({key}, {fico}, '{LONG}{fico}') ON CONFLICT DO NOTHING"
        ),
        KEYS,
        st.integers(300, 850),
    ),
    st.builds(lambda key, fico: f"UPDATE {TABLE} SET fico = {fico} WHERE custkey = {key}", KEYS, st.integers(300, 850)),
    st.builds(lambda key, n: f"UPDATE {TABLE} SET notes = '{LONG}{n}' WHERE custkey >= {key}", KEYS, st.integers(0, 9)),
    st.builds(
        lambda key, to: (
            f"UPDATE {TABLE} SET custkey = {to} WHERE custkey = {key} "
            f"AND NOT EXISTS (SELECT FROM {TABLE} WHERE custkey = {to})"
        ),
        KEYS,
        KEYS,
    ),
    st.builds(lambda key: f"DELETE FROM {TABLE} WHERE custkey = {key}", KEYS),
    st.just(f"TRUNCATE {TABLE}"),
)
# A name that was dropped does not come back: what that does to rows that nobody touches is in no event.
SHAPES = st.sampled_from(["add", "drop", "rename"])
TRANSACTIONS = st.lists(
    st.tuples(st.lists(st.one_of(ROWS, ROWS, ROWS, ROWS, SHAPES), min_size=1, max_size=6), st.booleans()),
    min_size=1,
    max_size=8,
)


class Shaper:
    """Columns `x1`, `x2` … of the table, which come and go."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def statement(self, step: str, connection: psycopg.Connection) -> str:
        if step not in {"add", "drop", "rename"}:
            return step
        columns = connection.execute(f"SELECT * FROM {TABLE} LIMIT 0").description or ()
        ours = [column.name for column in columns if column.name.startswith("x")]
        new = f"x{next(self._numbers)}"
        if step == "add" or not ours:
            return f"ALTER TABLE {TABLE} ADD {new} text"
        if step == "drop":
            return f"ALTER TABLE {TABLE} DROP {ours[0]}"
        # Untouched rows say nothing of their new name, so all of them are touched.
        return f"ALTER TABLE {TABLE} RENAME {ours[0]} TO {new}; UPDATE {TABLE} SET city = city"


@pytest.fixture
def customers(
    connect: str, kafka: KafkaForTests, database: str, tmp_path: Path, spark: SparkSession, namespace: str
) -> Iterator[tuple[Bank, str]]:
    with bank(connect, kafka.brokers, database, tmp_path, spark, namespace) as shop_bank:
        shop_bank.execute(f"INSERT INTO {TABLE} (custkey) VALUES (1)")
        shop_bank.follow()
        yield shop_bank, kafka.brokers


def follows(customers: tuple[Bank, str], examples: int) -> Callable[[], None]:
    source, brokers = customers
    shaper = Shaper()
    examples_run = itertools.count(1)

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=examples < 10,
        phases=[Phase.generate],  # each example goes on where the last one ended: there is nothing to shrink
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(TRANSACTIONS)
    def go(transactions: list[tuple[list[str], bool]]) -> None:
        with psycopg.connect(source.database, autocommit=True) as connection:
            for steps, commits in transactions:
                with connection.transaction(force_rollback=not commits):
                    for step in steps:
                        connection.execute(shaper.statement(step, connection))
            # An event that has all columns: DDL alone sends none. Its city is new, so that no table can equal the
            # source before this event, the last one, is there.
            city = f"Lynn {next(examples_run)}"
            connection.execute(
                f"INSERT INTO {TABLE} (custkey, city) VALUES (1, '{city}') "
                "ON CONFLICT (custkey) DO UPDATE SET city = excluded.city"
            )
        source.follow()
        log = f"SELECT kafka_partition, kafka_offset FROM {source.namespace}.customer_changes"
        source.run_until(lambda: set(source.select(log)) == TopicOracle.of(brokers, source.topic).events)
        events = TopicOracle.of(brokers, source.topic).events
        assert sorted(source.select(log)) == sorted(events)

    return go


@pytest.mark.timeout(300)
def test_any_transactions_give_the_source(customers: tuple[Bank, str]):
    follows(customers, 5)()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_any_transactions_for_long(customers: tuple[Bank, str]):
    follows(customers, 40)()
