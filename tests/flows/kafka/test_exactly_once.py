"""Kafka into Iceberg, exactly once: whatever is killed, restarted, aborted or forgotten meanwhile (G2, G9)."""

from __future__ import annotations

import random

import psycopg
import pytest

from headwater.services.stack.kafka import Kafka
from headwater.services.stack.service import running
from tests.flows.kafka.numbered_messages import NumberedMessages
from tests.support.stack import kafka_at
from tests.support.world import World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

PARTITIONS = 6
# messages, kills, rows a window
LOADS = [
    pytest.param(6_000, 3, 700, id="short"),
    pytest.param(200_000, 10, 8_000, id="long", marks=pytest.mark.soak),
]


@pytest.fixture
def load(kafka, tmp_path, namespace, spark):
    topic = kafka.topic(partitions=PARTITIONS)
    numbered = NumberedMessages(tmp_path, spark, kafka.brokers, topic, f"{namespace}.load")
    yield numbered
    numbered.close()


@pytest.mark.parametrize(("messages", "kills", "window"), LOADS)
def test_each_message_lands_once_though_the_process_is_killed_again_and_again(load, messages, kills, window):
    chance = random.Random(4)
    load.configure(source={"max_rows": window})
    producing = load.producing(messages, PARTITIONS)
    for _ in range(kills):
        load.kill_after_cycles(chance.randint(0, 2), chance.uniform(0.0, 1.5))
    producing.join()
    load.land_all()
    assert len(load.committed()) == messages
    assert load.landed() == load.committed()


@pytest.mark.parametrize(("messages", "kills", "window"), LOADS)
def test_each_message_lands_once_through_all_that_happens_to_a_topic(
    tmp_path, namespace, spark, messages, kills, window
):
    """Aborted transactions, a broker that restarts, partitions that are added, a head that retention took."""
    chance = random.Random(5)
    with running(Kafka(), tmp_path / "broker") as broker:
        brokers = broker.address["brokers"]
        topic = kafka_at(brokers).topic(partitions=PARTITIONS)
        folder = tmp_path / "project"
        folder.mkdir()
        load = NumberedMessages(folder, spark, brokers, topic, f"{namespace}.load", max_rows=window)
        part = messages // 4
        load.produce_in_transactions(part, PARTITIONS, 0, seed=1)
        producing = load.producing(part, PARTITIONS, start=part)
        broker.restart()
        producing.join()
        load.kill_after_cycles(1, chance.uniform(0.0, 1.0))
        load.add_partitions(PARTITIONS + 3)
        producing = load.producing(part, PARTITIONS + 3, start=2 * part)
        broker.kill()
        broker.start()
        for _ in range(kills - 1):
            load.kill_after_cycles(chance.randint(0, 2), chance.uniform(0.0, 1.0))
        producing.join()
        load.land_all()
        before = load.committed()
        assert load.landed() == before
        load.delete_records(load.landed())
        load.produce_in_transactions(messages - 3 * part, PARTITIONS + 3, 3 * part, seed=2)
        load.land_all()
        assert load.landed() == before + load.committed()
        assert 0 < len(load.landed()) < messages  # some transactions were aborted, not all


def test_a_gap_left_by_retention_stops_the_pipeline_until_somebody_decides(load, kafka):
    load.produce(60, PARTITIONS)
    load.land_all()
    load.produce(60, PARTITIONS, start=60)
    load.delete_records(load.committed())
    load.produce(60, PARTITIONS, start=120)
    result = load.run()
    assert result.error.code == "source-changed"
    assert "10" in result.error.message  # offsets 10 to 19 of each partition are gone
    assert "headwater rewind messages --skip-gap" in result.error.hint
    assert result.error.retry == "operator"
    load.rewind("skip-gap")
    load.land_all()
    assert sorted(n for _, _, n in load.landed()) == [*range(60), *range(120, 180)]


def test_a_topic_made_anew_stops_the_pipeline_until_somebody_decides(load, kafka):
    load.produce(60, PARTITIONS)
    load.land_all()
    kafka.delete(load.topic)
    kafka.create(load.topic, partitions=PARTITIONS)
    load.produce(120, PARTITIONS, start=1_000)
    result = load.run()
    assert result.error.code == "source-changed"
    assert load.topic in result.error.message
    load.rewind("earliest")
    load.land_all()
    assert sorted(n for _, _, n in load.landed()) == [*range(60), *range(1_000, 1_120)]


def test_rows_travel_from_sql_through_kafka_into_the_lake(kafka, database, tmp_path, namespace, spark):
    """The seed's own chain: two pipelines in one run, the topic `content_delta` between them."""
    topic = kafka.topic(partitions=3, name="content_delta")
    with psycopg.connect(database) as connection:
        connection.execute("CREATE SCHEMA cms")
        connection.execute("CREATE TABLE cms.content (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text)")
        connection.execute("INSERT INTO cms.content (state) SELECT 'state ' || n FROM generate_series(1, 500) n")
    to_kafka = World(
        tmp_path,
        {"sql": {"url": database, "table": "cms.content", "cursor": "seq", "start": -1}},
        [{"kafka": {"brokers": kafka.brokers, "topic": topic, "key": "seq"}}],
        name="to-kafka",
        spark=spark,
    )
    to_lake = World(
        tmp_path,
        {"kafka": {"brokers": kafka.brokers, "topics": [topic], "schema": "seq bigint, state string"}},
        [{"iceberg": {"table": f"{namespace}.content"}}],
        name="to-lake",
        spark=spark,
    )
    assert to_kafka.run().rows == 500
    assert to_lake.run().rows == 500
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO cms.content (state) VALUES ('late')")
    assert to_kafka.run().rows == 1
    assert to_lake.run().rows == 1
    rows = to_lake.select(f"SELECT seq, state FROM {namespace}.content")
    assert sorted(rows) == [*((n, f"state {n}") for n in range(1, 501)), (501, "late")]


def test_a_topic_that_its_first_producer_will_make_is_waited_for(kafka, tmp_path, namespace, spark):
    """Two pipelines begin together, and the second one's topic is made by the first."""
    load = NumberedMessages(tmp_path, spark, kafka.brokers, f"later_{tmp_path.name}", f"{namespace}.load")
    result = load.run()
    assert "no topic later_" in result.error.message
    assert result.error.retry == "later"
    kafka.create(load.topic, partitions=2)
    load.produce(10, 2)
    load.land_all()
    assert sorted(n for _, _, n in load.landed()) == list(range(10))
