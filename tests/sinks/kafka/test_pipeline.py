"""The first pipeline that Headwater was asked for, whole: a notification table into console, Kafka and Iceberg."""

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from headwater.api import Project
from headwater.config.load import load_project
from headwater.model.faults import RehearsedFault
from tests.sinks.kafka.topic_reader import read_topic

HEADWATER = Path(sys.executable).with_name("headwater")


@pytest.fixture
def topic(kafka):
    return kafka.topic(partitions=3, name="content_delta")


@pytest.fixture
def content(database, tmp_path, kafka, topic):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE SCHEMA cms")
        connection.execute(
            """CREATE TABLE cms.content_notification_status (
                id uuid PRIMARY KEY DEFAULT gen_random_uuid(), seq bigint GENERATED ALWAYS AS IDENTITY, state text)"""
        )
    insert(database, "draft", "sent", "read")
    (tmp_path / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
    write_pipeline(tmp_path, database, f'- kafka: {{brokers: "{kafka.brokers}", topic: {topic}, key: id}}')
    return tmp_path


def insert(database, *states):
    with psycopg.connect(database) as connection:
        for state in states:
            connection.execute("INSERT INTO cms.content_notification_status (state) VALUES (%s)", [state])


def write_pipeline(folder, database, *sinks, transform=""):
    lines = "\n".join(f"  {sink}" for sink in ("- console: {}", *sinks))
    (folder / "content.yaml").write_text(f"""
pipeline: content
every: 5s
source:
  sql:
    url: {database}
    table: cms.content_notification_status
    cursor: seq
    start: -1
{transform}
sinks:
{lines}
""")


def headwater(folder, *arguments):
    # Without a PATH there is no Java: whatever passes here has started none.
    environment = {"PATH": "", "HOME": str(folder)}
    return subprocess.run(
        [HEADWATER, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_from_sql_to_kafka_no_java_is_needed(content, database, kafka, topic):
    plan = headwater(content, "plan", "content.yaml")
    assert "lands in 1:console, 2:kafka (at least once" in plan.stdout, plan.stderr
    first = headwater(content, "run", "content.yaml", "--once")
    assert first.returncode == 0, first.stderr
    assert "draft" in first.stdout
    assert sorted(read.row["state"] for read in read_topic(kafka, topic)) == ["draft", "read", "sent"]
    insert(database, "archived")
    second = json.loads(headwater(content, "run", "content.yaml", "--once", "--json").stdout)
    assert second["sinks"][1]["sink"] == "2:kafka"
    assert second["sinks"][1]["rows"] == 1
    messages = read_topic(kafka, topic)
    assert len(messages) == 4
    newest = next(read for read in messages if read.row["state"] == "archived")
    assert newest.key.decode() == newest.row["id"]
    assert newest.headers["headwater.run"] == second["run"]


@pytest.mark.spark
def test_a_failure_after_kafka_does_not_repeat_what_kafka_has(content, database, kafka, topic, spark, namespace):
    """The landing in Kafka is on record before the next sink begins, so only a crash in between leaves repeats."""
    write_pipeline(
        content,
        database,
        f'- kafka: {{brokers: "{kafka.brokers}", topic: {topic}, key: id}}',
        f"- iceberg: {{table: {namespace}.content, mode: merge, key: [id]}}",
        transform="transform: SELECT *, upper(state) AS state_code FROM rows",
    )

    def run(faults=None):
        with Project(load_project(content), content, spark=spark, faults=faults) as project:
            return project.pipelines([content / "content.yaml"])[0].run_once()

    failed = run(RehearsedFault("land.before", "sink", 3))
    assert "rehearsed outage" in failed.error.message
    assert len(read_topic(kafka, topic)) == 3
    insert(database, "archived")
    landed = run()
    assert (landed.outcome, landed.recovered) == ("landed", True)
    messages = read_topic(kafka, topic)
    table = spark.sql(f"SELECT CAST(id AS string) AS id, seq, state, state_code FROM {namespace}.content").collect()
    assert len(messages) == len(table) == 4
    by_key = {read.key.decode(): read.row for read in messages}
    assert by_key == {row["id"]: row.asDict() for row in table}
    assert {row["state_code"] for row in by_key.values()} == {"DRAFT", "SENT", "READ", "ARCHIVED"}
    assert run().outcome == "nothing new"
