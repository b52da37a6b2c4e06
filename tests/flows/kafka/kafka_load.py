"""A topic under load, a pipeline over it that is killed again and again, and the plain oracle of what must have landed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from headwater.api import Project
from headwater.config.load import load_project
from headwater.engine.result import CycleResult
from headwater.testing.crashes import expire_lease, lend

CHILD = Path(__file__).parents[2] / "support" / "cycles_child.py"


@dataclass
class KafkaLoad:
    """Messages `{"n": …, "partition": …}` into one topic, landed in one table."""

    brokers: str
    topic: str
    folder: Path
    table: str
    spark: object

    def write_pipeline(self, max_rows: int) -> None:
        (self.folder / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
        (self.folder / "load.yaml").write_text(f"""
pipeline: load
lease: 2s
source:
  kafka: {{brokers: "{self.brokers}", topics: {self.topic}, schema: "n bigint, text string", max_rows: {max_rows}, timeout: 60s}}
sinks:
  - iceberg: {{table: {self.table}}}
""")

    def produce(self, count: int, partitions: int, start: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.brokers, "enable.idempotence": True, "log_level": 0})
        failures: list[KafkaError] = []
        for number in range(start, start + count):
            while True:
                try:
                    producer.produce(
                        self.topic,
                        message(number),
                        partition=number % partitions,
                        on_delivery=lambda error, _: failures.append(error) if error else None,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(180) == 0
        assert not failures, failures[0]

    def produce_in_transactions(self, count: int, partitions: int, start: int, seed: int) -> None:
        """About half of the transactions are aborted; what they wrote must never land."""
        chance = random.Random(seed)
        producer = Producer({"bootstrap.servers": self.brokers, "transactional.id": f"{self.topic}-tx", "log_level": 0})
        producer.init_transactions(60)
        for begin in range(start, start + count, 50):
            producer.begin_transaction()
            for number in range(begin, min(begin + 50, start + count)):
                producer.produce(self.topic, message(number), partition=number % partitions)
            producer.flush(60)
            if chance.random() < 0.5:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)

    def add_partitions(self, total: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})
        admin.create_partitions([NewPartitions(self.topic, total)])[self.topic].result(60)

    def forget_landed(self, spark_rows: Counter) -> None:
        """Retention takes the head of every partition, up to the last row that has landed."""
        admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})
        newest: dict[int, int] = {}
        for partition, offset, _ in spark_rows:
            newest[partition] = max(offset, newest.get(partition, -1))
        cuts = [TopicPartition(self.topic, partition, offset + 1) for partition, offset in newest.items()]
        for future in admin.delete_records(cuts).values():
            future.result(60)

    def committed(self) -> Counter:
        """Every message that a plain consumer reads, from the first offset that is still there to the end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.brokers,
                "group.id": "oracle",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        partitions = consumer.list_topics(self.topic, timeout=60).topics[self.topic].partitions
        consumer.assign(
            [
                TopicPartition(self.topic, p, consumer.get_watermark_offsets(TopicPartition(self.topic, p))[0])
                for p in partitions
            ]
        )
        found: Counter = Counter()
        ended: set[int] = set()
        while len(ended) < len(partitions):
            for one in consumer.consume(1000, timeout=0.1):
                if one.error() and one.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(one.partition())
                elif not one.error():
                    found[one.partition(), one.offset(), json.loads(one.value())["n"]] += 1
        consumer.close()
        return found

    def landed(self) -> Counter:
        if not self.spark.catalog.tableExists(self.table):
            return Counter()
        rows = self.spark.sql(f"SELECT kafka_partition, kafka_offset, n FROM {self.table}").collect()
        return Counter((row[0], row[1], row[2]) for row in rows)

    def run(self) -> CycleResult:
        with Project(load_project(self.folder), self.folder, spark=self.spark) as project:
            return project.pipelines([self.folder / "load.yaml"])[0].run_once()

    def run_until_nothing_is_new(self, patience: int = 300) -> None:
        until = time.monotonic() + patience
        while time.monotonic() < until:
            result = self.run()
            if result.outcome == "nothing new":
                return
            if result.error and result.error.code == "lease-held":
                expire_lease(self.folder, "load")
            elif result.error:
                assert result.error.code == "source-unreachable", result.error
        raise AssertionError("the pipeline did not catch up")

    def cycles_until_killed(self, after_cycles: int, seconds: float) -> None:
        """A process that runs cycle after cycle; killed `seconds` after that many of them, wherever it is then."""
        child = subprocess.Popen(
            [sys.executable, str(CHILD), str(self.folder / "load.yaml")],
            env={**os.environ, **lend(self.spark)}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert child.stdout
            for _ in range(after_cycles):
                assert child.stdout.readline(), "the process ended by itself"
            time.sleep(seconds)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
            child.stdout.close()

    def producing(self, count: int, partitions: int, start: int = 0) -> threading.Thread:
        thread = threading.Thread(target=self.produce, args=(count, partitions, start))
        thread.start()
        return thread


def message(number: int) -> bytes:
    return json.dumps({"n": number, "text": f"message {number}"}).encode()
