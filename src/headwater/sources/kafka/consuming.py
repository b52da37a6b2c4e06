"""The messages of one range of offsets, by librdkafka, in lists as large as they come. Runs on executors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater.config.kafka_client import ClientOptions, OptionValue
from headwater.model.errors import SourceChanged
from headwater.sources.kafka.broker import unreachable

_AT_ONCE: Final = 2_000
_TOGETHER: Final = 8_000
_POLL_SECONDS: Final = 1.0

# Measured with messages of 200 bytes: a queue that stays in the processor's cache takes half of the time per message of
# one that does not, if a full queue is looked at again soon (by default after a second). And a short wait at the broker:
# only the end of a log makes it wait at all.
_TUNED: dict[str, OptionValue] = {
    "fetch.message.max.bytes": 1 << 20,
    "queued.max.messages.kbytes": 8 << 10,
    "queued.min.messages": 50_000,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 20,
    "fetch.error.backoff.ms": 50,
}

# Whoever reads by explicit offsets has no group; librdkafka wants a name all the same, and never uses this one.
_FIXED: dict[str, OptionValue] = {
    "group.id": "headwater-reads-by-offset",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # G9: never jump over what is gone
    "enable.partition.eof": True,
}


@dataclass(frozen=True)
class OffsetRange:
    """From `begin` up to, not including, `end`."""

    topic: str
    partition: int
    begin: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic} partition {self.partition} from {self.begin:,} up to {self.end:,}"


@dataclass(frozen=True)
class Reading:
    """How to read: sent to the executors."""

    options: ClientOptions
    isolation: str
    timeout_seconds: float


def messages(reading: Reading, wanted: OffsetRange) -> Iterator[list[Message]]:
    """Every message of the range that is there, in order, none twice.

    Compaction and transactions leave offsets without a message, also at the end. So the range has been read when
    a message or the log's end lies at or past its end; silence alone never ends it, but fails after the time-out.
    """
    if wanted.begin >= wanted.end:
        return
    with _borrowed(reading) as consumer:
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.begin)])
        heard, waiting = time.monotonic(), list[Message]()
        while True:
            try:
                batch = consumer.consume(_AT_ONCE, _POLL_SECONDS)
            except KafkaException as error:
                raise _failure(reading, wanted, error.args[0]) from error
            found, reached = _sorted_out(reading, wanted, batch)
            if found:
                waiting += found  # taken in small lists, handed on in large ones: parsing likes many at once
            if waiting and (reached or len(waiting) >= _TOGETHER or not found):
                yield waiting
                waiting = []
            if reached:
                return
            if found:
                heard = time.monotonic()
            elif time.monotonic() - heard > reading.timeout_seconds:
                raise unreachable(
                    f"kafka at {reading.options.brokers}",
                    f"read {wanted}",
                    f"nothing came for {reading.timeout_seconds:g} s, and the end was not reached",
                )


def _sorted_out(reading: Reading, wanted: OffsetRange, batch: list[Message]) -> tuple[list[Message], bool]:
    """The messages within the range, and whether its end has been reached."""
    found = [message for message in batch if message.error() is None]
    reached = False
    if len(found) != len(batch):
        for message in batch:
            error = message.error()
            if error is None:
                continue
            if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - as confluent-kafka spells it
                raise _failure(reading, wanted, error)
            reached = reached or (message.offset() or 0) >= wanted.end
    if found and (found[-1].offset() or 0) >= wanted.end - 1:
        found = [message for message in found if (message.offset() or 0) < wanted.end]
        reached = True
    return found, reached


def _failure(reading: Reading, wanted: OffsetRange, error: KafkaError) -> Exception:
    address = f"kafka at {reading.options.brokers}"
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001 - as above
        return SourceChanged(
            f"{address}: {wanted}: the broker no longer has all of it ({error.str()}) (G9)",
            hint="go on behind the gap: headwater rewind NAME --skip-gap --why TEXT; "
            "or read all that is there: headwater rewind NAME --to earliest --why TEXT",
        )
    return unreachable(address, f"read {wanted}", error.str())


_idle: dict[tuple[ClientOptions, str], list[Consumer]] = {}
_lock = threading.Lock()


@contextmanager
def _borrowed(reading: Reading) -> Iterator[Consumer]:
    """A consumer that an earlier split of this process left, or a new one: connecting takes longer than a small read."""
    kind = (reading.options, reading.isolation)
    with _lock:
        waiting = _idle.get(kind)
        consumer = waiting.pop() if waiting else None
    if consumer is None:
        options = _TUNED | reading.options.reveal() | _FIXED | {"isolation.level": reading.isolation}
        consumer = Consumer(options)
    try:
        yield consumer
        consumer.unassign()
    except BaseException:
        consumer.close()
        raise
    with _lock:
        _idle.setdefault(kind, []).append(consumer)
