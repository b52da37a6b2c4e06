"""One offset per partition: what a window holds, where reading goes on, and what new partitions and topics bring."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

from headwater.api import open_source
from headwater.config.sources.kafka import KafkaClientSettings, client_options
from headwater.model.errors import InputError, SettingsError, SourceUnreachable
from headwater.sources.kafka.client import OffsetRange, Reading, messages
from headwater.sources.kafka.offsets import fair_shares
from tests.sources.kafka.poller import Poller, numbers, send, texts
from tests.support.stack import KafkaForTests


def test_the_seeds_example_goes_on_from_each_partitions_own_offset(kafka: KafkaForTests):
    topic = kafka.topic(partitions=3)
    for partition, count in enumerate((100, 150, 200)):
        send(kafka.brokers, topic, numbers(0, count), partition=partition)
    poller = Poller(kafka.brokers, topic)
    assert len(poller.poll()) == 450
    assert poller.offsets() == {topic: {0: 100, 1: 150, 2: 200}}
    send(kafka.brokers, topic, numbers(100, 110), partition=0)
    send(kafka.brokers, topic, numbers(150, 155), partition=1)
    assert sorted(poller.values()) == sorted(texts(100, 110) + texts(150, 155))
    assert poller.offsets() == {topic: {0: 110, 1: 155, 2: 200}}
    assert poller.look() is None


def test_nothing_new_is_no_window_and_silence_of_an_empty_topic_is_no_error(kafka: KafkaForTests):
    poller = Poller(kafka.brokers, kafka.topic(partitions=3))
    assert poller.look() is None


def test_rows_say_where_they_came_from(kafka: KafkaForTests):
    topic = kafka.topic()
    send(kafka.brokers, topic, [b"x"], key=b"k1", headers=[("h", b"\xff"), ("h", None)], timestamp=1_772_438_400_123)
    metadata = ["topic", "partition", "offset", "timestamp", "key", "headers"]
    (row,) = Poller(kafka.brokers, topic, metadata=metadata).poll()
    assert row == {
        "value": "x",
        "kafka_topic": topic,
        "kafka_partition": 0,
        "kafka_offset": 0,
        "kafka_timestamp": dt.datetime(2026, 3, 2, 8, 0, 0, 123000, tzinfo=dt.UTC),
        "kafka_key": "k1",
        "kafka_headers": [{"name": "h", "value": b"\xff"}, {"name": "h", "value": None}],
    }


def test_metadata_is_named_as_the_settings_say_or_left_out(kafka: KafkaForTests):
    topic = kafka.topic()
    send(kafka.brokers, topic, [b"x"])
    assert Poller(kafka.brokers, topic, metadata={"offset": "position"}).poll() == [{"value": "x", "position": 0}]
    assert Poller(kafka.brokers, topic, metadata=[]).poll() == [{"value": "x"}]


def test_text_that_is_none_and_keys_that_are_none_are_set_aside_with_all_they_had(kafka: KafkaForTests):
    topic = kafka.topic()
    send(kafka.brokers, topic, [b"a", b"\xff\xfe", b"b"], key=b"k", headers=[("n", b"v")], timestamp=5)
    send(kafka.brokers, topic, [b"c"], key=b"\xff")
    poller = Poller(kafka.brokers, topic, metadata=["key", "offset"])
    assert [(row["value"], row["kafka_offset"]) for row in poller.poll()] == [("a", 0), ("b", 2)]
    value, key = sorted(poller.rejects, key=lambda reject: reject.location["offset"])
    assert (value.location, value.payload) == ({"topic": topic, "partition": 0, "offset": 1}, b"\xff\xfe")
    assert value.reason == "not UTF-8 at byte 0"
    assert value.more == {"key": "aw==", "headers": [["n", "dg=="]], "timestamp": 5}
    assert (key.location["offset"], key.reason) == (3, "key: not UTF-8; write key_as: binary")


def test_rejects_are_decoded_again_under_other_settings(kafka: KafkaForTests):
    topic = kafka.topic()
    send(kafka.brokers, topic, [b"\xff", None], key=b"k", headers=[("n", b"v")], timestamp=5)
    poller = Poller(kafka.brokers, topic, tombstones="reject")
    assert poller.poll() == []
    kafka.delete(topic)
    metadata = ["key", "headers", "offset", "timestamp"]
    other = poller.again(format="binary", tombstones="row", metadata=metadata)
    with other.source.replay(poller.rejects, poller.mark) as (rows,):
        first, second = sorted(other.table(rows).to_pylist(), key=lambda row: row["kafka_offset"])
    assert (first["value"], second["value"]) == (b"\xff", None)
    assert first["kafka_headers"] == [{"name": "n", "value": b"v"}]
    assert (second["kafka_key"], second["kafka_offset"]) == ("k", 1)


@pytest.mark.parametrize(
    ("way", "values", "rejected"), [("row", ["a", None], 0), ("skip", ["a"], 0), ("reject", ["a"], 1)]
)
def test_tombstones_are_rows_nothing_or_rejects(kafka: KafkaForTests, way: str, values: list, rejected: int):
    topic = kafka.topic()
    send(kafka.brokers, topic, [b"a", None], key=b"k")
    poller = Poller(kafka.brokers, topic, tombstones=way, metadata=["key"])
    assert [row["value"] for row in poller.poll()] == values
    assert len(poller.rejects) == rejected


def test_start_latest_reads_only_what_comes_later_also_after_a_restart(kafka: KafkaForTests):
    topic = kafka.topic(partitions=2)
    send(kafka.brokers, topic, numbers(0, 5))
    poller = Poller(kafka.brokers, topic, start="latest")
    assert poller.poll() == []
    assert poller.offsets() == {topic: {0: 5, 1: 0}}
    send(kafka.brokers, topic, numbers(5, 7))
    assert poller.again().values() == ["5", "6"]


def test_a_partition_that_is_added_later_is_read_from_its_first_message_although_start_says_latest(
    kafka: KafkaForTests,
):
    topic = kafka.topic()
    send(kafka.brokers, topic, [b"old"])
    poller = Poller(kafka.brokers, topic, start="latest")
    assert poller.poll() == []
    kafka.admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    send(kafka.brokers, topic, [b"a", b"b"], partition=2)
    assert poller.values() == ["a", "b"]
    assert poller.offsets() == {topic: {0: 1, 1: 0, 2: 2}}


def test_new_topics_of_a_pattern_are_streams_of_their_own_from_their_first_message(kafka: KafkaForTests):
    prefix = f"p{uuid.uuid4().hex[:8]}"
    kafka.create(f"{prefix}.a")
    kafka.create(f"other-{prefix}")
    send(kafka.brokers, f"{prefix}.a", [b"1"])
    poller = Poller(kafka.brokers, f"{prefix}.*", start="latest")
    assert poller.poll_streams() == {}
    kafka.create(f"{prefix}.b")
    send(kafka.brokers, f"{prefix}.b", [b"2"])
    send(kafka.brokers, f"{prefix}.a", [b"3"])
    send(kafka.brokers, f"other-{prefix}", [b"4"])
    by_stream = poller.poll_streams()
    assert {name: table["value"].to_pylist() for name, table in by_stream.items()} == {
        f"{prefix}.a": ["3"],
        f"{prefix}.b": ["2"],
    }


def test_a_list_of_topics_is_one_mark_and_a_stream_each(kafka: KafkaForTests):
    first, second = kafka.topic(), kafka.topic()
    send(kafka.brokers, first, [b"1"])
    poller = Poller(kafka.brokers, [first, second])
    assert list(poller.poll_streams()) == [first]
    send(kafka.brokers, second, [b"2"])
    assert list(poller.poll_streams()) == [second]
    assert poller.offsets() == {first: {0: 1}, second: {0: 1}}


def test_a_topic_that_the_settings_leave_out_keeps_its_offsets(kafka: KafkaForTests):
    first, second = kafka.topic(), kafka.topic()
    send(kafka.brokers, first, [b"1"])
    send(kafka.brokers, second, [b"2"])
    poller = Poller(kafka.brokers, [first, second])
    poller.poll()
    send(kafka.brokers, first, [b"3"])
    only = poller.again(topics=first)
    assert only.values() == ["3"]
    assert only.offsets() == {first: {0: 2}, second: {0: 1}}


def test_start_at_a_moment_reads_what_is_not_older(kafka: KafkaForTests):
    topic = kafka.topic(partitions=2)
    moment = dt.datetime(2026, 3, 2, 8, tzinfo=dt.UTC)
    at = round(moment.timestamp() * 1000)
    for number, stamp in enumerate((at - 1, at, at + 5)):
        send(kafka.brokers, topic, [str(number)], timestamp=stamp)
    send(kafka.brokers, topic, [b"older"], partition=1, timestamp=at - 7)
    poller = Poller(kafka.brokers, topic, start=moment.isoformat())
    assert poller.values() == ["1", "2"]
    assert poller.offsets() == {topic: {0: 3, 1: 1}}


def test_start_in_the_future_is_refused(kafka: KafkaForTests):
    with pytest.raises(InputError, match="lies in the future"):
        Poller(kafka.brokers, kafka.topic(), start="2999-01-01T00:00:00Z").look()


def test_start_at_offsets_and_the_first_message_of_the_others(kafka: KafkaForTests):
    topic = kafka.topic(partitions=2)
    send(kafka.brokers, topic, numbers(0, 5))
    send(kafka.brokers, topic, [b"x"], partition=1)
    assert sorted(Poller(kafka.brokers, topic, start={topic: {0: 3}}).values()) == ["3", "4", "x"]


def test_start_at_an_offset_that_is_not_there_is_refused(kafka: KafkaForTests):
    topic = kafka.topic()
    with pytest.raises(InputError, match=f"{topic} partition 0 at 3: it holds 0 up to 0"):
        Poller(kafka.brokers, topic, start={topic: {0: 3}}).look()


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_window_is_read_the_same_by_another_process_whatever_start_says_then(kafka: KafkaForTests, start: str):
    topic = kafka.topic(partitions=2)
    send(kafka.brokers, topic, numbers(0, 5))
    window = Poller(kafka.brokers, topic).look()
    assert window is not None
    send(kafka.brokers, topic, numbers(5, 9))
    other = Poller(kafka.brokers, topic, start=start)
    assert other.read(window)[topic]["value"].to_pylist() == texts(0, 5)
    assert other.read(window)[topic]["value"].to_pylist() == texts(0, 5)


def test_max_rows_is_shared_over_partitions_and_nothing_is_left(kafka: KafkaForTests):
    topic = kafka.topic(partitions=3)
    for partition, count in enumerate((1, 10, 10)):
        send(kafka.brokers, topic, numbers(0, count), partition=partition)
    poller = Poller(kafka.brokers, topic, max_rows=9)
    plan = poller.source.plan(None)
    assert plan.more
    assert plan.window.end.topics == {topic: {0: 1, 1: 4, 2: 4}}
    sizes = [len(poller.poll()) for _ in range(4)]
    assert sizes == [9, 9, 3, 0]


def test_fair_shares_never_exceed_the_limit_and_always_move():
    places = [("t", number) for number in range(5)]
    available = dict(zip(places, (0, 1, 100, 7, 100), strict=True))
    for limit in range(1, 220):
        shares = fair_shares(available, limit)
        assert sum(shares.values()) == min(limit, 208)
        assert all(shares[location] <= available[location] for location in places)
        large = [shares[location] for location in places if shares[location] < available[location]]
        assert max(shares.values()) - min(large, default=max(shares.values())) <= 1


def test_splits_are_exactly_the_window(kafka: KafkaForTests):
    topic = kafka.topic(partitions=2)
    send(kafka.brokers, topic, numbers(0, 1000))
    send(kafka.brokers, topic, numbers(1000, 1300), partition=1)
    poller = Poller(kafka.brokers, topic, splits=7)
    window = poller.look()
    with poller.source.read(window) as (rows,):
        assert len(rows.splits) >= 7
        assert sum(split.rows for split in rows.splits) == 1300
        assert sorted(map(int, poller.table(rows)["value"].to_pylist())) == list(range(1300))


def test_an_unknown_topic_is_told_with_those_that_are_there(kafka: KafkaForTests):
    known = kafka.topic()
    with pytest.raises(SourceUnreachable, match="no topic nowhere_at_all") as caught:
        Poller(kafka.brokers, "nowhere_at_all").look()
    assert "there are" in caught.value.hint
    assert known


def test_a_broker_that_does_not_answer_is_never_nothing_new():
    with pytest.raises(SourceUnreachable, match=r"127\.0\.0\.1:1"):
        Poller("127.0.0.1:1", "t", timeout="1s").look()


def test_a_read_whose_broker_is_gone_fails_after_the_time_out():
    nowhere = client_options(KafkaClientSettings(brokers="127.0.0.1:1"), Path())
    with pytest.raises(SourceUnreachable, match=r"nothing came for 1 s|refused|transport"):
        list(messages(Reading(nowhere, "read_committed", 1.0), OffsetRange("t", 0, 0, 5)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"schema": "id bigint,"}, "ends before"),
        ({"schema": "id foo"}, "unknown type foo"),
        ({"options": {"group.id": "x"}}, "write group"),
        ({"options": {"bootstrap.servers": "x"}}, "brokers"),
        ({"start": "yesterday"}, "2026-03-02T08:00:00Z"),
        ({"start": {"t": {0: -1}}}, "from 0"),
        ({"format": "avro"}, "avro_schema"),
        ({"format": "text", "schema": "a int"}, "schema belongs to format: json"),
        ({"schema": "kafka_offset bigint"}, "two columns are called kafka_offset"),
        ({"topics": []}, "name a topic"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict, message: str):
    with pytest.raises(SettingsError, match=message):
        open_source({"kafka": {"brokers": "h:1", "topics": "t", **wrong}})
