"""Kafka → Iceberg append: JSON messages of 200 bytes in 3 partitions, parsed into five columns.

Headwater against a bare `spark.read.format("kafka")` + `from_json` + append of the same range, in one warm session.

    python bench/kafka_load.py [--messages 5000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import psutil
import pyspark
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import headwater as hw
from headwater.config.pipeline import PipelineSettings
from headwater.config.project import LakeSettings, ProjectSettings, SparkSettings
from headwater.services.stack.kafka import Kafka
from headwater.services.stack.service import running

PARTITIONS = 3
# The token provider of 4.1.3 is missing from some copies of Maven Central; this one was run with the source of 4.1.3.
IVY = """\
<ivy-module version="2.0">
  <info organisation="headwater" module="bench"/>
  <configurations><conf name="kafka"/></configurations>
  <dependencies defaultconf="kafka->master">
    <dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13" rev="4.1.3"/>
    <dependency org="org.apache.spark" name="spark-token-provider-kafka-0-10_2.13" rev="4.1.0-preview1"/>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="3.9.2"/>
    <dependency org="org.apache.commons" name="commons-pool2" rev="2.12.1"/>
  </dependencies>
</ivy-module>
"""
DDL = "id bigint, name string, amount decimal(12,2), at timestamp, note string"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, default=5_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--brokers", help="a broker that runs already")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.brokers:
            measure(options.brokers, Path(folder), options.messages, options.rounds)
            return
        with running(Kafka(), Path(folder) / "kafka", print) as broker:
            measure(broker.address["brokers"], Path(folder), options.messages, options.rounds)


def measure(brokers: str, folder: Path, count: int, rounds: int) -> None:
    topic = f"bench_{uuid.uuid4().hex[:8]}"
    produce(brokers, topic, count)
    class_path = {"spark.driver.extraClassPath": f"{spark_kafka_jars(folder)}/*"}
    settings = ProjectSettings(
        progress="memory:",
        lake=LakeSettings(warehouse="lake"),
        spark=SparkSettings(master="local[*]", memory="2g", conf=class_path),
    )
    with hw.Project(settings, folder) as project:
        spark = project.session()
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
        readers: dict[str, Callable[[str], None]] = {
            "headwater": lambda table: headwater(project, brokers, topic, table),
            "bare spark": lambda table: bare(spark, brokers, topic, count, table),
        }
        best: dict[str, float] = {}
        least: dict[str, float] = {}
        for number in range(rounds):
            for reader, load in readers.items():
                table = f"lake.bench.t_{uuid.uuid4().hex[:8]}"
                began, worked = time.monotonic(), cpu_seconds()
                load(table)
                seconds, worked = time.monotonic() - began, cpu_seconds() - worked
                landed = spark.table(table).selectExpr("count(*)", "count(at)", "sum(amount)").first()
                assert (landed[0], landed[1]) == (count, count), landed
                rate = f"{count / seconds:,.0f} messages/s"
                print(f"round {number + 1}: {reader}: {seconds:.2f} s, {rate}, {worked:.1f} s of CPU", flush=True)
                best[reader] = min(seconds, best.get(reader, seconds))
                least[reader] = min(worked, least.get(reader, worked))
                spark.sql(f"DROP TABLE {table} PURGE")
        print(f"{count:,} messages, {PARTITIONS} partitions, {os.cpu_count()} cores; best of {rounds}:")
        for reader, seconds in best.items():
            ratio, work = best["bare spark"] / seconds, least["bare spark"] / least[reader]
            print(f"  {reader}: {seconds:.2f} s; bare spark takes {ratio:.2f} × as long and {work:.2f} × the CPU")


def spark_kafka_jars(folder: Path) -> Path:
    """Spark's Kafka source, which Headwater does not need: fetched by the Ivy inside PySpark into a folder of its own."""
    declaration, jars = folder / "ivy.xml", folder / "kafka-jars"
    declaration.write_text(IVY)
    class_path = f"{Path(pyspark.__file__).parent}/jars/*"
    settings = files("headwater.services") / "ivy" / "ivysettings.xml"
    command = [
        "java", "-cp", class_path, "org.apache.ivy.Main", "-warn", "-settings", str(settings), "-ivy", str(declaration),
        "-cache", str(folder / "ivy"), "-retrieve", f"{jars}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return jars


def cpu_seconds() -> float:
    """Of the driver, its JVM and the workers; the broker is not ours. Says more than time on a busy machine."""
    ours = psutil.Process()
    total = 0.0
    for process in [ours, *ours.children(recursive=True)]:
        try:
            if "kafka.Kafka" not in process.cmdline():
                total += sum(process.cpu_times()[:2])
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return total


def headwater(project: hw.Project, brokers: str, topic: str, table: str) -> None:
    pipeline = {
        "pipeline": table,
        "source": {"kafka": {"brokers": brokers, "topics": topic, "schema": DDL, "metadata": []}},
        "sinks": [{"iceberg": {"table": table}}],
    }
    result = project.pipeline(PipelineSettings.model_validate(pipeline)).run_once()
    if result.error:
        raise result.error


def bare(spark: object, brokers: str, topic: str, count: int, table: str) -> None:
    from pyspark.sql import functions as f

    share = [count // PARTITIONS + (number < count % PARTITIONS) for number in range(PARTITIONS)]
    frame = (
        spark.read.format("kafka")  # type: ignore[attr-defined]
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: {str(n): 0 for n in range(PARTITIONS)}}))
        .option("endingOffsets", json.dumps({topic: {str(n): end for n, end in enumerate(share)}}))
        .load()
        .select(f.from_json(f.col("value").cast("string"), DDL).alias("v"))
        .select("v.*")
    )
    frame.writeTo(table).create()


def produce(brokers: str, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    note = b"x" * 85
    for n in range(count):
        value = b'{"id":%d,"name":"customer number %d","amount":"%d.%02d","at":"2026-03-02T08:%02d:%02d.123456Z","note":"%s"}'
        message = value % (n, n * 7 % 100_003, n % 1000, n % 100, n // 60 % 60, n % 60, note)
        while True:
            try:
                producer.produce(topic, message, partition=n % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.2)
    assert producer.flush(120) == 0
    print(f"{count:,} messages of {len(message)} bytes in {topic}", flush=True)


if __name__ == "__main__":
    main()
