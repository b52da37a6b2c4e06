"""A landing that cannot be finished fails with what is wrong and what to do, and the next try finishes it."""

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.model.errors import SinkUnreachable, UnknownName, ValueNotKept
from headwater.services.stack.kafka import Kafka, certificate
from headwater.services.stack.service import running
from headwater.sinks.kafka.producer import Undelivered, delivery_error
from headwater.testing.memory_rows import attempt_at, memory_rows, table_of, window_up_to
from tests.sinks.kafka.topic_reader import kafka_sink, read_topic
from tests.support.stack import kafka_at

WINDOW = window_up_to(10)


def notes(sizes, **more):
    table = pa.table({"id": list(range(len(sizes))), "note": ["x" * size for size in sizes]})
    return memory_rows("orders", (table,), key=("id",), **more)


def test_a_row_that_the_topic_has_no_room_for_is_found_before_anything_is_sent(kafka):
    topic = kafka.topic(config={"max.message.bytes": "20000"})
    with pytest.raises(
        ValueNotKept, match=rf"topic {topic}: row 1 \(headwater.position \w+\) makes a message of 30,"
    ) as caught:
        kafka_sink(kafka, topic).land(attempt_at(WINDOW), notes([10, 30_000, 10]))
    assert "max.message.bytes" in caught.value.hint
    assert read_topic(kafka, topic) == []


def test_a_message_as_large_as_the_topic_takes_arrives(kafka):
    topic = kafka.topic(config={"max.message.bytes": "3000000"})
    kafka_sink(kafka, topic, options={"compression.type": "none"}).land(attempt_at(WINDOW), notes([10, 2_999_000, 10]))
    assert [len(read.row["note"]) for read in read_topic(kafka, topic)] == [10, 2_999_000, 10]


def test_what_the_broker_refuses_is_counted_and_named(kafka):
    """The producer lets it pass, so that the broker refuses it."""
    topic = kafka.topic(config={"max.message.bytes": "20000"})
    options = {"message.max.bytes": 1_000_000, "compression.type": "none"}
    with pytest.raises(
        ValueNotKept, match=r"did not accept 2 of 4 messages: .*too large.*headwater.position \w+, 30,"
    ) as caught:
        kafka_sink(kafka, topic, options=options).land(attempt_at(WINDOW), notes([10, 30_000, 40_000, 10]))
    assert topic in caught.value.message
    assert "x" * 50 not in str(caught.value)  # what a row holds is not for logs


@pytest.mark.spark
def test_what_is_refused_in_sparks_tasks_is_told_by_one_error(kafka, spark):
    topic = kafka.topic(config={"cleanup.policy": "compact"})
    rows = memory_rows("orders", (table_of([1, 2]), table_of([3])), counted=False)
    with pytest.raises(ValueNotKept, match="3 of 3 messages") as caught:
        kafka_sink(kafka, topic, key=[]).land(attempt_at(WINDOW, spark=lambda: spark), rows)
    assert "write key:" in caught.value.hint


@pytest.mark.spark
def test_a_row_that_is_too_large_is_named_by_the_task_that_met_it(kafka, spark):
    topic = kafka.topic(config={"max.message.bytes": "20000"})
    with pytest.raises(ValueNotKept, match=r"row 1 of part 0 \(headwater.position"):
        kafka_sink(kafka, topic).land(attempt_at(WINDOW, spark=lambda: spark), notes([10, 30_000], counted=False))


def test_brokers_that_nobody_answers_for_are_unreachable(kafka):
    sink = kafka_sink(kafka, "t", brokers="127.0.0.1:1", timeout="2s")
    with pytest.raises(SinkUnreachable, match=r"Kafka at 127.0.0.1:1: looking for topic t: .*refused") as caught:
        sink.land(attempt_at(WINDOW), memory_rows("orders", (table_of([1]),)))
    assert "brokers:" in caught.value.hint


@pytest.mark.servers
def test_a_broker_that_goes_away_is_waited_for_and_then_the_window_lands_once(tmp_path: Path):
    with running(Kafka(), tmp_path) as broker:
        kafka = kafka_at(broker.address["brokers"])
        topic = kafka.topic(partitions=2)
        rows = memory_rows("orders", (table_of(range(2_000)),), key=("id",))
        sink = kafka_sink(kafka, topic, timeout="3s")
        with pytest.raises(SinkUnreachable, match=f"topic {topic} at .* did not accept .* of 2,000 messages"):
            sink.land(attempt_at(WINDOW, ensure_lease=broker.kill), rows)
        # Down when it begins, up again while it waits.
        broker.start()
        starting = threading.Thread(target=broker.start)

        def restart() -> None:
            broker.kill()
            starting.start()

        patient = kafka_sink(kafka, topic, timeout="90s")
        landing = patient.land(attempt_at(WINDOW, ensure_lease=restart), rows)
        starting.join()
        assert landing.rows == 2_000
        assert sorted(int(read.key) for read in read_topic(kafka, topic)) == list(range(2_000))
        # The sink whose landing failed goes on as if nothing had been.
        sink.land(attempt_at(window_up_to(20)), memory_rows("orders", (table_of([7777]),), key=("id",)))
        assert b"7777" in {read.key for read in read_topic(kafka, topic)}


@pytest.mark.slow
def test_tls_and_a_password_are_used_and_a_wrong_one_is_told_without_being_shown(tmp_path: Path):
    users = {"ann": "right-hunter2"}
    with running(Kafka(listeners=("sasl_tls",), users=users), tmp_path) as broker:
        kafka = kafka_at(broker.address["brokers"])
        topic = kafka.topic()
        tls = {"ca": str(certificate(broker.folder))}

        def sink(password, **more):
            login = {"mechanism": "SCRAM-SHA-512", "username": "ann", "password": password}
            return kafka_sink(kafka, topic, brokers=broker.address["sasl_tls"], security={"tls": tls, **login}, **more)

        rows = memory_rows("orders", (table_of([1, 2]),), key=("id",))
        assert sink("right-hunter2").land(attempt_at(WINDOW), rows).rows == 2
        assert len(read_topic(kafka, topic)) == 2
        with pytest.raises(SinkUnreachable, match=r"(?i)authentication") as caught:
            sink("wrong-hunter3", timeout="5s").land(attempt_at(WINDOW), rows)
        assert "hunter" not in str(caught.value)


def test_a_source_that_breaks_off_leaves_its_own_error(kafka):
    topic = kafka.topic()
    rows = memory_rows("orders", (table_of([1]), table_of([2])), error=SinkUnreachable("gone"))
    with pytest.raises(SinkUnreachable, match="gone"):
        kafka_sink(kafka, topic).land(attempt_at(WINDOW), rows)
    assert read_topic(kafka, topic) == []


def test_what_needs_a_person_outweighs_what_passes_by_itself():
    timed_out = Undelivered(-192, "timed out", 90, "a")
    too_large = Undelivered(10, "too large", 1, "b")
    error = delivery_error("t", "b:9092", 100, [timed_out, too_large, timed_out])
    assert isinstance(error, ValueNotKept)
    assert "180 of 100" in error.message
    assert isinstance(delivery_error("t", "b:9092", 1, [Undelivered(3, "unknown", 1, "c")]), UnknownName)
