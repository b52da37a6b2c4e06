"""What the brokers know of topics: ids, partitions, where their logs begin and end. A few batched requests, no Spark."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headwater.config.kafka_client import ClientOptions
from headwater.model.errors import SourceUnreachable

Partition = tuple[str, int]  # topic, partition
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # what brokers without topic ids answer
_INTERNAL = "__"
_AGAIN_SECONDS = 0.05
_CAUSE_SECONDS = 0.1
_Asked = Mapping[TopicPartition, Future[Any]]
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
            found = self._admin.list_topics(timeout=self._timeout).topics
        return sorted(name for name in found if not name.startswith(_INTERNAL))

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
        asked = list(partitions)
        return self._patiently(lambda: (self._ask_offsets(asked, OffsetSpec.latest()),))[0]

    def offsets_since(self, partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int]:
        """The first offsets whose timestamps are not before the moment; -1 where there is none."""
        asked = list(partitions)
        return self._patiently(lambda: (self._ask_offsets(asked, OffsetSpec.for_timestamp(milliseconds)),))[0]

    def _patiently(self, ask: Callable[[], tuple[_Asked, ...]]) -> list[dict[Partition, int]]:
        """Ask again while partitions find a new leader: after a topic was made, while a broker restarts."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return [self._offsets(asked) for asked in ask()]
            except _NoLeader as waiting:
                if time.monotonic() > deadline:
                    raise self._unreachable(waiting.what, waiting.error) from waiting.error
                time.sleep(_AGAIN_SECONDS)

    def _describe(self, names: list[str]) -> dict[str, tuple[str, list[int]]]:
        with self._asking("describe topics"):
            futures = self._admin.describe_topics(TopicCollection(names), request_timeout=self._timeout)
        found = {}
        for name, future in futures.items():
            try:
                topic = future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise self._unreachable(f"describe {name}", error) from error
            identity = str(topic.topic_id)
            numbers = sorted(partition.id for partition in topic.partitions)
            found[name] = ("" if identity == _NO_ID else identity, numbers)
        return found

    def _ask_offsets(
        self,
        partitions: list[Partition],
        which: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> _Asked:
        if not partitions:
            return {}
        asked = {TopicPartition(topic, number): which for topic, number in partitions}
        with self._asking("list offsets"):
            futures: _Asked = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=self._timeout)
        return futures

    def _offsets(self, asked: _Asked) -> dict[Partition, int]:
        found = {}
        for place, future in asked.items():
            try:
                found[place.topic, place.partition] = future.result().offset
            except KafkaException as error:
                what = f"offsets of {place.topic} {place.partition}"
                if error.args[0].code() in _WITHOUT_LEADER:
                    raise _NoLeader(what, error) from error
                raise self._unreachable(what, error) from error
        return found

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
