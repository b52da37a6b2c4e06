"""Rows per second into a local broker: the Kafka sink against bare producer loops that send ready-made bytes.

Floors: confluent-kafka's own producer with the sink's options, in one Python process: without headers, and with the
same five headers per message. The sink starts from Arrow batches and makes keys, values and positions on the way;
windows of 50,000 rows, sent from one process without Spark.
Run: python bench/kafka_sink.py [WINDOWS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.config.sinks.kafka import KafkaSinkSettings
from headwater.services.stack.kafka import Kafka
from headwater.services.stack.service import running
from headwater.sinks.kafka import KafkaSink
from headwater.sinks.kafka.messages import JsonValues
from headwater.testing.memory_rows import attempt_at, memory_rows, window_up_to

ROWS = 50_000  # of a window
ROUNDS = 3
PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 20,
    "queue.buffering.max.messages": 200_000,
    "partitioner": "murmur2_random",
    "log_level": 0,
}


def main(windows: int) -> None:
    with tempfile.TemporaryDirectory() as work, running(Kafka(), Path(work) / "broker") as broker:
        brokers, folder = broker.address["brokers"], Path(work)
        tables = [orders(number * ROWS) for number in range(windows)]
        ready = ready_made(tables)
        size = sum(len(value) for value, _, _ in ready) // len(ready)
        print(
            f"{windows} windows of {ROWS:,} rows × 7 columns, {size} bytes of JSON each, 3 partitions, best of {ROUNDS}"
        )
        work_by_name: dict[str, Callable[[str], None]] = {
            "floor, no headers": lambda topic: bare(brokers, topic, ready, headers=False),
            "floor, headers": lambda topic: bare(brokers, topic, ready, headers=True),
            "json, no headers": lambda topic: headwater(brokers, topic, folder, tables, headers=False),
            "json": lambda topic: headwater(brokers, topic, folder, tables),
            "avro": lambda topic: headwater(brokers, topic, folder, tables, format="avro", avro_schema="t.avsc"),
        }
        best: dict[str, float] = {}
        for number in range(ROUNDS):
            for name, send in work_by_name.items():
                topic = new_topic(brokers, f"{name.replace(', ', '_').replace(' ', '_')}_{number}")
                began = time.perf_counter()
                send(topic)
                best[name] = min(best.get(name, 1e9), time.perf_counter() - began)
        for name, seconds in best.items():
            print(f"  {name:<18} {windows * ROWS / seconds:10,.0f} rows/s")
        print(f"json / floor with headers        {best['json'] / best['floor, headers']:.2f} × its time")
        print(f"json / floor, both without       {best['json, no headers'] / best['floor, no headers']:.2f} × its time")


def orders(first: int) -> pa.Table:
    ids = range(first, first + ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "customer": pa.array([i % 9973 for i in ids], pa.int32()),
            "amount": pa.array([i * 7 for i in ids], pa.int64()).cast(pa.decimal128(25, 2)),
            "updated_at": pa.array([1_700_000_000_000_000 + i for i in ids], pa.timestamp("us", tz="UTC")),
            "flag": pa.array([i % 2 == 0 for i in ids]),
            "rate": pa.array([i / 7 for i in ids]),
            "note": pa.array([f"note {i} of a customer who writes some words" for i in ids]),
        }
    )


def ready_made(tables: Sequence[pa.Table]) -> list[tuple[bytes, bytes, list[tuple[str, str]]]]:
    origin = [("headwater.pipeline", "shop"), ("headwater.stream", "orders"), ("headwater.run", "0123456789ab")]
    return [
        (value, str(key).encode(), [*origin, ("headwater.window", "0" * 24), ("headwater.position", f"{key:032x}")])
        for table in tables
        for batch in table.to_batches()
        for value, key in zip(JsonValues()(batch), batch.column(0).to_pylist(), strict=True)
    ]


def new_topic(brokers: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result()
    time.sleep(1)  # until the broker has opened its files
    return name


def bare(
    brokers: str, topic: str, ready: Sequence[tuple[bytes, bytes, list[tuple[str, str]]]], *, headers: bool
) -> None:
    producer = Producer({**PRODUCER, "bootstrap.servers": brokers})
    for value, key, origin in ready:
        while True:
            try:
                producer.produce(topic, value, key, headers=origin if headers else None)
                break
            except BufferError:
                producer.poll(0.1)
    while producer.flush(1):
        pass


def headwater(brokers: str, topic: str, folder: Path, tables: Sequence[pa.Table], **settings: object) -> None:
    sink = KafkaSink(KafkaSinkSettings(**{"brokers": brokers, "topic": topic, **settings}), "1:kafka", folder)
    for number, table in enumerate(tables):
        landing = sink.land(attempt_at(window_up_to(number + 1)), memory_rows("orders", (table,), key=("id",)))
        assert landing.rows == ROWS
    sink.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
