"""Objects that are overwritten, and their rows in a table with `mode: replace_object`: files on disk, whole cycles.

20,000 JSON-lines objects of 100 rows fill the table. Then 1,000 of them are written anew, once spread evenly over all of
them and once next to each other, as the newest ones are; and 1,000 new ones come. Each is one cycle in a warm session.
Run: python bench/replace_objects.py [OBJECTS] [CHANGED]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from orders_lake import lake

from headwater.api import run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 100
TABLE = "lake.bench.objects"
PIPELINE = """
pipeline: objects
source:
  objects: {url: in/, schema: "id bigint, customer string, amount double, note string, version bigint"}
sinks:
  - iceberg: {table: lake.bench.objects, mode: replace_object}
"""


def main(objects: int, changed: int) -> None:
    with tempfile.TemporaryDirectory() as work, lake(Path(work) / "lake") as spark:
        spark.sparkContext.setLogLevel("ERROR")
        folder = Path(work)
        (folder / "objects.yaml").write_text(PIPELINE)
        (folder / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
        write(folder, range(objects), 0)
        cycle(spark, folder, f"{objects:,} objects, the first load")
        spread = range(0, objects, objects // changed)
        for version in (1, 2):  # the first one warms Spark's and Arrow's paths
            write(folder, spread, version)
            cycle(spark, folder, f"{len(spread):,} objects, spread over all, are replaced", [*map(name, spread)])
        together = range(objects - changed, objects)
        write(folder, together, 3)
        cycle(spark, folder, f"{changed:,} objects, next to each other, are replaced", [*map(name, together)])
        write(folder, range(objects, objects + changed), 0)
        cycle(spark, folder, f"{changed:,} objects are new")
        row = spark.sql(f"SELECT count(*), count(DISTINCT object_url), sum(version) FROM {TABLE}").collect()[0]
        print(f"the table holds {row[0]:,} rows of {row[1]:,} objects; sum of versions {row[2]:,}")


def name(number: int) -> str:
    return f"day={number // 1000:03d}/part-{number:08d}.jsonl"


def write(folder: Path, numbers: Iterable[int], version: int) -> None:
    for number in numbers:
        target = folder / "in" / name(number)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(line(number * ROWS + row, version) for row in range(ROWS)))


def line(n: int, version: int) -> str:
    return f'{{"id": {n}, "customer": "cust-{n % 9973}", "amount": {n % 997}.5, "note": "note for row {n} lorem ipsum", "version": {version}}}\n'


def cycle(spark: SparkSession, folder: Path, what: str, replaced: Sequence[str] = ()) -> None:
    scanned = to_be_scanned(spark, {f"file://{folder}/in/{one}" for one in replaced}) if replaced else ""
    began = time.monotonic()
    result = run_once(folder / "objects.yaml", spark=spark)
    seconds = time.monotonic() - began
    for landing in result.landings:
        proof = landing.proof
        print(
            f"{what}: cycle {seconds:.2f} s, landing {landing.seconds:.2f} s, {landing.rows:,} rows added, "
            f"{proof['removed']:,} removed ({proof['upsert']}: {proof['why']}){scanned}",
            flush=True,
        )


def to_be_scanned(spark: SparkSession, urls: set[str]) -> str:
    """The bytes of the url column in row groups that may hold one of the objects, and of everything."""
    column = everything = 0
    for row in spark.sql(f"SELECT file_path, file_size_in_bytes FROM {TABLE}.files WHERE content = 0").collect():
        everything += row.file_size_in_bytes
        metadata = pq.read_metadata(row.file_path.removeprefix("file:"))
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "object_url")
            if any(chunk.statistics.min <= url <= chunk.statistics.max for url in urls):
                column += chunk.total_compressed_size
    return f"; {column:,} bytes of urls scanned, of {everything:,} in the table"


if __name__ == "__main__":
    arguments = [int(text) for text in sys.argv[1:]]
    main(*(arguments or [20_000, 1_000]))
