"""What Kafka does to those who count on it: retention, recreated topics, transactions, compaction, restarts (G9)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headwater.config.sources.kafka import KafkaClientSettings, client_options
from headwater.model.errors import BadPosition, SourceChanged
from headwater.model.position.marks import OffsetsMark
from headwater.services.stack.kafka import Kafka
from headwater.services.stack.service import running
from headwater.sources.kafka.client import OffsetRange, Reading, messages
from tests.sources.kafka.poller import Poller, numbers, send, texts
from tests.support.stack import KafkaForTests, kafka_at
from tests.support.wait import wait_until


def remove_before(kafka: KafkaForTests, topic: str, offset: int, partition: int = 0) -> None:
    """As retention does, without the waiting."""
    place = TopicPartition(topic, partition, offset)
    kafka.admin.delete_records([place])[place].result()


def wait_for_committed_end(kafka: KafkaForTests, topic: str, offset: int) -> None:
    """A producer's commit returns once the decision is durable; the partitions hear of it a moment later."""
    place = TopicPartition(topic, 0)

    def end() -> int:
        futures = kafka.admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)
        return futures[place].result().offset

    wait_until(lambda: end() == offset)


def make_anew(kafka: KafkaForTests, topic: str) -> None:
    kafka.delete(topic)
    wait_until(lambda: topic not in kafka.admin.list_topics(timeout=10).topics)
    kafka.create(topic)


def test_unread_messages_that_retention_removed_stop_the_pipeline_with_the_gap_in_numbers(kafka: KafkaForTests):
    topic = kafka.topic(partitions=2)
    send(kafka.brokers, topic, numbers(0, 10))
    poller = Poller(kafka.brokers, topic)
    poller.poll()
    send(kafka.brokers, topic, numbers(10, 30))
    remove_before(kafka, topic, 15)
    with pytest.raises(SourceChanged) as caught:
        poller.look()
    assert "partition 0: the mark stands at 10, the log begins at 15: 5 offsets were removed unread" in str(
        caught.value
    )
    assert "headwater rewind NAME --skip-gap" in caught.value.hint
    assert "headwater rewind NAME --to earliest" in caught.value.hint
    poller.mark = poller.source.position("skip-gap", poller.mark)
    assert poller.offsets() == {topic: {0: 15, 1: 0}}
    assert poller.values() == texts(15, 30)


def test_messages_that_were_read_may_go(kafka: KafkaForTests):
    topic = kafka.topic()
    send(kafka.brokers, topic, numbers(0, 10))
    poller = Poller(kafka.brokers, topic)
    poller.poll()
    remove_before(kafka, topic, 10)
    assert poller.look() is None
    send(kafka.brokers, topic, [b"10"])
    assert poller.values() == ["10"]


def test_the_first_run_begins_where_the_log_begins_not_at_zero(kafka: KafkaForTests):
    topic = kafka.topic()
    send(kafka.brokers, topic, numbers(0, 10))
    remove_before(kafka, topic, 4)
    assert Poller(kafka.brokers, topic).values() == texts(4, 10)


def test_a_new_partition_whose_first_messages_are_gone_is_a_gap(kafka: KafkaForTests):
    topic = kafka.topic(partitions=2)
    send(kafka.brokers, topic, numbers(0, 5), partition=1)
    remove_before(kafka, topic, 3, partition=1)
    poller = Poller(kafka.brokers, topic)
    identity = poller.source.plan(None).window.end.ids  # type: ignore[union-attr]
    poller.mark = OffsetsMark({topic: {0: 0}}, identity)
    with pytest.raises(SourceChanged, match="partition 1: the mark stands at 0, the log begins at 3"):
        poller.look()


def test_a_window_whose_messages_went_before_it_was_recovered_is_not_read_short(kafka: KafkaForTests):
    topic = kafka.topic()
    send(kafka.brokers, topic, numbers(0, 10))
    window = Poller(kafka.brokers, topic).look()
    remove_before(kafka, topic, 5)
    with pytest.raises(SourceChanged, match="5 offsets were removed unread"):
        Poller(kafka.brokers, topic).read(window)


def test_messages_that_go_between_plan_and_read_stop_the_read(kafka: KafkaForTests):
    topic = kafka.topic()
    send(kafka.brokers, topic, numbers(0, 10))
    options = client_options(KafkaClientSettings(brokers=kafka.brokers), Path())
    remove_before(kafka, topic, 5)
    with pytest.raises(SourceChanged, match="the broker no longer has all of it"):
        list(messages(Reading(options, "read_committed", 20.0), OffsetRange(topic, 0, 0, 10)))


def test_a_topic_that_was_made_anew_is_told_by_its_id_although_its_offsets_would_fit(kafka: KafkaForTests):
    topic = kafka.topic()
    send(kafka.brokers, topic, numbers(0, 3))
    poller = Poller(kafka.brokers, topic)
    poller.poll()
    make_anew(kafka, topic)
    send(kafka.brokers, topic, numbers(100, 110))
    with pytest.raises(SourceChanged, match="was deleted and created again") as caught:
        poller.look()
    assert "--to earliest" in caught.value.hint
    for way in ("earliest", "skip-gap"):
        other = poller.again()
        other.mark = other.source.position(way, poller.mark)
        assert other.values() == texts(100, 110)


def test_a_recovered_window_of_a_topic_that_was_made_anew_is_refused(kafka: KafkaForTests):
    topic = kafka.topic()
    send(kafka.brokers, topic, numbers(0, 3))
    window = Poller(kafka.brokers, topic).look()
    make_anew(kafka, topic)
    send(kafka.brokers, topic, numbers(100, 110))
    with pytest.raises(SourceChanged, match="was deleted and created again"):
        Poller(kafka.brokers, topic).read(window)


def test_a_mark_above_the_logs_end_is_never_nothing_new(kafka: KafkaForTests):
    topic = kafka.topic()
    send(kafka.brokers, topic, numbers(0, 3))
    poller = Poller(kafka.brokers, topic)
    poller.poll()
    poller.mark = OffsetsMark({topic: {0: 50}}, poller.mark.ids)  # type: ignore[union-attr]
    with pytest.raises(SourceChanged, match="stands at 50, the log ends at 3: 47 offsets that were read are no longer"):
        poller.look()


@pytest.mark.parametrize("ending", ["", "*"])
def test_a_topic_that_is_gone_is_missed_by_name_and_by_pattern(kafka: KafkaForTests, ending: str):
    topic = kafka.topic()
    send(kafka.brokers, topic, numbers(0, 3))
    poller = Poller(kafka.brokers, f"{topic}{ending}")
    poller.poll()
    kafka.delete(topic)
    wait_until(lambda: topic not in kafka.admin.list_topics(timeout=10).topics)
    with pytest.raises(SourceChanged, match=f"{topic}: the topic is gone, read up to 0: 3"):
        poller.look()
    assert poller.source.position("skip-gap", poller.mark) == OffsetsMark({})


def transactional(brokers: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": brokers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    return producer


def test_aborted_messages_are_never_read_and_the_control_records_behind_them_are_not_waited_for(kafka: KafkaForTests):
    topic = kafka.topic()
    producer = transactional(kafka.brokers, topic)
    for number, end in enumerate((producer.abort_transaction, producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        for value in numbers(number * 10, number * 10 + 5):
            producer.produce(topic, value, partition=0)
        producer.flush()
        end(30)
    wait_for_committed_end(kafka, topic, 18)  # 15 messages and three control records
    poller = Poller(kafka.brokers, topic)
    assert poller.values() == texts(10, 15)
    assert poller.offsets() == {topic: {0: 18}}
    assert poller.look() is None
    uncommitted = Poller(kafka.brokers, topic, isolation="read_uncommitted")
    assert len(uncommitted.poll()) == 15


def test_an_open_transaction_ends_the_window_and_its_messages_come_when_it_commits(kafka: KafkaForTests):
    topic = kafka.topic()
    send(kafka.brokers, topic, numbers(0, 3))
    producer = transactional(kafka.brokers, topic)
    producer.begin_transaction()
    producer.produce(topic, b"3", partition=0)
    producer.flush()
    send(kafka.brokers, topic, [b"4"])
    poller = Poller(kafka.brokers, topic)
    assert poller.values() == texts(0, 3)
    assert poller.look() is None
    producer.commit_transaction(30)
    wait_for_committed_end(kafka, topic, 6)
    assert poller.values() == ["3", "4"]


def test_a_mark_from_read_uncommitted_waits_for_the_open_transaction(kafka: KafkaForTests):
    topic = kafka.topic()
    producer = transactional(kafka.brokers, topic)
    producer.begin_transaction()
    producer.produce(topic, b"0", partition=0)
    producer.flush()
    poller = Poller(kafka.brokers, topic, isolation="read_uncommitted")
    assert poller.values() == ["0"]
    committed = poller.again(isolation="read_committed")
    assert committed.look() is None
    producer.commit_transaction(30)
    send(kafka.brokers, topic, [b"1"])
    wait_for_committed_end(kafka, topic, 3)
    assert committed.values() == ["1"]


def test_offsets_that_compaction_removed_are_neither_waited_for_nor_counted(kafka: KafkaForTests):
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "50",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100",
    }
    topic = kafka.topic(config=config)
    for value in numbers(0, 20):
        send(kafka.brokers, topic, [value], key=b"same")
    later = int(time.time() * 1000) + 1000  # a segment is closed by the next message after segment.ms
    send(kafka.brokers, topic, [b"last"], key=b"other", timestamp=later)
    wait_until(lambda: len(Poller(kafka.brokers, topic).poll()) < 21, 90)
    poller = Poller(kafka.brokers, topic, splits=7)
    values = poller.values()
    assert values[-1] == "last"
    assert poller.offsets() == {topic: {0: 21}}


@pytest.mark.servers
def test_a_broker_that_restarts_in_the_middle_of_a_read_costs_time_and_no_message(tmp_path: Path):
    with running(Kafka(), tmp_path) as broker:
        kafka = kafka_at(broker.address["brokers"])
        topic = kafka.topic()
        send(kafka.brokers, topic, [b"x" * 1000] * 20_000)
        # A short queue, so that most messages are still on the broker when it goes.
        slow = {"queued.max.messages.kbytes": 100, "queued.min.messages": 100, "fetch.message.max.bytes": 50_000}
        options = client_options(KafkaClientSettings(brokers=kafka.brokers, options=slow), tmp_path)
        reading = messages(Reading(options, "read_committed", 60.0), OffsetRange(topic, 0, 0, 20_000))
        offsets = [message.offset() for message in next(reading)]
        broker.restart()
        offsets += [message.offset() for batch in reading for message in batch]
        assert offsets == list(range(20_000))


def test_positions_of_a_rewind(kafka: KafkaForTests):
    topic = kafka.topic(partitions=2)
    send(kafka.brokers, topic, numbers(0, 10))
    send(kafka.brokers, topic, numbers(0, 5), partition=1, timestamp=1_772_438_400_000)
    poller = Poller(kafka.brokers, topic)
    poller.poll()

    def at(text: str) -> object:
        mark = poller.source.position(text, poller.mark)
        return mark.topics[topic] if mark else None

    assert at("start") is None
    assert at("earliest") == {0: 0, 1: 0}
    assert at("latest") == {0: 10, 1: 5}
    assert at(f"{topic}:0=3") == {0: 3, 1: 5}
    assert at(f'{{"{topic}": {{"1": 2}}}}') == {0: 10, 1: 2}
    assert at("2026-03-02T08:00:00.001Z") == {0: 0, 1: 5}
    for wrong, why in {
        f"{topic}:0=11": "holds 0 up to 10",
        f"{topic}:7=1": "is not there",
        "nonsense": "names no position",
        f"{topic}:0": "names no position",
        "a=b": "is no topic:partition=offset",
        "{": "no offsets",
        "skip-gap": "no gap to skip",
    }.items():
        with pytest.raises(BadPosition, match=why):
            at(wrong)


def test_a_group_sees_what_has_landed_and_nothing_before(kafka: KafkaForTests):
    topic = kafka.topic(partitions=2)
    send(kafka.brokers, topic, numbers(0, 10))
    poller = Poller(kafka.brokers, topic, group=f"g-{topic}")
    poller.poll()

    def committed() -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": kafka.brokers, "group.id": f"g-{topic}"})
        committed = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=30)
        consumer.close()
        return {place.partition: place.offset for place in committed}

    assert committed() == {0: -1001, 1: -1001}
    poller.source.acknowledge(poller.mark)
    poller.source.acknowledge(poller.mark)
    assert committed() == {0: 10, 1: 0}
