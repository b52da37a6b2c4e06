"""Kafka → objects in the layout of Connect's S3 sinks → rows: killed at every point, each message is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyarrow import fs

from headwater.api import Project
from headwater.config.load import load_project
from headwater.model.faults import EVERY_CYCLE
from headwater.testing.crashes import expire_lease
from tests.support.stack import KafkaForTests, S3ForTests
from tests.support.warm_processes import warm_programs

PARTITIONS = 2


class Archive:
    """A topic, the pipeline that archives it in a bucket, and one that watches the bucket. No JVM."""

    def __init__(self, folder: Path, kafka: KafkaForTests, s3: S3ForTests, bucket: str) -> None:
        self.folder, self.s3, self.bucket = folder, s3, bucket
        self.topic = kafka.topic(partitions=PARTITIONS)
        self._producer = Producer({"bootstrap.servers": kafka.brokers, "log_level": 0})
        self._sent = Counter[int]()
        access = {name: getattr(s3, name) for name in ("endpoint", "region", "access_key", "secret_key")}
        (folder / "headwater.yaml").write_text(json.dumps({"s3": access}))
        metadata = ["partition", "offset", "timestamp", "key", "headers"]
        source = {"brokers": kafka.brokers, "topics": self.topic, "format": "text", "metadata": metadata, "max_rows": 7}
        sink = {"path": f"s3://{bucket}/topics", "layout": "connect", "file_offsets": 3}
        self._write("archive", {"kafka": source}, {"files": sink})
        columns = "key string, value string, offset bigint, partition int, timestamp timestamp, headers string"
        watch = {"url": f"s3://{bucket}/topics/", "pattern": "**/*.json", "format": "json", "schema": columns}
        self._write("watch", {"objects": watch}, {"files": {"path": "./out", "format": "json"}})

    def _write(self, name: str, source: object, sink: object) -> None:
        (self.folder / f"{name}.yaml").write_text(
            json.dumps({"pipeline": name, "lease": "1s", "source": source, "sinks": [sink]})
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

    def run(self, name: str) -> str:
        with Project(load_project(self.folder), self.folder) as project:
            pipeline = project.pipelines([self.folder / f"{name}.yaml"])[0]
            result = pipeline.run_once()
            if result.error and result.error.code == "lease-held":  # by the process that was killed
                expire_lease(self.folder, name)
                result = pipeline.run_once()
        assert result.error is None, result.error
        return result.outcome

    def run_to_the_end(self, name: str) -> None:
        while self.run(name) == "landed":
            pass

    def killed_at(self, point: str) -> bool:
        environment = {**os.environ, "HEADWATER_FAULT": f"{point}:kill"}
        command = [warm_programs().commands / "headwater", "run", "archive.yaml", "--once"]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, check=False, timeout=120)
        return done.returncode == -signal.SIGKILL

    @property
    def expected(self) -> Counter[tuple[int, int]]:
        return Counter((partition, offset) for partition, count in self._sent.items() for offset in range(count))

    def archived(self) -> list[tuple[str, list[dict]]]:
        found = self.s3.files.get_file_info(fs.FileSelector(f"{self.bucket}/topics", recursive=True))
        paths = sorted(info.path for info in found if info.is_file)
        texts = [(path, self.s3.files.open_input_stream(path).read().decode()) for path in paths]
        return [(path, [json.loads(line) for line in text.splitlines()]) for path, text in texts]

    def watched(self) -> Counter[tuple[int, int]]:
        lines = [line for path in (self.folder / "out").rglob("*.jsonl") for line in path.read_text().splitlines()]
        return Counter((row["partition"], row["offset"]) for row in map(json.loads, lines))


@pytest.fixture
def archive(tmp_path: Path, kafka: KafkaForTests, s3: S3ForTests, bucket: str) -> Archive:
    return Archive(tmp_path, kafka, s3, bucket)


def test_every_message_is_there_once_whole_and_under_the_name_of_its_offset(archive: Archive):
    archive.produce(20)
    archive.run_to_the_end("archive")
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
    killed = 0
    for point in EVERY_CYCLE:
        archive.produce(5)
        killed += archive.killed_at(point)
        archive.run("watch")
        archive.run("archive")
        archive.run("watch")
    assert killed >= len(EVERY_CYCLE)
    archive.run_to_the_end("archive")
    archive.run_to_the_end("watch")
    everything = Counter((line["partition"], line["offset"]) for _, lines in archive.archived() for line in lines)
    assert everything == archive.expected
    assert archive.watched() == archive.expected
