"""What a MySQL connector wrote becomes the table that MySQL had."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.sources.debezium.reading import as_bytes, recorded_mysql
from tests.support.stack import KafkaForTests
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.spark]


def test_tables_follow_mysql_through_compressed_transactions_a_snapshot_and_a_truncate(
    tmp_path: Path, kafka: KafkaForTests, spark: SparkSession, namespace: str
):
    events = recorded_mysql("transactions")
    emptied = next(n for n, event in enumerate(events) if event["key"] is None)
    topic, state = kafka.topic(), f"{namespace}.state"
    source = {"brokers": kafka.brokers, "topics": [topic], "format": "debezium"}
    world = World(tmp_path, {"kafka": source}, [{"iceberg": {"table": state, "mode": "merge"}}], spark=spark)
    producer = Producer({"bootstrap.servers": kafka.brokers, "log_level": 0})

    def land(part: list[dict]) -> dict:
        for one in part:
            headers = [(name, value.encode()) for name, value in one["headers"]]
            producer.produce(topic, as_bytes(one["value"]), as_bytes(one["key"]), headers=headers)
        assert producer.flush(30) == 0
        result = world.run()
        assert result.error is None, result.error
        return {row["id"]: row for row in spark.sql(f"SELECT * FROM {state}").collect()}

    # Cut within the compressed transaction: its changes of one row come in two windows.
    land(events[:17])
    rows = land(events[17:emptied])
    assert {number: row["s"] for number, row in rows.items()} == {1: 7, 2: None, 3: 7, 6: 4, 7: 3, 50: None}
    assert rows[1]["n"] == Decimal("-123456789.125")
    assert rows[1]["dt6"] == dt.datetime(2026, 3, 2, 8, 30, 0, 123456)  # noqa: DTZ001 - a DATETIME has no zone
    assert list(land(events[emptied:])) == [9]
    assert list(land(events[12:])) == [9]  # a connector that began again
