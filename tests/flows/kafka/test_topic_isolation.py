"""Topics of one pipeline, each recoverable on its own: what one of them brings stops no other (G1, G2, G8)."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headwater.api import Project
from headwater.config.load import load_project
from headwater.engine.cycle import run_cycle
from headwater.engine.result import CycleResult
from headwater.engine.runner import ScheduledPipeline, _is_over
from headwater.model.progress import Progress
from tests.sources.debezium.reading import event, field, with_schema
from tests.support.stack import KafkaForTests
from tests.support.wait import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.servers]

ID = field("id", "int32")


@dataclass
class Topics:
    """Three topics in one pipeline."""

    kafka: KafkaForTests
    folder: Path
    namespace: str
    spark: object

    def build(self, source: str, more: str = "", mode: str = "append") -> Topics:
        self.prefix = f"{self.kafka.topic(name='apart')}."
        self.names = [self.prefix + name for name in "abc"]
        for name in self.names:
            self.kafka.create(name, partitions=2)
        (self.folder / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
        self.write(source, more, mode)
        return self

    def write(self, source: str, more: str = "", mode: str = "append") -> None:
        (self.folder / "apart.yaml").write_text(f"""
pipeline: apart
{more}
source:
  kafka: {{brokers: "{self.kafka.brokers}", topics: ["{self.prefix}*"], {source}}}
sinks:
  - files: {{path: ./files}}
  - iceberg: {{table: "{self.namespace}.{{table}}", mode: {mode}}}
""")

    def send(self, name: str, *values: object) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.brokers, "log_level": 0})
        for number, value in enumerate(values):
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(self.prefix + name, body, partition=number % 2)
        assert producer.flush(30) == 0

    def run(self) -> CycleResult:
        with Project(load_project(self.folder), self.folder, spark=self.spark) as project:
            return project.pipelines([self.folder / "apart.yaml"])[0].run_once()

    def progress(self) -> Progress:
        with Project(load_project(self.folder), self.folder, spark=self.spark) as project:
            return project.store.load("apart")

    def ids(self, name: str) -> list[int]:
        found = self.spark.sql(f"SELECT id FROM {self.namespace}.{name} ORDER BY id").collect()
        return [row.id for row in found]


@pytest.fixture
def topics(kafka, tmp_path, namespace, spark) -> Topics:
    return Topics(kafka, tmp_path, namespace, spark)


def test_a_topic_with_too_many_rejects_stops_no_other_and_its_rejects_are_its_own(topics: Topics):
    topics.build("schema: 'id bigint'", "max_rejects: 1")
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
    topics.write("schema: 'id bigint'", "max_rejects: 10")
    mended = topics.run()
    assert (mended.outcome, mended.rejected) == ("landed", 3)
    assert topics.progress().paused == ()
    assert [topics.ids(name) for name in "abc"] == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4]]
    assert topics.run().outcome == "nothing new"


def change(number: int, kind: dict, value: object) -> dict:
    return with_schema([ID, kind], event("c", {"id": number, "v": value}))


def test_a_topic_whose_columns_are_refused_is_left_out_of_windows_until_it_is_mended(topics: Topics):
    debezium = "format: debezium, debezium: {{key: [id]{}}}"
    topics.build(debezium.format(""), mode="merge")
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
    topics.write(debezium.format(", type_changes: new_column"), mode="merge")
    assert topics.run().outcome == "landed"
    assert topics.progress().paused == ()
    assert [topics.ids(name) for name in "abc"] == [[1, 2], [1, 2], [1, 2]]


def test_a_running_pipeline_goes_on_beside_a_topic_that_waits(topics: Topics):
    topics.build("schema: 'id bigint'", "max_rejects: 0\nevery: 1s")
    topics.send("b", b"no")
    with Project(load_project(topics.folder), topics.folder, spark=topics.spark) as project:
        opened = project.pipelines([topics.folder / "apart.yaml"])[0].open()
        result = run_cycle(opened)
        assert result.failed_streams == (topics.names[1],)
        assert not _is_over(ScheduledPipeline(opened, "1s"), result, 0)
        topics.send("a", {"id": 1})

        def landed() -> bool:
            run_cycle(opened)
            return topics.spark.catalog.tableExists(f"{topics.namespace}.a") and topics.ids("a") == [1]

        wait_until(landed)
        began = time.monotonic()
        while (result := run_cycle(opened)).failed_streams:  # tried again less and less often
            assert time.monotonic() - began < 60
        assert (result.outcome, result.warnings[0].split(":")[0]) == ("nothing new", f"{topics.names[1]} is paused")
        opened.close()


def test_a_topic_that_is_alone_stops_its_pipeline_as_before(topics: Topics):
    topics.build("schema: 'id bigint'", "max_rejects: 0")
    text = (topics.folder / "apart.yaml").read_text().replace(f'["{topics.prefix}*"]', topics.names[1])
    (topics.folder / "apart.yaml").write_text(text)
    topics.send("b", b"no")
    result = topics.run()
    assert (result.outcome, result.failed_streams) == ("failed", ())
    assert topics.progress().intent is not None
    assert topics.progress().paused == ()
