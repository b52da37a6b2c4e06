"""A broker of our own: it answers, keeps its data and ports through restarts, and is not mistaken for another."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition

from headwater.services.kafka_server import Kafka
from headwater.services.service import running
from tests.stack import KafkaForTests, kafka_at


def produce(brokers: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": brokers})
    for number in range(count):
        producer.produce(topic, value=str(number).encode(), partition=0)
    assert producer.flush(30) == 0


def messages(brokers: str, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(count, timeout=30)
    consumer.close()
    return [message.value().decode() for message in found]


def test_topics_of_the_shared_broker_are_the_tests_own(kafka: KafkaForTests):
    first, second = kafka.topic(), kafka.topic(partitions=2)
    produce(kafka.brokers, first, 3)
    assert messages(kafka.brokers, first, 3) == ["0", "1", "2"]
    assert len(kafka.admin.list_topics(second, timeout=10).topics[second].partitions) == 2


def test_a_broker_comes_back_on_its_ports_with_its_data(tmp_path):
    with running(Kafka(), tmp_path) as broker:
        address = broker.address
        topic = kafka_at(address["brokers"]).topic()
        produce(address["brokers"], topic, 5)
        broker.restart()
        assert broker.address == address
        produce(address["brokers"], topic, 2)
        broker.kill()
        assert broker.state() == "down"
        broker.start()
        assert messages(address["brokers"], topic, 7) == ["0", "1", "2", "3", "4", "0", "1"]
    assert broker.state() == "down"
