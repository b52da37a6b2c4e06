"""Notifications from a Kafka topic. The position is a mark of the kafka source: an offset per partition, and the topic's id."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from headwater.config.sources.kafka import client_options
from headwater.config.sources.objects import EventTopicSettings
from headwater.model.errors import SourceChanged, SourceUnreachable
from headwater.model.position.marks import Json, OffsetsMark, mark_from_json
from headwater.sources.kafka.client import Broker, OffsetRange, Partition, Reading, Topic, messages
from headwater.sources.kafka.offsets import begins, ends, gaps, mark_of
from headwater.sources.objects.notifications.feed import (
    FeedEvent,
    FeedGap,
    FeedPage,
    NotificationId,
    parse,
    unreadable_warning,
)

_MAX_READ = 10_000  # messages
_TIMEOUT_SECONDS = 30.0
_ISOLATION = "read_uncommitted"  # a notification of an aborted transaction costs one check, no more


class TopicFeed:
    """One topic, all partitions."""

    def __init__(self, settings: EventTopicSettings, folder: Path, max_read: int = _MAX_READ) -> None:
        self._topic, self._max_read = settings.topic, max_read
        options = client_options(settings, folder)
        self._reading = Reading(options, _ISOLATION, _TIMEOUT_SECONDS)
        self._broker = Broker(options, _TIMEOUT_SECONDS, _ISOLATION)

    def end(self) -> Json:
        topics = self._topics()
        offsets = {(self._topic, number): partition.end for number, partition in topics[self._topic].partitions.items()}
        return mark_of(offsets, topics).to_json()

    def read_after(self, position: Json, skip: Collection[NotificationId]) -> FeedPage:
        mark, topics = self._parse_position(position), self._topics()
        if lost := gaps(mark, topics):
            raise FeedGap("; ".join(gap.why for gap in lost))
        begin = begins(mark, topics)
        end = ends(begin, topics, self._max_read)
        events: list[FeedEvent] = []
        ids: list[NotificationId] = []
        problems = []
        for (_, number), at in sorted(begin.items()):
            for message in self._messages(number, at, end[self._topic, number]):
                id_ = (number, message.offset())
                if id_ in skip:
                    continue
                value = message.value()
                parsed = parse(value.encode() if isinstance(value, str) else value)
                ids.append(id_)
                events += [
                    FeedEvent(event if event.at else replace(event, at=_timestamp(message)), id_)
                    for event in parsed.events
                ]
                problems += [(f"partition {id_[0]} offset {id_[1]}", reason) for reason in parsed.problems]

        def position_before(retained: Collection[NotificationId]) -> Json:
            return mark_of(_before(end, retained), topics).to_json()

        count = sum(end[partition] - at for partition, at in begin.items())
        more = any(topics[self._topic].partitions[number].end > at for (_, number), at in end.items())
        return FeedPage(events, ids, count, more, unreadable_warning(f"topic {self._topic}", problems), position_before)

    def _messages(self, partition: int, begin: int, end: int) -> list[Message]:
        offsets = OffsetRange(self._topic, partition, begin, end)
        try:
            return [message for batch in messages(self._reading, offsets) for message in batch]
        except SourceChanged as error:
            raise FeedGap(error.message) from error  # retention removed them before we read them

    def _parse_position(self, position: Json) -> OffsetsMark:
        mark = mark_from_json(position) if position.get("kind") == OffsetsMark.kind else None
        if not isinstance(mark, OffsetsMark) or set(mark.topics) != {self._topic}:
            raise FeedGap(f"topic {self._topic} is not the feed of the stored position")
        return mark

    def _topics(self) -> Mapping[str, Topic]:
        topics = self._broker.topics([self._topic])
        if not topics:
            raise SourceUnreachable(
                f"{self._broker.address}: topic {self._topic} does not exist or is not visible",
                hint="create the topic, or grant the right to describe it; a running pipeline tries again",
            )
        return topics


def _before(end: Mapping[Partition, int], retained: Collection[NotificationId]) -> dict[Partition, int]:
    offsets_before = dict(end)
    for topic, partition in end:
        offsets = [offset for number, offset in retained if number == partition and isinstance(offset, int)]
        offsets_before[topic, partition] = min((end[topic, partition], *offsets))
    return offsets_before


def _timestamp(message: Message) -> float | None:
    type_, milliseconds = message.timestamp()
    return None if type_ == TIMESTAMP_NOT_AVAILABLE else milliseconds / 1000
