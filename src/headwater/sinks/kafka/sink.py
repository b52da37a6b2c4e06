"""The Kafka sink: checks a window and its topic, makes its messages, and sends them."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from headwater.config.sinks.kafka import CreateTopicSettings, KafkaSinkSettings
from headwater.config.sources.kafka import ClientOptions, client_options
from headwater.model.errors import HeadwaterError, InputError, UnknownName
from headwater.model.landing import Landing
from headwater.model.protocols.sink import Attempt
from headwater.model.rows import Rows
from headwater.sinks.kafka.messages import (
    Chunk,
    JsonValues,
    MessageMaker,
    PositionScheme,
    Values,
    key_columns,
    scheme_for,
)
from headwater.sinks.kafka.producer import (
    NO_TOPIC,
    DeliveryRequest,
    SendRequest,
    SendResult,
    all_chunks,
    close,
    cluster_error,
    deliver,
    delivery_error,
    plain_reason,
    send_by_tasks,
)
from headwater.sinks.tasks import RowCounter, is_small
from headwater.sinks.text_values import check_types

DEFAULT_MAX_BYTES = 1_000_000  # librdkafka's own limit, where the topic's is unknown
_MAX_REQUEST_SECONDS = 30.0
_GRACE_SECONDS = 3.0
_POLL_SECONDS = 0.1


def topic_for(template: str, stream: str) -> str:
    """The topic of a stream. Characters of the stream that a topic's name cannot contain become `_`."""
    schema, _, table = stream.rpartition(".")
    values = {"{stream}": table, "{table}": table, "{schema}": schema or "default"}
    return re.sub(r"\{\w+\}", lambda match: re.sub(r"[^A-Za-z0-9._\-]", "_", values[match[0]]), template)


class Topics:
    """Reads and creates topics; one connection for all windows."""

    def __init__(self, options: ClientOptions, create: CreateTopicSettings | None, timeout_seconds: float) -> None:
        self._brokers, self._create = options.brokers, create
        self._seconds = min(timeout_seconds, _MAX_REQUEST_SECONDS)
        self._errors: list[str] = []  # of connections, since the last request
        on_error = {"error_cb": lambda error: self._errors.append(plain_reason(error))}
        settings: dict[str, Any] = {**options.reveal(), **on_error}
        self._admin = AdminClient(settings)

    def ready(self, topic: str) -> int:
        """Return when the topic exists: the bytes of its largest message, headers and framing included."""
        self._admin.poll(0)
        self._errors.clear()  # of connections that ended long ago
        if self._create is not None and not self._exists(topic):
            self._create_topic(topic, self._create)
        # Not every broker knows a topic that was just created.
        if not self._wait_for(topic, self._seconds if self._create else _GRACE_SECONDS):
            raise UnknownName(
                f"there is no topic {topic!r} at {self._brokers}",
                hint="create it, or let the sink do so: create_topic: {partitions: 6, replication: 3}",
            )
        return self._max_bytes(topic)

    def _wait_for(self, topic: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self._exists(topic):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _exists(self, topic: str) -> bool:
        # Describing a topic, unlike a producer's lookup, never makes brokers create it.
        topics = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._seconds)
        try:
            topics[topic].result()
        except KafkaException as error:
            if error.args[0].code() in NO_TOPIC:
                return False
            raise self._error(error, f"looking for topic {topic}") from error
        return True

    def _create_topic(self, topic: str, create: CreateTopicSettings) -> None:
        new_topic = NewTopic(
            topic,
            num_partitions=create.partitions or -1,
            replication_factor=create.replication or -1,
            config={name: _text(value) for name, value in create.options.items()},
        )
        try:
            self._admin.create_topics([new_topic], request_timeout=self._seconds)[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process created it
                raise self._error(error, f"creating topic {topic}") from error

    def _max_bytes(self, topic: str) -> int:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            config = self._admin.describe_configs([resource], request_timeout=self._seconds)[resource].result()
        except KafkaException as error:
            # Writing needs no right to read the topic's configuration; and a broker may not know a new topic yet.
            if error.args[0].code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, *NO_TOPIC}:
                return DEFAULT_MAX_BYTES
            raise self._error(error, f"reading the configuration of topic {topic}") from error
        return int(config["max.message.bytes"].value)

    def _error(self, error: KafkaException, activity: str) -> HeadwaterError:
        self._admin.poll(0)  # runs `error_cb` for errors of connections
        return cluster_error(error.args[0], activity, self._brokers, self._errors[-1] if self._errors else "")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_BATCH_FRAME = 100  # bytes around the only message of a batch, numbers at their longest
_HEADER_FRAME = 10
_POSITION_BYTES = 64


class KafkaSink:
    """Sends each row of each window at least once."""

    def __init__(self, settings: KafkaSinkSettings, sink_id: str, folder: Path) -> None:
        self._settings, self._id, self._folder = settings, sink_id, folder
        self._options = client_options(settings, folder)
        self._timeout = settings.timeout.total_seconds()
        self._topics: Topics | None = None
        self._producers: dict[tuple[str, int], Producer] = {}  # cached: a new one takes longer than a small window

    @property
    def id(self) -> str:
        return self._id

    def landed(self, attempt: Attempt, stream: str) -> Landing | None:  # noqa: ARG002 - the protocol's form
        """None: a topic does not know which windows it holds."""
        return None

    def land(self, attempt: Attempt, rows: Rows) -> Landing:
        began = time.monotonic()
        topic = topic_for(self._settings.topic, rows.stream)
        request = self._request(attempt, rows, topic)
        counter = RowCounter(attempt.progress)
        chunks = all_chunks(request.maker, rows) if is_small(rows) else None
        with attempt.publishing():  # messages are visible from the first one on
            if chunks is None:
                sent = send_by_tasks(request, rows, attempt.spark, counter)
            else:
                sent = self._send_here(request.delivery, chunks)
            if sent.failures:
                raise delivery_error(topic, self._options.brokers, sent.messages, sent.failures)
            counter.at_least(sent.messages)
        seconds = time.monotonic() - began
        return Landing(self._id, rows.stream, attempt.window.id, sent.messages, seconds, {"topic": topic})

    def close(self) -> None:
        while self._producers:
            close(self._producers.popitem()[1])
        self._topics = None

    def _send_here(self, delivery: DeliveryRequest, chunks: Sequence[Chunk]) -> SendResult:
        cache_key = (delivery.topic, delivery.topic_bytes)
        producer = self._producers.pop(cache_key, None) or self._open(delivery)
        try:
            sent = SendResult.of(deliver(producer, delivery, chunks))
        except BaseException:
            close(producer)
            raise
        if sent.failures:  # after a fatal error only a new producer works
            close(producer)
        else:
            self._producers[cache_key] = producer
        return sent

    def _open(self, delivery: DeliveryRequest) -> Producer:
        try:
            return delivery.open()
        except KafkaException as error:
            raise _option_error(error) from error

    def _request(self, attempt: Attempt, rows: Rows, topic: str) -> SendRequest:
        """Checks everything that can be checked before a message is sent (G12)."""
        check_types(rows.schema, "a Kafka message")
        key = key_columns(self._settings.key_columns, rows)
        values = self._values(rows, topic)
        try:
            self._topics = self._topics or Topics(self._options, self._settings.create_topic, self._timeout)
        except KafkaException as error:
            raise _option_error(error) from error
        topic_bytes = self._topics.ready(topic)
        headers, positions = self._headers(attempt, rows), self._positions(attempt, rows)
        delivery = DeliveryRequest(
            self._options, topic, headers, self._settings.partitioner, self._timeout, topic_bytes, positions
        )
        allowed = int(self._settings.options.get("message.max.bytes", topic_bytes))
        maker = MessageMaker(topic, values, key, positions, max(1, allowed - _frame_bytes(headers)))
        return SendRequest(maker, delivery)

    def _values(self, rows: Rows, topic: str) -> Values:
        if self._settings.avro_schema is None:
            return JsonValues()
        from headwater.sinks.kafka.avro import AvroValues, topic_schema

        file = self._folder / topic_for(self._settings.avro_schema, rows.stream)
        return AvroValues(topic_schema(rows.schema, topic, file))

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
        unique = keyed and rows.splits is not None
        return scheme_for(attempt.pipeline, rows.stream, attempt.window.id, unique=unique, keyed=keyed)


def _frame_bytes(headers: tuple[tuple[str, str], ...]) -> int:
    """The most bytes that a message has beside its key and value."""
    fixed = sum(len(name.encode()) + len(value.encode()) + _HEADER_FRAME for name, value in headers)
    return _BATCH_FRAME + (fixed + len("headwater.position") + _POSITION_BYTES + _HEADER_FRAME if headers else 0)


def _option_error(error: KafkaException) -> InputError:
    return InputError(f"kafka: {error.args[0].str()}", hint="correct options: or security: of the sink")
