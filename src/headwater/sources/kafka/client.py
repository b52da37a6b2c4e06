"""Kafka by librdkafka: what the brokers know of topics, and the messages of one range of offsets.

Ids, partitions and where logs begin and end take a few batched requests, no Spark. Messages are read on executors, in
lists as large as they come.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from headwater.config.sources.kafka import ClientOptions, OptionValue
from headwater.model.errors import SourceChanged, SourceUnreachable
from headwater.model.position.marks import OffsetsMark

Partition = tuple[str, int]  # topic, partition
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # what brokers without topic ids answer
_INTERNAL = "__"
_AGAIN_SECONDS = 0.05
_CAUSE_SECONDS = 0.1
_OffsetFutures = Mapping[TopicPartition, Future[Any]]
_WITHOUT_LEADER = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,  # described a moment ago: the broker has not heard of it yet
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
)


class _NoLeader(Exception):
    """A partition whose leader is changing."""

    def __init__(self, what: str, error: KafkaException) -> None:
        super().__init__(what)
        self.what, self.error = what, error


@dataclass(frozen=True)
class Log:
    """One partition: its first offset, and the one that comes after the last that may be read."""

    first: int
    end: int


@dataclass(frozen=True)
class Topic:
    """What there is of a topic now."""

    id: str  # empty: the brokers know none
    partitions: Mapping[int, Log]


class Broker:
    """Asks the cluster. Connects when first used; every method raises SourceUnreachable."""

    def __init__(self, options: ClientOptions, timeout_seconds: float, isolation: str) -> None:
        self._options, self._timeout = options, timeout_seconds
        self._isolation = (
            IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        )
        self._last_error = ""

    @property
    def address(self) -> str:
        return f"kafka at {self._options.brokers}"

    @cached_property
    def _admin(self) -> AdminClient:
        with self._asking("connect"):
            return AdminClient(self._options.reveal() | {"error_cb": self._remember})

    def names(self) -> list[str]:
        """Every topic that we may see, without Kafka's own."""
        with self._asking("list topics"):
            topics = self._admin.list_topics(timeout=self._timeout).topics
        return sorted(name for name in topics if not name.startswith(_INTERNAL))

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that exist, with where their logs begin and end."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        described = self._describe(wanted)
        partitions = [(name, number) for name, (_, numbers) in described.items() for number in numbers]
        firsts, ends = self._patiently(
            lambda: (
                self._ask_offsets(partitions, OffsetSpec.earliest()),
                self._ask_offsets(partitions, OffsetSpec.latest(), self._isolation),
            )
        )
        return {
            name: Topic(identity, {n: Log(firsts[name, n], ends[name, n]) for n in numbers})
            for name, (identity, numbers) in described.items()
        }

    def ends_with_open_transactions(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Where the logs really end, whatever of it may be read now."""
        logs = list(partitions)
        return self._patiently(lambda: (self._ask_offsets(logs, OffsetSpec.latest()),))[0]

    def offsets_since(self, partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int]:
        """The first offsets whose timestamps are not before the moment; -1: no such message."""
        logs = list(partitions)
        return self._patiently(lambda: (self._ask_offsets(logs, OffsetSpec.for_timestamp(milliseconds)),))[0]

    def _patiently(self, ask: Callable[[], tuple[_OffsetFutures, ...]]) -> list[dict[Partition, int]]:
        """Ask again while partitions find a new leader: after a topic was made, while a broker restarts."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return [self._offsets(futures) for futures in ask()]
            except _NoLeader as waiting:
                if time.monotonic() > deadline:
                    raise self._unreachable(waiting.what, waiting.error) from waiting.error
                time.sleep(_AGAIN_SECONDS)

    def _describe(self, names: list[str]) -> dict[str, tuple[str, list[int]]]:
        with self._asking("describe topics"):
            futures = self._admin.describe_topics(TopicCollection(names), request_timeout=self._timeout)
        described = {}
        for name, future in futures.items():
            try:
                topic = future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise self._unreachable(f"describe {name}", error) from error
            identity = str(topic.topic_id)
            numbers = sorted(partition.id for partition in topic.partitions)
            described[name] = ("" if identity == _NO_ID else identity, numbers)
        return described

    def _ask_offsets(
        self,
        partitions: list[Partition],
        which: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> _OffsetFutures:
        if not partitions:
            return {}
        specs = {TopicPartition(topic, number): which for topic, number in partitions}
        with self._asking("list offsets"):
            futures: _OffsetFutures = self._admin.list_offsets(
                specs, isolation_level=isolation, request_timeout=self._timeout
            )
        return futures

    def _offsets(self, futures: _OffsetFutures) -> dict[Partition, int]:
        offsets = {}
        for partition, future in futures.items():
            try:
                offsets[partition.topic, partition.partition] = future.result().offset
            except KafkaException as error:
                what = f"offsets of {partition.topic} {partition.partition}"
                if error.args[0].code() in _WITHOUT_LEADER:
                    raise _NoLeader(what, error) from error
                raise self._unreachable(what, error) from error
        return offsets

    def _remember(self, error: KafkaError) -> None:
        """The cause of a time-out comes on a side way: `connection refused`, `authentication failed`."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - confluent-kafka spells its own codes so
            self._last_error = error.str()

    @contextlib.contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._unreachable(what, error) from error

    def _unreachable(self, what: str, error: KafkaException) -> SourceUnreachable:
        if "_admin" in self.__dict__:
            self._admin.poll(_CAUSE_SECONDS)  # the cause waits to be fetched
        return unreachable(self.address, what, error.args[0].str(), self._last_error)


def unreachable(address: str, what: str, reason: str, cause: str = "") -> SourceUnreachable:
    """One text for every way in which the brokers do not answer."""
    return SourceUnreachable(
        f"{address}: {what}: {reason}{f' ({cause})' if cause else ''}",
        hint="see whether the brokers run at this address, and whether security and access rights fit",
    )


def commit(options: ClientOptions, group: str, mark: OffsetsMark, timeout_seconds: float) -> None:
    """Return when the group holds the mark."""
    offsets = [
        TopicPartition(topic, partition, offset)
        for topic, partitions in mark.topics.items()
        for partition, offset in partitions.items()
    ]
    if not offsets:
        return
    client_options = options.reveal() | {
        "group.id": group,
        "enable.auto.commit": False,
        "socket.timeout.ms": round(timeout_seconds * 1000),
    }
    consumer = Consumer(client_options)
    try:
        answers = consumer.commit(offsets=offsets, asynchronous=False)
        errors = [answer.error for answer in answers or () if answer.error is not None]
    except KafkaException as error:
        errors = [error.args[0]]
    finally:
        consumer.close()
    if errors:
        raise unreachable(f"kafka at {options.brokers}", f"commit to group {group}", errors[0].str())


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

# A read by explicit offsets has no group; librdkafka requires a name all the same, and never uses this one.
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
        heard, waiting, following = time.monotonic(), list[Message](), wanted.begin
        while True:
            try:
                # librdkafka waits for as many as it is asked for: more than the range holds would cost the whole wait.
                batch = consumer.consume(min(_AT_ONCE, wanted.end - following), _POLL_SECONDS)
            except KafkaException as error:
                raise _failure(reading, wanted, error.args[0]) from error
            fresh, reached = _in_range(reading, wanted, batch)
            if fresh:
                following = (fresh[-1].offset() or 0) + 1
                waiting += fresh  # taken in small lists, handed on in large ones: parsing likes many at once
            if waiting and (reached or len(waiting) >= _TOGETHER or not fresh):
                yield waiting
                waiting = []
            if reached:
                return
            if fresh:
                heard = time.monotonic()
            elif time.monotonic() - heard > reading.timeout_seconds:
                raise unreachable(
                    f"kafka at {reading.options.brokers}",
                    f"read {wanted}",
                    f"nothing came for {reading.timeout_seconds:g} s, and the end was not reached",
                )


def _in_range(reading: Reading, wanted: OffsetRange, batch: list[Message]) -> tuple[list[Message], bool]:
    """The messages within the range, and whether its end has been reached."""
    messages_in_range = [message for message in batch if message.error() is None]
    reached = False
    if len(messages_in_range) != len(batch):
        for message in batch:
            error = message.error()
            if error is None:
                continue
            if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - as confluent-kafka spells it
                raise _failure(reading, wanted, error)
            reached = reached or (message.offset() or 0) >= wanted.end
    if messages_in_range and (messages_in_range[-1].offset() or 0) >= wanted.end - 1:
        messages_in_range = [message for message in messages_in_range if (message.offset() or 0) < wanted.end]
        reached = True
    return messages_in_range, reached


def _failure(reading: Reading, wanted: OffsetRange, error: KafkaError) -> Exception:
    address = f"kafka at {reading.options.brokers}"
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001 - as above
        return SourceChanged(
            f"{address}: {wanted}: the broker no longer has all of it ({error.str()}) (G9)",
            hint="continue behind the gap: headwater rewind NAME --skip-gap --why TEXT; "
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
