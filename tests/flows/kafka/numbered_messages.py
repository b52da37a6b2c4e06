"""A topic of numbered messages, a pipeline over it that is killed again and again, and the oracle of what must have landed."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from headwater.model.errors import HeadwaterError
from tests.support.wait import wait_until
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NumberedMessages(World):
    """Messages `{"n": …, "text": …}` in one topic, landed in one table."""

    def __init__(
        self, folder: Path, spark: SparkSession, brokers: str, topic: str, table: str, *, max_rows: int = 1_000
    ) -> None:
        self.brokers, self.topic, self.table = brokers, topic, table
        source = {"brokers": brokers, "topics": topic, "schema": "n bigint, text string", "timeout": "60s"}
        super().__init__(
            folder,
            {"kafka": {**source, "max_rows": max_rows}},
            [{"iceberg": {"table": table}}],
            name="messages",
            spark=spark,
        )

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

    def delete_records(self, rows: Counter) -> None:
        """Retention takes the head of every partition, up to the last of these rows."""
        admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})
        newest: dict[int, int] = {}
        for partition, offset, _ in rows:
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
        counts: Counter = Counter()
        ended: set[int] = set()
        while len(ended) < len(partitions):
            for one in consumer.consume(1000, timeout=0.1):
                if one.error() and one.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's name for it
                    ended.add(one.partition())
                elif not one.error():
                    counts[one.partition(), one.offset(), json.loads(one.value())["n"]] += 1
        consumer.close()
        return counts

    def landed(self) -> Counter:
        if not self.has_table(self.table):
            return Counter()
        return self.count(f"SELECT kafka_partition, kafka_offset, n FROM {self.table}")

    def land_all(self) -> None:
        """Catch up, though the broker may be away for a while."""
        self.catch_up(outage=_broker_is_away, seconds=300)

    def kill_after_cycles(self, cycles: int, seconds: float) -> None:
        """A process that runs cycle after cycle; killed `seconds` after that many of them, wherever it is then."""
        child = self.start("cycles")
        wait_until(lambda: len(child.cycles()) >= cycles, 120)
        child.kill_after(seconds)

    def producing(self, count: int, partitions: int, start: int = 0) -> threading.Thread:
        thread = threading.Thread(target=self.produce, args=(count, partitions, start))
        thread.start()
        return thread


def message(number: int) -> bytes:
    return json.dumps({"n": number, "text": f"message {number}"}).encode()


def _broker_is_away(error: HeadwaterError) -> bool:
    return error.code == "source-unreachable"
