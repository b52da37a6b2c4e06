"""Change capture while Headwater, Kafka Connect and the broker are killed: all tables are what the topic's events make."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from headwater.model.faults import EVERY_CYCLE
from headwater.services.stack.kafka import Connect, Kafka
from headwater.services.stack.service import Service, running
from tests.flows.debezium.bank import LONG, Bank, bank
from tests.flows.debezium.topic_oracle import TopicOracle

COLUMNS = "custkey, first_name, city, fico, registration_date, balance, notes"


class Teller:
    """Makes random transactions."""

    def __init__(self, database: str, chance: random.Random) -> None:
        self._database, self._chance = database, chance

    def work(self, transactions: int) -> None:
        with psycopg.connect(self._database, autocommit=True) as connection:
            for _ in range(transactions):
                with connection.transaction():
                    for _ in range(self._chance.randrange(1, 6)):
                        connection.execute(self._statement())

    def _statement(self) -> str:
        chance, key = self._chance, self._chance.randrange(1, 40)
        where = f"WHERE custkey = {key}"
        kind = chance.choices(["insert", "update", "notes", "move", "delete", "truncate"], [8, 8, 3, 4, 4, 0.3])[0]
        if kind == "insert":
            values = f"{key}, 'n{chance.randrange(9)}', 'c', 'MA', 700, '2026-03-02', {chance.randrange(999)}.5, '{LONG}{key}'"
            return f"INSERT INTO burst_bank.customer VALUES ({values}) ON CONFLICT DO NOTHING"
        if kind == "move":
            to = chance.randrange(1, 40)
            free = f"NOT EXISTS (SELECT 1 FROM burst_bank.customer WHERE custkey = {to})"
            return f"UPDATE burst_bank.customer SET custkey = {to} {where} AND {free}"
        if kind == "truncate":
            return "TRUNCATE burst_bank.customer"
        if kind == "delete":
            return f"DELETE FROM burst_bank.customer {where}"
        changed = f"notes = '{LONG}{chance.random()}'" if kind == "notes" else f"fico = {chance.randrange(300, 850)}"
        return f"UPDATE burst_bank.customer SET {changed} {where}"


@contextmanager
def servers(folder: Path) -> Iterator[tuple[Service, Service]]:
    """A broker and a worker that nobody else needs."""
    with (
        running(Kafka(), folder / "kafka") as kafka,
        running(Connect(kafka.address["brokers"]), folder / "connect") as connect,
    ):
        yield kafka, connect


def everything_landed(customers: Bank, kafka: Service) -> TopicOracle:
    """Run until the log holds every event of the topic; rejects of moved rows whose old partition lagged are replayed."""
    log = f"SELECT kafka_partition, kafka_offset FROM {customers.namespace}.customer_changes"
    brokers = kafka.address["brokers"]
    customers.run_until(lambda: set(customers.select(log)) == TopicOracle.of(brokers, customers.topic).events, 120)
    oracle = TopicOracle.of(brokers, customers.topic)
    assert sorted(customers.select(log)) == sorted(oracle.events)
    return oracle


def check(customers: Bank, oracle: TopicOracle) -> None:
    wanted = sorted(tuple(row[name.strip()] for name in COLUMNS.split(",")) for row in oracle.rows.values())
    rows = customers.select(f"SELECT {COLUMNS} FROM {customers.namespace}.customer ORDER BY custkey")
    assert rows == wanted
    current = customers.select(
        f"SELECT {COLUMNS} FROM {customers.namespace}.customer_history WHERE is_current ORDER BY 1"
    )
    assert current == wanted
    columns = "custkey, valid_from_position, valid_to_position"
    versions = customers.select(f"SELECT {columns} FROM {customers.namespace}.customer_history")
    unit = 10**19

    def pair(position: object) -> tuple[int, int] | None:
        return None if position is None else divmod(int(str(position)), unit)

    assert sorted((key, pair(begin), pair(end)) for key, begin, end in versions) == sorted(oracle.versions)


def storm(rounds: int, seed: int, customers: Bank, kafka: Service, connect: Service) -> None:
    chance = random.Random(seed)
    teller = Teller(customers.database, chance)
    for number in range(rounds):
        teller.work(chance.randrange(1, 15))
        kind = number % 4
        if kind == 1:
            connect.kill()
            teller.work(3)
            connect.start()
        elif kind == 3:
            kafka.kill()
            teller.work(3)
            kafka.start()
        customers.start("acknowledged", f"{chance.choice(sorted(EVERY_CYCLE))}:kill").wait()
        customers.cycle()


@pytest.mark.servers
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_killed_at_random_all_tables_are_what_the_topic_says(database: str, tmp_path: Path, spark, namespace: str):
    with servers(tmp_path / "servers") as (kafka, connect):
        where = tmp_path / "project"
        where.mkdir()
        with bank(connect.address["url"], kafka.address["brokers"], database, where, spark, namespace) as customers:
            Teller(database, random.Random(1)).work(5)
            customers.run_until(lambda: True)
            storm(4, 7, customers, kafka, connect)
            check(customers, everything_landed(customers, kafka))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
def test_the_same_for_long(database: str, tmp_path: Path, spark, namespace: str, seed: int):
    with servers(tmp_path / "servers") as (kafka, connect):
        where = tmp_path / "project"
        where.mkdir()
        with bank(connect.address["url"], kafka.address["brokers"], database, where, spark, namespace) as customers:
            Teller(database, random.Random(seed)).work(20)
            customers.run_until(lambda: True)
            storm(24, seed, customers, kafka, connect)
            check(customers, everything_landed(customers, kafka))
