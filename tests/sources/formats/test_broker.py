"""A sample of the cases through a real broker and the real source: the door without a broker is the same one."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from headwater.model.position.marks import Mark, mark_from_json
from headwater.model.rows import Reject
from headwater.sources.open import open_source
from tests.sources.formats.case import KAFKA, Case, Outcome, refusal
from tests.sources.formats.kafka import AVRO_SCHEMA, TestMessage, messages_of, outcome_of, settings_of
from tests.sources.formats.tables import CASES
from tests.support.stack import KafkaForTests

pytestmark = pytest.mark.servers

_EVERY = 40
CARRIED = [case for case in CASES if case.carried_by(KAFKA)]
SAMPLE = [
    case for number, case in enumerate(CARRIED) if number % _EVERY == 0 or KAFKA in case.otherwise or case.outcome.error
]


def produce(brokers: str, topic: str, messages: list[TestMessage]) -> None:
    producer = Producer({"bootstrap.servers": brokers, "log_level": 0, "linger.ms": 5})
    for one in messages:
        producer.produce(topic, one.value(), one.key(), partition=0, headers=list(one.headers()))
    assert producer.flush(30) == 0


def outcome(case: Case, brokers: str, topic: str, folder: Path) -> Outcome:
    source = open_source(settings_of(case, folder, brokers=brokers, topics=topic), folder, 2)
    mark: Mark | None = None
    begin, rejects = 0, list[Reject]()
    messages: list[TestMessage] = []
    try:
        for payload in case.windows:
            begin += len(messages)
            messages = messages_of(payload)
            produce(brokers, topic, messages)
            window = source.plan(mark).window
            assert window is not None
            mark = mark_from_json(window.end.to_json())
        with source.read(window) as streams:
            for rows in streams:
                batches = [batch for split in rows.splits for batch in split.read(rejects.append)]  # type: ignore[attr-defined]
                return outcome_of(case, rows, batches, rejects, messages, begin)
    except Exception as error:  # noqa: BLE001 - that, too, is an outcome
        return refusal(error, f"{topic}: ", f"{folder / AVRO_SCHEMA}: ")
    return Outcome()


def test_a_sample_of_cases_through_a_broker(kafka: KafkaForTests, tmp_path: Path):
    for case in SAMPLE:
        actual = outcome(case, kafka.brokers, kafka.topic(), tmp_path)
        expected = case.expected(KAFKA)
        assert actual.by(expected).shown() == expected.shown(), case.name
