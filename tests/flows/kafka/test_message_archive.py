"""Kafka → objects in the layout of Connect's S3 sinks → rows: killed at every point, each message is there once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyarrow import fs

from headwater.model.faults import EVERY_CYCLE
from tests.support.stack import KafkaForTests, S3ForTests
from tests.support.world import World

PARTITIONS = 2


class Archive:
    """A topic, the pipeline that archives it in a bucket, and one that reads the bucket. No JVM."""

    def __init__(self, folder: Path, kafka: KafkaForTests, s3: S3ForTests, bucket: str) -> None:
        self.s3, self.bucket = s3, bucket
        self.topic = kafka.topic(partitions=PARTITIONS)
        self._producer = Producer({"bootstrap.servers": kafka.brokers, "log_level": 0})
        self._sent = Counter[int]()
        access = vars(s3)
        metadata = ["partition", "offset", "timestamp", "key", "headers"]
        source = {"brokers": kafka.brokers, "topics": self.topic, "format": "text", "metadata": metadata, "max_rows": 7}
        sink = {"path": f"s3://{bucket}/topics", "layout": "connect", "file_offsets": 3}
        self.pipeline = World(
            folder, {"kafka": source}, [{"files": sink}], name="archive", lease="1s", project={"s3": access}
        )
        columns = "key string, value string, offset bigint, partition int, timestamp timestamp, headers string"
        objects = {"url": f"s3://{bucket}/topics/", "pattern": "**/*.json", "format": "json", "schema": columns}
        out = {"path": "./out", "format": "json"}
        self.reader = World(
            folder, {"objects": objects}, [{"files": out}], name="reader", lease="1s", project={"s3": access}
        )

    def produce(self, count: int) -> None:
        for _ in range(count):
            partition = sum(self._sent.values()) % PARTITIONS
            number = self._sent[partition]
            self._producer.produce(
                self.topic, f'{{"n":{number}}}', key=f'{{"id":{number}}}', partition=partition, headers=[("h", b"x")]
            )
            self._sent[partition] += 1
        self._producer.flush()

    @property
    def expected(self) -> Counter[tuple[int, int]]:
        return Counter((partition, offset) for partition, count in self._sent.items() for offset in range(count))

    def archived(self) -> list[tuple[str, list[dict]]]:
        infos = self.s3.files.get_file_info(fs.FileSelector(f"{self.bucket}/topics", recursive=True))
        paths = sorted(info.path for info in infos if info.is_file)
        texts = [(path, self.s3.files.open_input_stream(path).read().decode()) for path in paths]
        return [(path, [json.loads(line) for line in text.splitlines()]) for path, text in texts]

    def read(self) -> Counter[tuple[int, int]]:
        return Counter((row["partition"], row["offset"]) for row in self.reader.published("out"))


@pytest.fixture
def archive(tmp_path: Path, kafka: KafkaForTests, s3: S3ForTests, bucket: str) -> Archive:
    return Archive(tmp_path, kafka, s3, bucket)


def test_every_message_is_there_once_whole_and_under_the_name_of_its_offset(archive: Archive):
    archive.produce(20)
    archive.pipeline.catch_up()
    everything = Counter[tuple[int, int]]()
    for path, lines in archive.archived():
        first = lines[0]
        name = f"{archive.topic}+{first['partition']}+{first['offset']:010d}.json"
        assert path == f"{archive.bucket}/topics/{archive.topic}/partition={first['partition']}/{name}"
        for line in lines:
            everything[line["partition"], line["offset"]] += 1
            assert line["value"] == {"n": line["offset"]}
            assert line["key"] == {"id": line["offset"]}
            assert line["headers"] == [{"key": "h", "value": "x"}]
    assert everything == archive.expected


@pytest.mark.timeout(600)
def test_killed_at_every_point_it_archives_each_message_once_and_a_watcher_sees_each_once(archive: Archive):
    """G2, G5"""
    for point in EVERY_CYCLE:
        archive.produce(5)
        archive.pipeline.kill_at(f"{point}:kill")
        for pipeline in (archive.reader, archive.pipeline, archive.reader):
            result = pipeline.run_after_crash()
            assert result.error is None, result.error
    archive.pipeline.catch_up()
    archive.reader.catch_up()
    everything = Counter((line["partition"], line["offset"]) for _, lines in archive.archived() for line in lines)
    assert everything == archive.expected
    assert archive.read() == archive.expected
