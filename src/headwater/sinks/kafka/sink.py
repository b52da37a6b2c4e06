"""The Kafka sink itself: which topic a stream has, and the order of check, make and send."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import KafkaException, Producer

from headwater.config.kafka_client import client_options
from headwater.config.kafka_sink import KafkaSink as KafkaSettings
from headwater.model.errors import InputError
from headwater.model.landing import Landing
from headwater.model.rows import Rows, SplitRows
from headwater.model.sink import Attempt
from headwater.sinks.kafka.delivery import DeliveryOrder, close, deliver
from headwater.sinks.kafka.failures import refused
from headwater.sinks.kafka.messages import JsonValues, MessageMaker, Values, key_columns
from headwater.sinks.kafka.positions import PositionScheme, scheme_for
from headwater.sinks.kafka.sending import Sending, Sent, all_chunks, send_by_tasks
from headwater.sinks.kafka.topics import Topics, topic_for
from headwater.sinks.over_rows import is_small
from headwater.sinks.plain_values import check_types
from headwater.sinks.tally import Tally

_BATCH_FRAME = 100  # bytes around the only message of a batch, numbers at their longest
_HEADER_FRAME = 10
_POSITION_BYTES = 64


class KafkaSink:
    """Sends each row of each window at least once."""

    def __init__(self, settings: KafkaSettings, label: str, folder: Path) -> None:
        self._settings, self._label, self._folder = settings, label, folder
        self._options = client_options(settings, folder)
        self._timeout = settings.timeout.total_seconds()
        self._topics: Topics | None = None
        self._producers: dict[tuple[str, int], Producer] = {}  # kept: a new one takes longer than a small window

    @property
    def label(self) -> str:
        return self._label

    def landed(self, attempt: Attempt, stream: str) -> Landing | None:  # noqa: ARG002 - the protocol's form
        """Never known: a topic cannot be asked which windows it holds."""
        return None

    def land(self, attempt: Attempt, rows: Rows) -> Landing:
        began = time.monotonic()
        topic = topic_for(self._settings.topic, rows.stream)
        sending = self._sending(attempt, rows, topic)
        tally = Tally(attempt.progress)
        if isinstance(rows, SplitRows) and is_small(rows):
            sent = self._send_here(attempt, sending, rows)
        else:
            attempt.faults.reach("land.written")
            attempt.clear_to_publish()  # G4: messages are visible from the first one on
            sent = send_by_tasks(sending, rows, attempt.spark, tally)
        if sent.failures:
            raise refused(topic, self._options.brokers, sent.messages, sent.failures)
        tally.at_least(sent.messages)
        attempt.faults.reach("land.published")
        seconds = time.monotonic() - began
        return Landing(self._label, rows.stream, attempt.window.id, sent.messages, seconds, {"topic": topic})

    def close(self) -> None:
        while self._producers:
            close(self._producers.popitem()[1])
        self._topics = None

    def _send_here(self, attempt: Attempt, sending: Sending, rows: SplitRows) -> Sent:
        chunks = all_chunks(sending.maker, rows)
        attempt.faults.reach("land.written")
        attempt.clear_to_publish()  # G4: asked as late as can be, right before readers see the rows
        order = sending.order
        named = (order.topic, order.topic_bytes)
        producer = self._producers.pop(named, None) or self._opened(order)
        try:
            sent = Sent.of(deliver(producer, order, chunks))
        except BaseException:
            close(producer)
            raise
        if sent.failures:  # it may be in a state that only a new one gets out of
            close(producer)
        else:
            self._producers[named] = producer
        return sent

    def _opened(self, order: DeliveryOrder) -> Producer:
        try:
            return order.open()
        except KafkaException as error:
            raise _bad_option(error) from error

    def _sending(self, attempt: Attempt, rows: Rows, topic: str) -> Sending:
        """Everything that can be refused before a message is sent is refused here (G12)."""
        check_types(rows.schema, "a Kafka message")
        key = key_columns(self._settings.key_columns, rows)
        values = self._values(rows, topic)
        try:
            self._topics = self._topics or Topics(self._options, self._settings.create_topic, self._timeout)
        except KafkaException as error:
            raise _bad_option(error) from error
        topic_bytes = self._topics.ready(topic)
        headers, positions = self._headers(attempt, rows), self._positions(attempt, rows)
        order = DeliveryOrder(
            self._options, topic, headers, self._settings.partitioner, self._timeout, topic_bytes, positions
        )
        allowed = int(self._settings.options.get("message.max.bytes", topic_bytes))
        maker = MessageMaker(topic, values, key, positions, max(1, allowed - _around(headers)))
        return Sending(maker, order)

    def _values(self, rows: Rows, topic: str) -> Values:
        if self._settings.avro_schema is None:
            return JsonValues()
        from headwater.sinks.kafka.avro_schema import agreed_schema  # noqa: PLC0415 - only who uses it pays for it
        from headwater.sinks.kafka.avro_values import AvroValues  # noqa: PLC0415

        file = self._folder / topic_for(self._settings.avro_schema, rows.stream)
        return AvroValues(agreed_schema(rows.schema, topic, file))

    def _headers(self, attempt: Attempt, rows: Rows) -> tuple[tuple[str, str], ...]:
        if not self._settings.headers:
            return ()
        return (
            ("headwater.pipeline", attempt.pipeline),
            ("headwater.stream", rows.stream),
            ("headwater.run", attempt.run),
            ("headwater.window", attempt.window.id),
        )

    def _positions(self, attempt: Attempt, rows: Rows) -> PositionScheme | None:
        if not self._settings.headers:
            return None
        keyed = bool(rows.key)
        unique = keyed and isinstance(rows, SplitRows)
        return scheme_for(attempt.pipeline, rows.stream, attempt.window.id, unique=unique, keyed=keyed)


def _around(headers: tuple[tuple[str, str], ...]) -> int:
    """The bytes that a message has around its key and value, at most."""
    fixed = sum(len(name.encode()) + len(value.encode()) + _HEADER_FRAME for name, value in headers)
    return _BATCH_FRAME + (fixed + len("headwater.position") + _POSITION_BYTES + _HEADER_FRAME if headers else 0)


def _bad_option(error: KafkaException) -> InputError:
    return InputError(f"kafka: {error.args[0].str()}", hint="correct options: or security: of the sink")
