"""Tables made anew from the log of changes, on a branch, shown before they are published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from headwater.testing.change_log import ChangeLog, Event
from tests.support.stack import KafkaForTests
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.spark]


def message(event: Event) -> dict:
    """As Debezium writes it, without a schema."""
    major, minor = divmod(event.position, 10**19)
    left_out = event.missing or ()
    values = {"id": event.id, "note": event.note, "body": event.body}
    after = {name: "__debezium_unavailable_value" if name in left_out else value for name, value in values.items()}
    source = {"connector": "postgresql", "sequence": json.dumps([str(major), str(minor // 2)]), "lsn": minor // 2}
    rows = {"before": {"id": event.id} if event.op == "d" else None, "after": after if event.op in "cur" else None}
    return {**rows, "source": {**source, "ts_us": 1_772_440_200_000_000 + major}, "op": event.op}


class Shop(World):
    """A topic that a log of changes goes to, and a pipeline with a log, a current state and a history."""

    def __init__(self, folder: Path, kafka: KafkaForTests, spark: SparkSession, namespace: str) -> None:
        self.namespace, self.log = namespace, ChangeLog()
        self.topic = kafka.topic(partitions=1)
        self._producer, self._sent = Producer({"bootstrap.servers": kafka.brokers, "log_level": 0}), 0
        source = {"brokers": kafka.brokers, "topics": [self.topic], "format": "debezium"}
        sinks = [("log", "changes"), ("state", "merge"), ("history", "history")]
        super().__init__(
            folder,
            {"kafka": source},
            [{"iceberg": {"table": f"{namespace}.{name}", "mode": mode}} for name, mode in sinks],
            spark=spark,
        )

    def send(self) -> None:
        for event in self.log.events[self._sent :]:
            headers = None if event.old_key is None else [("__debezium.oldkey", json.dumps({"id": event.old_key}))]
            key = None if event.id is None else json.dumps({"id": event.id})
            self._producer.produce(self.topic, json.dumps(message(event)), key=key, headers=headers)
        self._sent = len(self.log.events)
        assert self._producer.flush(30) == 0

    def land(self) -> None:
        self.send()
        result = self.run()
        assert result.error is None, result.error

    def rows(self) -> dict[int, tuple[str, str]]:
        rows = self.select(f"SELECT id, note, body FROM {self.namespace}.state")
        return {key: (note, body) for key, note, body in rows}

    def versions(self) -> list[tuple]:
        columns = "id, note, body, valid_from_position, valid_to_position"
        rows = self.select(f"SELECT {columns} FROM {self.namespace}.history")
        return sorted((*row[:3], int(row[3]), row[4] and int(row[4])) for row in rows)


@pytest.fixture
def shop(tmp_path: Path, kafka: KafkaForTests, spark: SparkSession, namespace: str) -> Shop:
    shop = Shop(tmp_path, kafka, spark, namespace)
    shop.log.insert(1, "a", "A")
    shop.log.insert(2, "b", "B")
    shop.log.update(1, "c")
    shop.log.move(2, 3, "d")
    shop.land()
    return shop


def test_damaged_tables_are_made_anew_and_differences_are_shown_first(shop: Shop):
    shop.select(f"UPDATE {shop.namespace}.state SET note = 'wrong' WHERE id = 1")
    shop.select(f"DELETE FROM {shop.namespace}.history WHERE id = 1")
    with shop.pipeline() as pipeline:
        previewed = []
        before = pipeline.rewind(None, why="a slip", rebuild=lambda tables: bool(previewed.extend(tables)))
        assert [(one.added, one.lost) for one in previewed] == [(1, 1), (2, 0)]
        assert shop.rows()[1][0] == "wrong"  # nobody agreed
        after = pipeline.rewind(None, why="a slip", rebuild=lambda _: True)
        assert before.mark == after.mark
        assert [entry.why for entry in pipeline.history(1)] == ["a slip"]
    assert shop.rows() == shop.log.rows
    assert shop.versions() == shop.log.history()
    assert "headwater_rebuild" not in str(shop.select(f"SELECT name FROM {shop.namespace}.state.refs"))


def test_a_plan_says_how_changes_come_into_their_tables(shop: Shop):
    shop.log.update(1, "f")
    shop.send()
    with shop.pipeline() as pipeline:
        foreseen = pipeline.explain_merge(pipeline.plan())
    assert [(one.sink, one.way) for one in foreseen] == [
        ("1:iceberg", "copy-on-write"),
        ("2:iceberg", "copy-on-write"),
        ("3:iceberg", "copy-on-write"),
    ]
    assert "1 keys against" in foreseen[1].why


def test_changes_go_on_after_a_rebuild(shop: Shop):
    shop.select(f"DELETE FROM {shop.namespace}.state")
    shop.rewind(None, rebuild=lambda _: True)
    shop.log.update(3, "e")
    shop.log.delete(1)
    shop.land()
    assert shop.rows() == shop.log.rows == {3: ("e", "B")}
    assert shop.versions() == shop.log.history()


def test_a_rebuild_up_to_a_position_lets_the_windows_after_it_land_again(shop: Shop):
    shop.rewind(f"{shop.topic}:0=2", rebuild=lambda _: True)
    assert shop.rows() == {1: ("a", "A"), 2: ("b", "B")}
    shop.land()
    assert shop.rows() == shop.log.rows
    assert shop.versions() == shop.log.history()
    assert shop.select(f"SELECT count(*) FROM {shop.namespace}.log") == [(len(shop.log.events),)]
