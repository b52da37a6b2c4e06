"""Changes that are in Kafka already, as Debezium's events, onto a table of the current state, and into the log of changes.

40 % inserts, 45 % updates, 15 % deletes; keys of updates and deletes (a) spread evenly over the table, (b) among its last
2 %. The chosen plan against the forced ones, and against the MERGE statement that people write by hand, which takes the
changes from a table where they are staged already.

    python bench/changes.py [--changes 1000000] [--rows 1000000 10000000] [--rounds 2] [--ways auto copy-on-write]
"""

from __future__ import annotations

import argparse
import datetime as dt
import random
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import headwater as hw
from headwater.config.pipeline import PipelineSettings
from headwater.config.project import LakeSettings, ProjectSettings, SparkSettings
from headwater.config.sinks.iceberg import IcebergSinkSettings
from headwater.model.rows import Changes, Rows, change_fields
from headwater.services.stack.kafka import Kafka
from headwater.services.stack.service import running
from headwater.sinks.iceberg.sink import IcebergSink
from headwater.testing.memory_rows import attempt_at, window_up_to

PARTITIONS = 3
WAYS = ("auto", "delete-append", "copy-on-write", "merge", "by hand")
DDL = "custkey bigint, first_name string, city string, state string, fico int, registration_date date, balance decimal(12,2), notes string"
COLUMNS = pa.schema(
    [
        pa.field("custkey", pa.int64(), nullable=False),
        ("first_name", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("fico", pa.int32()),
        ("registration_date", pa.date32()),
        ("balance", pa.decimal128(12, 2)),
        ("notes", pa.string()),
    ]
)
SCHEMA = pa.schema([*COLUMNS, *change_fields()])
SEED_MERGE = """
MERGE INTO {target} AS a
USING (
    SELECT custkey, first_name, city, state, fico, registration_date, balance, notes,
        unix_millis(_source_time) AS ts_ms, _op AS op,
        row_number() OVER (PARTITION BY custkey ORDER BY unix_millis(_source_time) DESC) AS row_num
    FROM {staged}
) latest_changes
ON a.custkey = latest_changes.custkey AND latest_changes.row_num = 1
WHEN MATCHED AND latest_changes.op = 'd' THEN DELETE
WHEN MATCHED AND a.ts_ms < latest_changes.ts_ms THEN UPDATE SET
    custkey = latest_changes.custkey, first_name = latest_changes.first_name, city = latest_changes.city,
    state = latest_changes.state, fico = latest_changes.fico, registration_date = latest_changes.registration_date,
    balance = latest_changes.balance, notes = latest_changes.notes, ts_ms = latest_changes.ts_ms
WHEN NOT MATCHED AND latest_changes.row_num = 1 AND latest_changes.op != 'd' THEN INSERT
    (custkey, first_name, city, state, fico, registration_date, balance, notes, ts_ms)
    VALUES (latest_changes.custkey, latest_changes.first_name, latest_changes.city, latest_changes.state,
        latest_changes.fico, latest_changes.registration_date, latest_changes.balance, latest_changes.notes,
        latest_changes.ts_ms)
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--changes", type=int, default=1_000_000)
    arguments.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--only", choices=["spread", "recent"], help="one way to spread the keys")
    arguments.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, running(Kafka(), Path(folder) / "kafka", print) as broker:
        brokers = broker.address["brokers"]
        settings = ProjectSettings(
            progress="memory:", lake=LakeSettings(warehouse="lake"), spark=SparkSettings(master="local[*]", memory="6g")
        )
        with hw.Project(settings, Path(folder)) as project:
            project.session().sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
            for rows in options.rows:
                for spread in [options.only] if options.only else ["spread", "recent"]:
                    Case(project, brokers, rows, options.changes, spread).measure(options.rounds, options.ways)


@dataclass
class Case:
    """One table, one topic."""

    project: hw.Project
    brokers: str
    rows: int
    changes: int
    spread: str

    def measure(self, rounds: int, strategies: list[str]) -> None:
        topic = produce(self.brokers, self.rows, self.changes, self.spread)
        target = self.base()
        print(f"{self.changes:,} changes onto {self.rows:,} rows, keys {self.spread}", flush=True)
        spark, best, merges = self.project.session(), dict[str, float](), dict[str, float]()
        start = spark.sql(f"SELECT snapshot_id FROM {target}.snapshots ORDER BY committed_at DESC LIMIT 1").first()[0]
        counts, staged = set(), ""
        for _ in range(rounds):
            for strategy in strategies:
                if strategy == "by hand":
                    seconds = merge = self.by_hand(staged, target)
                else:
                    seconds, merge, log = self.headwater(topic, target, strategy)
                    counts.add(tuple(spark.table(target).selectExpr("count(*)", "sum(custkey)", "sum(fico)").first()))
                    spark.sql(f"CALL lake.system.rollback_to_snapshot('{target.removeprefix('lake.')}', {start})")
                    if staged:
                        spark.sql(f"DROP TABLE {log} PURGE")
                    staged = staged or log
                best[strategy] = min(best.get(strategy, seconds), seconds)
                merges[strategy] = min(merges.get(strategy, merge), merge)
        assert len(counts) == 1, counts
        first = strategies[0]
        print(f"  {counts.pop()[0]:,} rows then; {first}: {self.changes / best[first]:,.0f} changes/s, log and merge")
        for strategy, seconds in best.items():
            print(
                f"  {strategy:<14} {seconds:6.2f} s, {seconds / best[first]:.2f} ×; the merge alone {merges[strategy]:6.2f} s, "
                f"{merges[strategy] / merges[first]:.2f} ×"
            )
        spark.sql(f"DROP TABLE {target} PURGE")
        spark.sql(f"DROP TABLE {staged} PURGE")

    def base(self) -> str:
        """The table as a snapshot leaves it."""
        name = f"lake.bench.customer_{uuid.uuid4().hex[:8]}"
        sink = IcebergSink(IcebergSinkSettings(table=name, mode="merge"), "2:iceberg")
        size = 500_000
        splits = tuple(Snapshot(begin, min(begin + size, self.rows)) for begin in range(0, self.rows, size))
        names = tuple(COLUMNS.names)
        rows = Rows("customer", SCHEMA, ("custkey",), ("_position",), splits, changes=Changes(tuple(names)))
        sink.land(attempt_at(window_up_to(1), pipeline=name, spark=self.project.session), rows)
        return name

    def headwater(self, topic: str, target: str, strategy: str) -> tuple[float, float, str]:
        name = f"bench_{uuid.uuid4().hex[:8]}"
        log = f"lake.bench.{name}_changes"
        source = {"brokers": self.brokers, "topics": [topic], "format": "debezium", "schema": DDL, "max_rows": 10**9}
        source["debezium"] = {"decimals": "text", "key": ["custkey"]}  # all is declared: nothing is inferred
        sinks = [
            {"iceberg": {"table": log, "mode": "changes"}},
            {"iceberg": {"table": target, "mode": "merge", "upsert": strategy}},
        ]
        settings = PipelineSettings.model_validate({"pipeline": name, "source": {"kafka": source}, "sinks": sinks})
        began = time.monotonic()
        result = self.project.pipeline(settings).run_once()
        seconds = time.monotonic() - began
        if result.error:
            raise result.error
        steps = ", ".join(f"{landing.sink} {landing.seconds:.2f} s" for landing in result.landings)
        merge = next(landing for landing in result.landings if landing.sink == "2:iceberg")
        explanation = f"{merge.proof['upsert']}: {merge.proof['why']}"
        print(
            f"  {strategy}: {seconds:.2f} s ({steps}), {self.changes / seconds:,.0f} changes/s; {explanation}",
            flush=True,
        )
        return seconds, merge.seconds, log

    def by_hand(self, staged: str, target: str) -> float:
        """The seed's statement on a table with Iceberg's own defaults."""
        spark, own = self.project.session(), f"lake.bench.hand_{uuid.uuid4().hex[:8]}"
        columns = ", ".join(COLUMNS.names)
        spark.sql(f"CREATE TABLE {own} USING iceberg AS SELECT {columns}, 0L AS ts_ms FROM {target}")
        began = time.monotonic()
        spark.sql(SEED_MERGE.format(target=own, staged=staged))
        seconds = time.monotonic() - began
        print(f"  MERGE by hand: {seconds:.2f} s (of changes that are staged already)", flush=True)
        spark.sql(f"DROP TABLE {own} PURGE")
        return seconds


@dataclass(frozen=True)
class Snapshot:
    """Rows as a snapshot reads them."""

    begin: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.begin

    def read(self, on_reject=None) -> Iterator[pa.RecordBatch]:
        for begin in range(self.begin, self.end, 100_000):
            keys = np.arange(begin, min(begin + 100_000, self.end))
            count = len(keys)
            own = [
                pa.array(keys),
                pa.array([f"name {key % 5000}" for key in keys.tolist()]),
                pa.array([f"city {key % 300}" for key in keys.tolist()]),
                pa.array(["MA"] * count),
                pa.array(300 + keys % 550, pa.int32()),
                pa.array(20_000 + keys % 365, pa.int32()).cast(pa.date32()),
                pa.array(keys % 10_000, pa.int32()).cast(pa.decimal128(12, 2)),
                pa.array([f"note number {key}, with some words behind it" for key in keys.tolist()]),
            ]
            about = [
                pa.array(["r"] * count),
                pa.array([1] * count).cast(pa.decimal128(38, 0)),
                *(pa.nulls(count, field.type) for field in list(SCHEMA)[-4:]),
            ]
            yield pa.RecordBatch.from_arrays([*own, *about], schema=SCHEMA)


def produce(brokers: str, rows: int, changes: int, spread: str) -> str:
    topic = f"bench_{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer(
        {"bootstrap.servers": brokers, "linger.ms": 100, "batch.size": 1 << 20, "queue.buffering.max.messages": 500_000}
    )
    chance, lsn, now = random.Random(rows), 1000, dt.datetime(2026, 3, 2, tzinfo=dt.UTC).timestamp()  # noqa: S311
    lowest, new = (rows * 98 // 100 if spread == "recent" else 0), rows
    deleted: set[int] = set()
    for number in range(changes):
        lsn += 60
        choice = chance.random()
        if choice < 0.4:
            op, key, new = "c", new, new + 1
        else:
            op, key = ("u" if choice < 0.85 else "d"), chance.randrange(lowest, rows)
            if key in deleted:
                op, _ = "c", deleted.discard(key)
            elif op == "d":
                deleted.add(key)
        after = "null"
        if op != "d":
            after = (
                f'{{"custkey":{key},"first_name":"name {key % 5000}","city":"city {number % 300}","state":"MA","fico":{300 + number % 550},'
                f'"registration_date":{20_000 + number % 365},"balance":"{number % 10_000}.25","notes":"note number {number}, with some words behind it"}}'
            )
        before = (
            f'{{"custkey":{key},"first_name":null,"city":null,"state":null,"fico":null,"registration_date":null,"balance":null,"notes":null}}'
            if op == "d"
            else "null"
        )
        value = (
            f'{{"before":{before},"after":{after},"source":{{"version":"3.6.3.Final","connector":"postgresql","name":"bank","ts_ms":{int(now * 1000) + number // 10},'
            f'"snapshot":"false","db":"bank","sequence":"[\\"{lsn - 8}\\",\\"{lsn}\\"]","ts_us":{int(now * 1_000_000) + number * 100},"ts_ns":{int(now * 1_000_000) * 1000 + number * 100_000},"schema":"burst_bank","table":"customer",'
            f'"txId":{700 + number // 10},"lsn":{lsn},"xmin":null}},"transaction":null,"op":"{op}","ts_ms":{int(now * 1000) + number // 10}}}'
        )
        while True:
            try:
                producer.produce(topic, value, key=f'{{"custkey":{key}}}', partition=key % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return topic


if __name__ == "__main__":
    main()
