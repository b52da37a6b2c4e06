"""Topics of one pipeline, each recoverable on its own: what one of them brings stops no other (G1, G2, G8)."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from headwater.engine.result import CycleResult
from headwater.engine.runner import run_all
from tests.sources.debezium.reading import event, field, with_schema
from tests.support.stack import KafkaForTests
from tests.support.world import Component, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.servers]

ID = field("id", "int32")


class Topics(World):
    """Three topics in one pipeline."""

    def __init__(self, folder: Path, spark: SparkSession, kafka: KafkaForTests, namespace: str) -> None:
        self.namespace = namespace
        self.prefix = f"{kafka.topic(name='apart')}."
        self.names = [self.prefix + name for name in "abc"]
        for name in self.names:
            kafka.create(name, partitions=2)
        self._producer = Producer({"bootstrap.servers": kafka.brokers, "log_level": 0})
        super().__init__(
            folder,
            {"kafka": {"brokers": kafka.brokers, "topics": [f"{self.prefix}*"]}},
            self._sinks("append"),
            spark=spark,
        )

    def _sinks(self, mode: str) -> list[Component]:
        return [{"files": {"path": "./files"}}, {"iceberg": {"table": f"{self.namespace}.{{table}}", "mode": mode}}]

    def follow_json(self, **settings: object) -> None:
        self.configure(source={"schema": "id bigint"}, **settings)

    def follow_debezium(self, **settings: object) -> None:
        source = {"format": "debezium", "debezium": {"key": ["id"], **settings}}
        self.configure(source=source, sinks=self._sinks("merge"))

    def send(self, name: str, *values: object) -> None:
        for number, value in enumerate(values):
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            self._producer.produce(self.prefix + name, body, partition=number % 2)
        assert self._producer.flush(30) == 0

    def ids(self, name: str) -> list[int]:
        return [number for (number,) in self.select(f"SELECT id FROM {self.namespace}.{name} ORDER BY id")]


@pytest.fixture
def topics(kafka, tmp_path, namespace, spark) -> Topics:
    return Topics(tmp_path, spark, kafka, namespace)


def test_a_topic_with_too_many_rejects_stops_no_other_and_its_rejects_are_its_own(topics: Topics):
    topics.follow_json(max_rejects=1)
    for name in "abc":
        topics.send(name, {"id": 1}, {"id": 2})
    assert topics.run().outcome == "landed"
    topics.send("a", {"id": 3}, b"one is borne")
    topics.send("b", b"no", b"no", b"no", {"id": 3})
    topics.send("c", {"id": 3})
    result = topics.run()
    assert (result.outcome, result.failed_streams) == ("failed", (topics.names[1],))
    assert result.error.code == "too-many-rejects"
    assert (result.rows, result.rejected) == (2, 1)
    assert [topics.ids(name) for name in "abc"] == [[1, 2, 3], [1, 2], [1, 2, 3]]
    topics.send("b", {"id": 4})
    topics.send("c", {"id": 4})
    topics.run()
    assert [topics.ids(name) for name in "abc"] == [[1, 2, 3], [1, 2], [1, 2, 3, 4]]
    topics.follow_json(max_rejects=10)
    mended = topics.run()
    assert (mended.outcome, mended.rejected) == ("landed", 3)
    assert topics.progress().paused == ()
    assert [topics.ids(name) for name in "abc"] == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4]]
    assert topics.run().outcome == "nothing new"


def change(number: int, kind: dict, value: object) -> dict:
    return with_schema([ID, kind], event("c", {"id": number, "v": value}))


def test_a_topic_whose_columns_are_refused_is_left_out_of_windows_until_it_is_mended(topics: Topics):
    topics.follow_debezium()
    for name in "abc":
        topics.send(name, change(1, field("v", "int32"), 5))
    assert topics.run().outcome == "landed"
    topics.send("a", change(2, field("v", "int32"), 5))
    topics.send("b", change(2, field("v", "string"), "text"))
    result = topics.run()
    assert (result.outcome, result.failed_streams, result.rows) == ("failed", (topics.names[1],), 1)
    assert result.error.code == "schema-refused"
    waiting = topics.progress().paused
    assert [(one.stream, one.window) for one in waiting] == [(topics.names[1], None)]
    topics.send("c", change(2, field("v", "int32"), 6))
    assert topics.run().rows == 1
    assert [topics.ids(name) for name in "abc"] == [[1, 2], [1], [1, 2]]
    again = topics.run()
    assert (again.outcome, again.windows, again.failed_streams) == ("failed", (), (topics.names[1],))
    topics.follow_debezium(type_changes="new_column")
    assert topics.run().outcome == "landed"
    assert topics.progress().paused == ()
    assert [topics.ids(name) for name in "abc"] == [[1, 2], [1, 2], [1, 2]]


def test_a_running_pipeline_goes_on_beside_a_topic_that_waits(topics: Topics):
    topics.follow_json(max_rejects=0, every="1s")
    topics.send("b", b"no")
    results: list[CycleResult] = []
    stop, deadline = threading.Event(), time.monotonic() + 90

    def report(result: CycleResult) -> None:
        if not results:
            topics.send("a", {"id": 1})
        results.append(result)
        # The topic is tried again less and less often: a cycle without it comes soon.
        if result.outcome == "nothing new" or time.monotonic() > deadline:
            stop.set()

    with topics.pipeline() as pipeline:
        run_all([pipeline.scheduled()], stop, report)
    assert results[0].failed_streams == (topics.names[1],)
    assert topics.ids("a") == [1]
    last = results[-1]
    assert (last.outcome, last.warnings[0].split(":")[0]) == ("nothing new", f"{topics.names[1]} is paused")


def test_a_topic_that_is_alone_stops_its_pipeline_as_before(topics: Topics):
    topics.configure(source={"schema": "id bigint", "topics": topics.names[1]}, max_rejects=0)
    topics.send("b", b"no")
    result = topics.run()
    assert (result.outcome, result.failed_streams) == ("failed", ())
    assert topics.progress().intent is not None
    assert topics.progress().paused == ()
