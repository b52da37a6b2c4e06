"""Upserts against a bare merge-on-read MERGE of the same batch, in the same warm session.

Half of a batch is new and half is updated; its keys are spread evenly over the table's.
Run: python bench/upsert.py [ROWS] [BATCH]      (without arguments: 10,000,000 and 60,000, then 1,000,000 and 1,000)
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from orders_lake import OrdersSplit, filled, lake, land, orders_rows, sink

from headwater.model.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 5


def main(cases: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as work, lake(Path(work)) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        for rows, batch in cases:
            compare(spark, Path(work), rows, batch)


def compare(spark: SparkSession, work: Path, rows: int, batch: int) -> None:
    ours, theirs = f"lake.bench.ours_{rows}", f"lake.bench.merge_{rows}"
    for table in (ours, theirs):
        filled(spark, table, rows)
    target, times = sink(ours, "merge"), {"headwater": [], "MERGE": []}
    for number in range(ROUNDS + 2):  # the first two warm both sides
        window = batch_rows(rows, batch, number)
        stage = work / f"batch_{rows}_{number}.parquet"
        pq.write_table(pa.Table.from_batches([b for s in window.splits for b in s.read()]), stage)
        began = time.monotonic()
        landing = land(spark, target, window)
        ended = time.monotonic()
        merge(spark, theirs, stage)
        if number >= 2:
            times["headwater"].append(ended - began)
            times["MERGE"].append(time.monotonic() - ended)
            print(f"  {ended - began:6.2f} s headwater   {time.monotonic() - ended:6.2f} s MERGE", flush=True)
    sums = [spark.sql(f"SELECT count(*), sum(pos), sum(id) FROM {t}").collect()[0][:] for t in (ours, theirs)]
    assert sums[0] == sums[1], sums
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    print(
        f"{batch:,} rows into {rows:,}: headwater {medians['headwater']:.2f} s ({landing.proof['upsert']}), "
        f"MERGE {medians['MERGE']:.2f} s, {medians['MERGE'] / medians['headwater']:.1f} × as fast"
    )


def batch_rows(rows: int, batch: int, number: int) -> Rows:
    step = 2 * rows // (batch // 2)
    updated = OrdersSplit(2 * (number % (step // 2)), step, batch // 2, number + 1)
    new = OrdersSplit(2 * (number % (step // 2)) + 1, step, batch // 2, number + 1)
    return orders_rows((updated, new))


def merge(spark: SparkSession, table: str, stage: Path) -> None:
    spark.read.parquet(str(stage)).createOrReplaceTempView("batch")
    spark.sql(
        f"MERGE INTO {table} t USING batch s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]]
    main([(numbers[0], numbers[1])] if numbers else [(10_000_000, 60_000), (1_000_000, 1_000)])
