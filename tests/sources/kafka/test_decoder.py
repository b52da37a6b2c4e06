"""JSON messages of a topic: rows, and rejects with their place."""

from __future__ import annotations

from tests.sources.kafka.poller import Poller, send
from tests.support.stack import KafkaForTests


def test_bad_messages_in_a_topic_are_rejects_with_their_place_and_the_rest_are_rows(kafka: KafkaForTests):
    topic = kafka.topic(partitions=2)
    send(kafka.brokers, topic, [b'{"id": 1}', b"oops", b'{"id": 2}', b'{"id": "x"}', None])
    send(kafka.brokers, topic, [b"", b'{"id": 3}'], partition=1)
    poller = Poller(kafka.brokers, topic, schema="id bigint", metadata=["partition", "offset"])
    rows = {(row["kafka_partition"], row["kafka_offset"]): row["id"] for row in poller.poll()}
    assert rows == {(0, 0): 1, (0, 2): 2, (0, 4): None, (1, 1): 3}
    places = {(r.location["partition"], r.location["offset"]): (r.payload, r.reason) for r in poller.rejects}
    assert places == {
        (0, 1): (b"oops", "no JSON: Expecting value at character 0"),
        (0, 3): (b'{"id": "x"}', "id: expected a number, found the text 'x'"),
        (1, 0): (b"", "empty"),
    }
