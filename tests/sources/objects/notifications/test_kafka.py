"""A bucket watched through a topic of notifications: on a real broker and a real S3 server."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from headwater.config.project import S3Settings
from headwater.config.sources.objects import EventTopicSettings
from headwater.model.errors import SourceUnreachable
from headwater.sources.objects.notifications.kafka import TopicFeed
from headwater.sources.objects.tuning import Tuning
from tests.sources.objects.objects_source import ObjectsPipeline, notification, record
from tests.support.s3_objects import amazons_client, put
from tests.support.stack import KafkaForTests, S3ForTests
from tests.support.wait import wait_until

_HOUR = dt.timedelta(hours=1)
_ODD = ["in/a b.txt", "in/a+b", "in/100%25", "in/é 日本 😀", "in/q=1&r"]


class Dock:
    """A bucket, a topic, and somebody who writes into both as a server does."""

    def __init__(self, kafka: KafkaForTests, s3: S3ForTests, bucket: str, folder: Path, **settings: Any) -> None:
        self.kafka, self.s3, self.bucket = kafka, s3, bucket
        self.topic = kafka.topic(partitions=3, name="events")
        self.producer = Producer({"bootstrap.servers": kafka.brokers, "log_level": 0})
        feed = {"kafka": {"brokers": kafka.brokers, "topic": self.topic}}
        options = {"url": f"s3://{bucket}/in/", "deleted": "remove_rows", "feed": feed, **settings}
        self.pipeline = ObjectsPipeline(folder, S3Settings(**vars(s3)), **options)

    def put(self, *keys: str, content: bytes = b"x\n") -> None:
        put(self.s3, self.bucket, dict.fromkeys(keys, content))

    def remove(self, key: str) -> None:
        amazons_client(self.s3).delete_object(Bucket=self.bucket, Key=key)

    def tell(self, *keys: str, name: str = "ObjectCreated:Put") -> None:
        self.send(notification(record(self.bucket, key, name)) for key in keys)

    def send(self, values: Iterable[str | None]) -> None:
        for value in values:
            self.producer.produce(self.topic, value)
        assert self.producer.flush(30) == 0


@pytest.fixture
def dock(kafka: KafkaForTests, s3: S3ForTests, bucket: str, tmp_path: Path) -> Dock:
    return Dock(kafka, s3, bucket, tmp_path)


def test_new_changed_and_removed_objects_are_found_without_a_listing(dock: Dock) -> None:
    dock.put("in/a", "in/b")
    dock.tell("in/a", "in/b")  # before the first listing: it sees them itself
    assert dock.pipeline.cycles() == ["in/a", "in/b"]
    assert (dock.pipeline.container.listings, dock.pipeline.container.stats) == (1, [])
    dock.put(*_ODD, "out/of/it")
    dock.tell(*_ODD, "out/of/it")
    assert sorted(dock.pipeline.cycles()) == sorted(_ODD)
    dock.put("in/a", content=b"another\n")
    dock.tell("in/a", "in/a")
    dock.remove("in/b")
    dock.tell("in/b", name="ObjectRemoved:Delete")
    assert dock.pipeline.cycles() == ["in/a", "-in/b"]
    assert dock.pipeline.container.listings == 1
    assert "out/of/it" not in dock.pipeline.container.stats
    before = dock.pipeline.bookmarks()
    dock.pipeline.ahead = _HOUR
    assert dock.pipeline.cycles() == []
    assert dock.pipeline.container.listings == 2
    assert dock.pipeline.bookmarks() == before


def test_another_process_goes_on_where_the_mark_stands(dock: Dock) -> None:
    dock.pipeline.cycles()
    dock.put("in/a", "in/b")
    dock.tell("in/a")
    dock.pipeline.cycle(crash=True)  # staged, and the mark did not move
    dock.pipeline.restart()
    dock.tell("in/b")
    assert dock.pipeline.cycles() == ["in/a", "in/b"]
    dock.pipeline.restart()
    assert dock.pipeline.cycles() == []
    assert dock.pipeline.container.listings == 0


def test_messages_that_say_nothing_are_told_with_their_offset(dock: Dock) -> None:
    dock.pipeline.cycles()
    dock.put("in/a")
    dock.send(
        ["{", None, '{"Event": "s3:TestEvent"}', json.dumps({"Message": notification(record(dock.bucket, "in/a"))})]
    )
    assert dock.pipeline.cycle() == ["in/a"]
    (warning,) = dock.pipeline.plan.warnings
    assert "2 unreadable notifications" in warning
    assert "partition " in warning
    assert "offset 0" in warning
    assert dock.pipeline.cycle() == []


def test_a_topic_that_was_made_anew_is_listed_around(dock: Dock) -> None:
    dock.put("in/a")
    dock.pipeline.cycles()
    dock.put("in/b")
    dock.tell("in/b")
    dock.kafka.delete(dock.topic)
    wait_until(lambda: dock.topic not in dock.kafka.admin.list_topics(timeout=10).topics)
    with pytest.raises(SourceUnreachable, match="does not exist"):
        dock.pipeline.cycle()
    dock.kafka.create(dock.topic, partitions=3)
    wait_until(lambda: dock.topic in dock.kafka.admin.list_topics(timeout=10).topics)
    assert dock.pipeline.cycle() == ["in/b"]
    assert "the feed has a gap; everything is listed" in dock.pipeline.plan.warnings[0]
    assert "deleted and created again" in dock.pipeline.plan.warnings[0]
    dock.put("in/c")
    dock.tell("in/c")
    assert dock.pipeline.cycles() == ["in/c"]
    assert dock.pipeline.container.listings == 2


def test_notifications_that_retention_took_are_listed_around(dock: Dock) -> None:
    dock.pipeline.cycles()
    dock.put("in/a", "in/b")
    dock.tell(*["in/a"] * 30)
    everything = [TopicPartition(dock.topic, number, -1) for number in range(3)]
    for removed in dock.kafka.admin.delete_records(everything).values():
        removed.result()
    assert dock.pipeline.cycle() == ["in/a", "in/b"]
    assert "removed unread" in dock.pipeline.plan.warnings[0]
    assert dock.pipeline.cycles() == []
    assert dock.pipeline.container.listings == 2


def test_many_that_bring_nothing_move_the_position_by_themselves(dock: Dock) -> None:
    dock.pipeline.tuning = Tuning(saved_notifications=20)
    dock.pipeline.restart()
    dock.put("in/a")
    dock.pipeline.cycles()
    dock.tell(*["in/a"] * 19)
    assert dock.pipeline.cycle() == []
    assert dock.pipeline.plan.window is None
    dock.tell("in/a")
    assert dock.pipeline.cycle() == []
    assert dock.pipeline.plan.window is not None
    assert sum(dock.pipeline.position["topics"][dock.topic].values()) == 20
    dock.pipeline.restart()
    assert dock.pipeline.cycle() == []
    assert dock.pipeline.container.stats == []


def test_more_than_one_cycle_may_hear_is_heard_by_the_next(dock: Dock, tmp_path: Path) -> None:
    feed = TopicFeed(EventTopicSettings(brokers=dock.kafka.brokers, topic=dock.topic), tmp_path, max_read=20)
    position, keys = feed.end(), [f"in/{number:03}" for number in range(50)]
    dock.tell(*keys)
    events: list[str] = []
    for more in (True, True, False):
        heard = feed.read_after(position, ())
        assert heard.more == more
        events += [one.event.key for one in heard.events]
        position = json.loads(json.dumps(heard.position(())))
    assert sorted(events) == keys
    assert feed.read_after(position, ()).count == 0


def test_a_young_object_holds_back_its_own_partition_only(kafka, s3, bucket, tmp_path) -> None:
    dock = Dock(kafka, s3, bucket, tmp_path, min_age="5s", listing_every="100h")
    dock.pipeline.cycles()
    dock.pipeline.ahead = _HOUR
    dock.pipeline.cycles()
    dock.pipeline.ahead = dt.timedelta()
    dock.put("in/a")
    dock.producer.produce(dock.topic, notification(record(bucket, "in/a")), partition=1)
    for _ in range(3):
        dock.producer.produce(dock.topic, notification(record(bucket, "in/none", "ObjectRemoved:Delete")), partition=2)
    dock.producer.flush(30)
    read: list[str] = []
    deadline = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=30)
    while not read and dt.datetime.now(dt.UTC) < deadline:
        dock.pipeline.restart()
        read = dock.pipeline.cycle()
    assert read == ["in/a"]
    assert dock.pipeline.position["topics"][dock.topic] == {"0": 0, "1": 1, "2": 3}
    assert dock.pipeline.container.listings == 0
