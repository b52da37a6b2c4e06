"""Sends messages, in order per partition; errors of brokers are returned as values, with a remedy."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater.config.sources.kafka import ClientOptions, OptionValue
from headwater.model.errors import HeadwaterError, InputError, RunError, SinkUnreachable, UnknownName, ValueNotKept
from headwater.model.rows import Rows
from headwater.model.secret import masked
from headwater.sinks.kafka.messages import Chunk, MessageMaker, PositionScheme
from headwater.sinks.tasks import RowCounter, run_over_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNAVAILABLE = {
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001 - librdkafka's own codes have an underscore in their public names
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError._SSL,  # noqa: SLF001
    KafkaError._FATAL,  # noqa: SLF001
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
_UNAUTHORIZED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
NO_TOPIC = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
}
_BAD_SETTINGS = {
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_EXCEPTION,
}
_BAD_MESSAGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG}
_HINTS = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic, or exclude large columns or rows",
    KafkaError.INVALID_RECORD: "a compacted topic accepts only messages with a key: write key: in the sink",
}


@dataclass(frozen=True)
class Undelivered:
    """Messages of one topic that failed for one reason."""

    code: int
    reason: str
    count: int
    first: str  # which message it was, without its content

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def delivery_error(topic: str, brokers: str, sent: int, failures: Iterable[Undelivered]) -> HeadwaterError:
    """The error of a landing with undelivered messages."""
    by_code: dict[int, Undelivered] = {}
    for failure in failures:
        other = by_code.get(failure.code)
        count = failure.count + (other.count if other else 0)
        by_code[failure.code] = replace(other or failure, reason=failure.reason, count=count)
    failed = sorted(by_code.values(), key=lambda failure: -failure.count)
    counts = "; ".join(f"{f.count:,} of {sent:,} messages: {f.reason} (first: {f.first})" for f in failed)
    # An error that needs action comes before one that may pass by itself.
    worst = min(failed, key=lambda failure: failure.code in _UNAVAILABLE)
    return _error_class(worst.code)(f"topic {topic} at {brokers} did not accept {counts}", hint=_hint(worst.code))


def cluster_error(error: KafkaError, activity: str, brokers: str, why: str = "") -> HeadwaterError:
    """The error of a request that the cluster did not answer; `why` is the last error of a connection."""
    reason = masked((error.code() in _UNAVAILABLE and why) or plain_reason(error))
    return _error_class(error.code())(f"Kafka at {brokers}: {activity}: {reason}", hint=_hint(error.code()))


def plain_reason(error: KafkaError) -> str:
    """The reason without librdkafka's names of threads and states."""
    text = re.sub(r"^.*?(?:bootstrap|/\d+): ", "", error.str())
    return re.sub(r"\s*\((?:after|in state)[^)]*\)", "", text).strip()


def _error_class(code: int) -> type[HeadwaterError]:
    if code in _UNAVAILABLE or code in _UNAUTHORIZED:
        return SinkUnreachable
    if code in _BAD_MESSAGE:
        return ValueNotKept
    if code in _BAD_SETTINGS:
        return InputError
    return UnknownName if code in NO_TOPIC else RunError


def _hint(code: int) -> str:
    if code in _HINTS:
        return _HINTS[code]
    if code in _BAD_SETTINGS:
        return "correct create_topic: of the sink"
    if code in _UNAUTHORIZED:
        return "grant the user Describe and Write on the topic, and IdempotentWrite on older clusters"
    if code in _UNAVAILABLE:
        return "check brokers: and that the cluster is up; the next run sends the window again"
    return "create the topic, or write create_topic: {} in the sink" if code in NO_TOPIC else ""


Report = Callable[[KafkaError | None, Message], None]

_WAIT_SECONDS = 0.5
_BATCH_BYTES = 1_000_000
# Defaults that `options` may override.
_DEFAULTS: dict[str, OptionValue] = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 128 * 1024,
}
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}  # noqa: SLF001 - public, in spite of the name


@dataclass(frozen=True)
class DeliveryRequest:
    """How a landing's messages are sent; sent to the tasks."""

    options: ClientOptions
    topic: str
    headers: tuple[tuple[str, str], ...]
    partitioner: str
    timeout_seconds: float
    topic_bytes: int  # of the largest message, and of the largest batch, that the topic accepts
    positions: PositionScheme | None

    def open(self) -> Producer:
        """A producer for this topic."""
        required: dict[str, OptionValue] = {
            "acks": "all",
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "partitioner": self.partitioner,
            "delivery.timeout.ms": int(self.timeout_seconds * 1000),
        }
        # librdkafka fills a batch up to this size, and a broker refuses a batch as a whole.
        batch = min(_BATCH_BYTES, self.topic_bytes)
        sizes: dict[str, OptionValue] = {"message.max.bytes": max(1_000, self.topic_bytes), "batch.size": batch}
        return Producer({**_DEFAULTS, **sizes, **self.options.reveal(), **required})


@dataclass
class Delivery:
    """The messages of one task: how many were sent, and which failed."""

    sent: int = 0
    undelivered: dict[int, Undelivered] = field(default_factory=dict)

    def add_failure(self, error: KafkaError, message: str) -> None:
        earlier = self.undelivered.get(error.code())
        count, first = (earlier.count + 1, earlier.first) if earlier else (1, message)
        self.undelivered[error.code()] = Undelivered(error.code(), masked(plain_reason(error)), count, first)

    @property
    def failures(self) -> Sequence[Undelivered]:
        return list(self.undelivered.values())


def deliver(producer: Producer, request: DeliveryRequest, chunks: Iterable[Chunk]) -> Delivery:
    """Send everything; return when all in-sync replicas have acknowledged each message, or one failed.

    After the first failure the rest is not sent: the window is sent again anyway, and each try leaves repeats.
    """
    delivery = Delivery()

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None and error.code() not in _PURGED:
            delivery.add_failure(error, _describe(message, request.positions))

    try:
        for chunk in chunks:
            _send(producer, request, chunk, report, delivery)
            producer.poll(0)
            if delivery.undelivered:
                producer.purge(in_flight=False)
                break
    except BaseException:
        producer.purge(in_flight=False)
        raise
    while producer.flush(_WAIT_SECONDS):
        # Every message is acknowledged, fails, or times out (`timeout`).
        if delivery.undelivered:
            producer.purge(in_flight=False)
    return delivery


def _send(producer: Producer, request: DeliveryRequest, chunk: Chunk, report: Report, delivery: Delivery) -> None:
    produce, topic = producer.produce, request.topic
    fixed: list[tuple[str, str | bytes | None]] = list(request.headers)
    positions: Sequence[str | None] = chunk.positions or [None] * len(chunk)
    for value, key, position in zip(chunk.values, chunk.keys, positions, strict=True):
        headers = [*fixed, ("headwater.position", position)] if position else None
        while True:
            try:
                produce(topic, value, key, on_delivery=report, headers=headers)
                delivery.sent += 1
                break
            except BufferError:
                if delivery.undelivered:
                    return
                producer.poll(_WAIT_SECONDS)  # the queue is full: wait until the brokers take messages from it
            except KafkaException as error:
                named = f"headwater.position {position}, " if position else ""
                delivery.add_failure(error.args[0], f"{named}{len(value):,} bytes")
                return


def _describe(message: Message, positions: PositionScheme | None) -> str:
    """Identifies a message without its content, which is not for logs."""
    value = message.value() or b""
    named = f"headwater.position {positions.digest(value)}, " if positions else ""
    return f"{named}{len(value) + len(message.key() or b''):,} bytes"


def close(producer: Producer) -> None:
    """Close the connections and drop unsent messages."""
    with contextlib.suppress(KafkaException):
        producer.purge()
    producer.flush(_WAIT_SECONDS)


@dataclass(frozen=True)
class SendRequest:
    """How the messages of one landing are made and sent; sent to the tasks."""

    maker: MessageMaker
    delivery: DeliveryRequest


@dataclass(frozen=True)
class SendResult:
    """All messages of a landing: how many were sent, and which failed."""

    messages: int
    failures: Sequence[Undelivered]

    @classmethod
    def of(cls, delivery: Delivery) -> SendResult:
        return cls(delivery.sent, delivery.failures)

    def to_bytes(self) -> bytes:
        return json.dumps([self.messages, [failure.to_json() for failure in self.failures]]).encode()

    @classmethod
    def merge(cls, results: Iterable[bytes]) -> SendResult:
        parts = [json.loads(result) for result in results]
        failures = [Undelivered(**failure) for _, failed in parts for failure in failed]
        return cls(sum(messages for messages, _ in parts), failures)


def all_chunks(maker: MessageMaker, rows: Rows) -> list[Chunk]:
    """Every message of a small window, made before the first is sent: a row that fails leaves no repeats."""
    return list(maker.chunks(chain.from_iterable(rows.read_splits()), None))


def send_by_tasks(
    request: SendRequest, rows: Rows, spark: Callable[[], SparkSession], counter: RowCounter
) -> SendResult:
    """A producer per task; for windows that are not small."""
    activity = f"{rows.stream}: sending to topic {request.delivery.topic}"
    return SendResult.merge(run_over_rows(rows, partial(_send_part, request), spark, activity, counter))


def _send_part(request: SendRequest, part: int, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    producer = request.delivery.open()
    try:
        chunks = request.maker.chunks(batches, part)
        yield SendResult.of(deliver(producer, request.delivery, chunks)).to_bytes()
    finally:
        close(producer)
