"""Planning over 1,000 partitions, all of which have something new: best and worst of twenty polls.

python bench/kafka_plan.py
"""

from __future__ import annotations

import argparse
import tempfile
import time
import uuid
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import headwater as hw
from headwater.services.stack.kafka import Kafka
from headwater.services.stack.service import running

TOPICS, PARTITIONS, POLLS = 10, 100, 20


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--brokers", help="a broker that runs already")
    options = arguments.parse_args()
    if options.brokers:
        measure(options.brokers)
        return
    with tempfile.TemporaryDirectory() as folder, running(Kafka(), Path(folder) / "kafka", print) as broker:
        measure(broker.address["brokers"])


def measure(brokers: str) -> None:
    prefix = f"plan{uuid.uuid4().hex[:6]}"
    admin = AdminClient({"bootstrap.servers": brokers})
    names = [f"{prefix}.{number}" for number in range(TOPICS)]
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        future.result()
    producer = Producer({"bootstrap.servers": brokers})
    for name in names:
        for partition in range(PARTITIONS):
            producer.produce(name, b"x", partition=partition)
    assert producer.flush(60) == 0
    source = hw.open_source({"kafka": {"brokers": brokers, "topics": f"{prefix}.*", "format": "text"}})
    first = timed(source, None)
    times = sorted(timed(source, None) for _ in range(POLLS))
    mark = source.plan(None).window.end
    idle = sorted(timed(source, mark) for _ in range(POLLS))
    print(f"{TOPICS * PARTITIONS:,} partitions: first plan {first * 1000:.0f} ms with the connection,")
    print(f"  then {times[0] * 1000:.0f} ms, median {times[POLLS // 2] * 1000:.0f} ms, worst {times[-1] * 1000:.0f} ms")
    print(f"  nothing new: {idle[0] * 1000:.0f} ms, worst {idle[-1] * 1000:.0f} ms")
    admin.delete_topics(names)


def timed(source: object, mark: object) -> float:
    began = time.perf_counter()
    source.plan(mark)  # type: ignore[attr-defined]
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
