"""What landing one incremental window of 10,000 rows costs as the table grows.

spread: keys all over the table. recent: updates of the newest rows, and new ones after them.
Run: python bench/cost_of_a_cycle.py [ROWS …]       (default: 100,000 1,000,000 10,000,000)
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from orders_lake import OrdersSplit, filled, lake, land, orders_rows, sink

from headwater.model.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW = 10_000
ROUNDS = 3


def main(sizes: list[int]) -> None:
    with tempfile.TemporaryDirectory() as work, lake(Path(work)) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        print(f"one window of {WINDOW:,} rows, median of {ROUNDS}, warm session; ratio to the smallest table")
        cases = [("append", "recent"), ("merge", "recent"), ("merge", "spread")]
        filled(spark, "lake.bench.warm", 10_000)
        for mode, keys in cases:
            measured(spark, "lake.bench.warm", 10_000, mode, keys)
        smallest: dict[tuple[str, str], float] = {}
        print(f"{'rows':>12}  " + "".join(f"{f'{mode}, {keys}':>24}" for mode, keys in cases))
        for rows in sizes:
            line = f"{rows:>12,}  "
            for mode, keys in cases:
                table = f"lake.bench.{mode}_{keys}_{rows}"
                filled(spark, table, rows, splits=10)
                seconds, how = measured(spark, table, rows, mode, keys)
                base = smallest.setdefault((mode, keys), seconds)
                line += f"{f'{seconds:.2f} s  {seconds / base:.1f} × {how[:6]}':>24}"
            print(line, flush=True)


def measured(spark: SparkSession, table: str, rows: int, mode: str, keys: str) -> tuple[float, str]:
    target, times, how = sink(table, mode), [], ""
    for number in range(ROUNDS + 1):
        began = time.monotonic()
        landing = land(spark, target, window(rows, number, keys))
        times.append(time.monotonic() - began)
        how = str(landing.proof["upsert"])
    return statistics.median(times[1:]), how


def window(rows: int, number: int, keys: str) -> Rows:
    half = WINDOW // 2
    if keys == "recent":
        end = 2 * (rows + number * half)
        return orders_rows((OrdersSplit(end - 2 * half, 2, half, number + 1), OrdersSplit(end, 2, half, number + 1)))
    step = 2 * rows // half
    return orders_rows((OrdersSplit(0, step, half, number + 1), OrdersSplit(2 * number + 1, step, half, number + 1)))


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [100_000, 1_000_000, 10_000_000])
