"""Notifications from a Kafka topic. The position is that of the kafka source: an offset per partition, and the topic's id."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from headwater.config.kafka_client import client_options
from headwater.config.objects_source import EventTopic
from headwater.model.errors import SourceChanged, SourceUnreachable
from headwater.model.marks import Json, OffsetsMark, mark_from_json
from headwater.sources.kafka.broker import Broker, Partition, Topic
from headwater.sources.kafka.consuming import OffsetRange, Reading, messages
from headwater.sources.kafka.planning import begins, ends, gaps, mark_of
from headwater.sources.objects.feed import FeedGap, Heard, Place, Told, unreadable
from headwater.sources.objects.feed_events import parse

_AT_ONCE = 10_000  # messages
_TIMEOUT_SECONDS = 30.0
_ISOLATION = "read_uncommitted"  # a notification of a transaction that fails costs a look, no more


class TopicFeed:
    """One topic, all partitions."""

    def __init__(self, settings: EventTopic, folder: Path, at_once: int = _AT_ONCE) -> None:
        self._topic, self._at_once = settings.topic, at_once
        options = client_options(settings, folder)
        self._reading = Reading(options, _ISOLATION, _TIMEOUT_SECONDS)
        self._broker = Broker(options, _TIMEOUT_SECONDS, _ISOLATION)

    def end(self) -> Json:
        topics = self._topics()
        offsets = {(self._topic, number): log.end for number, log in topics[self._topic].partitions.items()}
        return mark_of(offsets, topics).to_json()

    def hear(self, position: Json, skip: Collection[Place]) -> Heard:
        known, topics = self._known(position), self._topics()
        if found := gaps(known, topics):
            raise FeedGap("; ".join(gap.why for gap in found))
        begin = begins(known, topics)
        end = ends(begin, topics, self._at_once)
        told: list[Told] = []
        places: list[Place] = []
        problems = []
        for (_, number), at in sorted(begin.items()):
            for message in self._messages(number, at, end[self._topic, number]):
                place = (number, message.offset())
                if place in skip:
                    continue
                value = message.value()
                parsed = parse(value.encode() if isinstance(value, str) else value)
                places.append(place)
                told += [
                    Told(event if event.at else replace(event, at=_sent(message)), place) for event in parsed.events
                ]
                problems += [(f"partition {place[0]} offset {place[1]}", why) for why in parsed.problems]

        def position_before(held: Collection[Place]) -> Json:
            return mark_of(_before(end, held), topics).to_json()

        count = sum(end[place] - at for place, at in begin.items())
        more = any(topics[self._topic].partitions[number].end > at for (_, number), at in end.items())
        return Heard(told, places, count, more, unreadable(f"topic {self._topic}", problems), position_before)

    def _messages(self, partition: int, begin: int, end: int) -> list[Message]:
        wanted = OffsetRange(self._topic, partition, begin, end)
        try:
            return [message for some in messages(self._reading, wanted) for message in some]
        except SourceChanged as error:
            raise FeedGap(error.message) from error  # retention was quicker than we

    def _known(self, position: Json) -> OffsetsMark:
        known = mark_from_json(position) if position.get("kind") == OffsetsMark.kind else None
        if not isinstance(known, OffsetsMark) or set(known.topics) != {self._topic}:
            raise FeedGap(f"topic {self._topic} is not the feed that was read until now")
        return known

    def _topics(self) -> Mapping[str, Topic]:
        topics = self._broker.topics([self._topic])
        if not topics:
            raise SourceUnreachable(
                f"{self._broker.address}: no topic {self._topic} that we may see",
                hint="create it, or grant the right to describe it; a running pipeline looks again",
            )
        return topics


def _before(end: Mapping[Partition, int], held: Collection[Place]) -> dict[Partition, int]:
    moved = dict(end)
    for topic, partition in end:
        offsets = [offset for number, offset in held if number == partition and isinstance(offset, int)]
        moved[topic, partition] = min((end[topic, partition], *offsets))
    return moved


def _sent(message: Message) -> float | None:
    kind, milliseconds = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds / 1000
