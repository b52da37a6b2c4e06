"""A broker of our own: it answers, keeps its data and ports through restarts, and is not mistaken for another."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.services.stack.kafka import Kafka, certificate
from headwater.services.stack.service import running
from tests.support.stack import KafkaForTests, kafka_at

pytestmark = pytest.mark.servers


def produce(brokers: str, topic: str, count: int, **security: str) -> None:
    producer = Producer({"bootstrap.servers": brokers, "message.timeout.ms": 15_000, "log_level": 0, **security})
    for number in range(count):
        producer.produce(topic, value=str(number).encode(), partition=0)
    assert producer.flush(30) == 0


def messages(brokers: str, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=30)
    consumer.close()
    return [message.value().decode() for message in messages]


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


def test_listeners_ask_for_passwords_and_speak_tls(tmp_path):
    users = {"alice": 'wonder"land\\', "bob": "builder"}
    with running(Kafka(listeners=("sasl", "tls", "sasl_tls"), users=users), tmp_path) as broker:
        kafka = kafka_at(broker.address["brokers"])
        topic = kafka.topic()
        trust = {"ssl.ca.location": str(certificate(tmp_path))}
        produce(broker.address["tls"], topic, 1, **{"security.protocol": "ssl", **trust})
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            login = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": users["alice"]}
            produce(broker.address["sasl"], topic, 1, **{"security.protocol": "sasl_plaintext", **login})
            produce(broker.address["sasl_tls"], topic, 1, **{"security.protocol": "sasl_ssl", **login, **trust})
        wrong = {**login, "sasl.password": users["bob"], "security.protocol": "sasl_plaintext"}
        assert "Authentication failed" in refusal(broker.address["sasl"], wrong)
        assert "certificate verify failed" in refusal(broker.address["tls"], {"security.protocol": "ssl"})
        assert len(messages(broker.address["brokers"], topic, 7)) == 7


def refusal(brokers: str, security: dict[str, str]) -> str:
    """What the client says about why it was not let in."""
    said: list[str] = []
    admin = AdminClient(
        {"bootstrap.servers": brokers, "log_level": 0, "error_cb": lambda e: said.append(e.str()), **security}
    )
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    admin.poll(0)
    return " ".join(said)
