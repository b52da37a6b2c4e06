"""One producer at work: messages go out in order per partition, and failures come back as values."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater.config.kafka_client import ClientOptions, OptionValue
from headwater.model.secret import masked
from headwater.sinks.kafka.failures import Undelivered, plain
from headwater.sinks.kafka.messages import Chunk
from headwater.sinks.kafka.positions import PositionScheme

Report = Callable[[KafkaError | None, Message], None]

_WAIT_SECONDS = 0.5
_BATCH_BYTES = 1_000_000
# Ours to choose, and the user's to change by `options`.
_DEFAULTS: dict[str, OptionValue] = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 128 * 1024,
}
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}  # noqa: SLF001 - public, in spite of the name


@dataclass(frozen=True)
class DeliveryOrder:
    """Everything that is needed to send a landing's messages; sent to the tasks."""

    options: ClientOptions
    topic: str
    headers: tuple[tuple[str, str], ...]
    partitioner: str
    timeout_seconds: float
    topic_bytes: int  # of the largest message, and of the largest batch, that the topic takes
    positions: PositionScheme | None

    def open(self) -> Producer:
        """A producer for this topic."""
        ours: dict[str, OptionValue] = {
            "acks": "all",
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "partitioner": self.partitioner,
            "delivery.timeout.ms": int(self.timeout_seconds * 1000),
        }
        # librdkafka fills a batch up to this size, and a broker refuses a batch as a whole.
        batch = min(_BATCH_BYTES, self.topic_bytes)
        sizes: dict[str, OptionValue] = {"message.max.bytes": max(1_000, self.topic_bytes), "batch.size": batch}
        return Producer({**_DEFAULTS, **sizes, **self.options.reveal(), **ours})


@dataclass
class Delivered:
    """What became of the messages of one task."""

    sent: int = 0
    undelivered: dict[int, Undelivered] = field(default_factory=dict)

    def failed(self, error: KafkaError, first: str) -> None:
        known = self.undelivered.get(error.code())
        count, first = (known.count + 1, known.first) if known else (1, first)
        self.undelivered[error.code()] = Undelivered(error.code(), masked(plain(error)), count, first)

    @property
    def failures(self) -> Sequence[Undelivered]:
        return list(self.undelivered.values())


def deliver(producer: Producer, order: DeliveryOrder, chunks: Iterable[Chunk]) -> Delivered:
    """Send everything; return when each message is acknowledged by all in-sync replicas, or one is refused.

    At the first failure the rest is not sent: the window is sent again anyway, and each try leaves repeats.
    """
    delivered = Delivered()

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None and error.code() not in _PURGED:
            delivered.failed(error, _described(message, order.positions))

    try:
        for chunk in chunks:
            _send(producer, order, chunk, report, delivered)
            producer.poll(0)
            if delivered.undelivered:
                producer.purge(in_flight=False)
                break
    except BaseException:
        producer.purge(in_flight=False)
        raise
    while producer.flush(_WAIT_SECONDS):
        # Each message ends: acknowledged, refused, or too old (`timeout`).
        if delivered.undelivered:
            producer.purge(in_flight=False)
    return delivered


def _send(producer: Producer, order: DeliveryOrder, chunk: Chunk, report: Report, delivered: Delivered) -> None:
    produce, topic = producer.produce, order.topic
    fixed: list[tuple[str, str | bytes | None]] = list(order.headers)
    positions: Sequence[str | None] = chunk.positions or [None] * len(chunk)
    for value, key, position in zip(chunk.values, chunk.keys, positions, strict=True):
        headers = [*fixed, ("headwater.position", position)] if position else None
        while True:
            try:
                produce(topic, value, key, on_delivery=report, headers=headers)
                delivered.sent += 1
                break
            except BufferError:
                if delivered.undelivered:
                    return
                producer.poll(_WAIT_SECONDS)  # the queue is full: as many leave it as the brokers take
            except KafkaException as error:
                delivered.failed(
                    error.args[0], f"{f'headwater.position {position}, ' if position else ''}{len(value):,} bytes"
                )
                return


def _described(message: Message, positions: PositionScheme | None) -> str:
    """Which message it was; what it holds is not for logs."""
    value = message.value() or b""
    named = f"headwater.position {positions.digest(value)}, " if positions else ""
    return f"{named}{len(value) + len(message.key() or b''):,} bytes"


def close(producer: Producer) -> None:
    """Give back the connections; what is not sent is not wanted any more."""
    with contextlib.suppress(KafkaException):
        producer.purge()
    producer.flush(_WAIT_SECONDS)
