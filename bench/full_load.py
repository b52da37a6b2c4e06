"""First full load of a PostgreSQL table into Iceberg, against the floor and against Spark's JDBC reader.

Floor: two plain Python processes that each copy half of the table by ADBC into Parquet.
Run: python bench/full_load.py [ROWS]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import psutil
import psycopg

from headwater.api import Project
from headwater.config.load import load_project
from headwater.services.stack.postgres import running_postgres

ROUNDS = 6  # and one more to warm up: the JVM compiles what it runs
PAUSE_SECONDS = 2  # what it compiles after one job is not for the next one to pay


def main(rows: int) -> None:
    with running_postgres() as server, tempfile.TemporaryDirectory() as work, ProcessPoolExecutor(2) as floor_pool:
        url, folder = server.url(), Path(work)
        make_table(url, "orders", rows)
        make_table(url, "small", 1_000)
        (folder / "headwater.yaml").write_text("spark: {memory: 3g}\n")
        write_pipeline(folder, url, "small", "warm")
        with Project(load_project(folder), folder) as project:
            project.pipelines([folder / "warm.yaml"])[0].run_once()
            jdbc(project.session(), url, "small", "lake.bench.jdbc_small")
            list(floor_pool.map(copy_range, [(url, "small", 0, None, str(folder / "warm.parquet"))] * 2))
            print(f"{rows:,} rows × 7 columns, median of {ROUNDS}, warm sessions on every side")
            times: dict[str, list[float]] = {}
            for round_number in range(ROUNDS + 1):
                for name, work_once in (
                    ("floor", lambda: floor(floor_pool, url, folder)),
                    ("headwater", lambda n=round_number: headwater(project, folder, url, n)),
                    (
                        "spark jdbc",
                        lambda n=round_number: jdbc(project.session(), url, "orders", f"lake.bench.jdbc_{n}"),
                    ),
                ):
                    seconds, memory = measured(work_once)
                    times.setdefault(name, []).append(seconds)
                    print(f"  {name:<11} {seconds:6.2f} s   largest Python worker {memory / 2**20:5.0f} MB", flush=True)
            usual = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
            print("  " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in usual.items()))
            print(f"headwater / floor       {usual['headwater'] / usual['floor']:.2f} ×   (at most 1.3)")
            print(f"spark jdbc / headwater  {usual['spark jdbc'] / usual['headwater']:.2f} ×   (at least 2)")


def headwater(project: Project, folder: Path, url: str, number: int) -> None:
    write_pipeline(folder, url, "orders", f"load_{number}")
    result = project.pipelines([folder / f"load_{number}.yaml"])[0].run_once()
    if result.error:
        raise result.error


def floor(pool: ProcessPoolExecutor, url: str, folder: Path) -> None:
    with psycopg.connect(url) as connection:
        (pages,) = connection.execute("SELECT pg_relation_size('orders') / 8192").fetchone()
    middle = pages // 2
    halves = [
        (url, "orders", 0, middle, str(folder / "a.parquet")),
        (url, "orders", middle, None, str(folder / "b.parquet")),
    ]
    list(pool.map(copy_range, halves))


def copy_range(job: tuple[str, str, int, int | None, str]) -> None:
    import adbc_driver_postgresql.dbapi as adbc
    import pyarrow.parquet as pq

    url, table, low, high, path = job
    bound = f" AND ctid < '({high},0)'::tid" if high is not None else ""
    with adbc.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(
            f"SELECT id, customer, amount, updated_at, flag, note, payload::text FROM {table} WHERE ctid >= '({low},0)'::tid{bound}"
        )
        reader = cursor.fetch_record_batch()
        with pq.ParquetWriter(path, reader.schema, compression="zstd", compression_level=1) as writer:
            for batch in reader:
                writer.write_batch(batch)


def jdbc(spark, url: str, table: str, target: str) -> None:
    address = url.replace("postgresql://postgres@", "jdbc:postgresql://")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
    with psycopg.connect(url) as connection:
        low, high = connection.execute(f"SELECT min(id), max(id) FROM {table}").fetchone()
    rows = (
        spark.read.format("jdbc")
        .options(url=address, user="postgres", dbtable=table, driver="org.postgresql.Driver", fetchsize=10_000)
        .options(partitionColumn="id", lowerBound=low, upperBound=high, numPartitions=4)
        .load()
    )
    rows.writeTo(target).using("iceberg").tableProperty("format-version", "3").createOrReplace()


def measured(work) -> tuple[float, int]:
    """Seconds, and the largest resident size that any Python worker had meanwhile, as Linux remembers it."""
    time.sleep(PAUSE_SECONDS)
    for process in python_workers():
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # forget the peak
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    return seconds, max((peak(process.pid) for process in python_workers()), default=0)


def python_workers() -> list[psutil.Process]:
    processes = psutil.process_iter(["name", "ppid"])  # one that ends meanwhile is left out
    here = {process.pid: process for process in processes}
    return [process for process in here.values() if "python" in process.info["name"] and is_ours(process, here)]


def is_ours(process: psutil.Process, here: dict[int, psutil.Process]) -> bool:
    above = process.info["ppid"]
    while above in here and above != os.getpid():
        above = here[above].info["ppid"]
    return above == os.getpid()


def peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def make_table(url: str, name: str, rows: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"""CREATE TABLE {name} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text, amount numeric(12,2),
                updated_at timestamptz DEFAULT now(), flag boolean, note text, payload jsonb)"""
        )
        connection.execute(
            f"""INSERT INTO {name} (customer, amount, updated_at, flag, note, payload)
                SELECT 'cust-' || n %% 999983, (n %% 1000000) / 100.0, now() - n * interval '1 second', n %% 2 = 0,
                       'note for row ' || n || ' lorem ipsum dolo', jsonb_build_object('k', n, 'v', 'payload') FROM generate_series(1, %s) n""",
            [rows],
        )
        connection.execute(f"VACUUM ANALYZE {name}")


def write_pipeline(folder: Path, url: str, table: str, name: str) -> None:
    (folder / f"{name}.yaml").write_text(f"""
pipeline: {name}
source: {{sql: {{url: "{url}", table: public.{table}, cursor: id}}}}
sinks: [{{iceberg: {{table: lake.bench.{name}}}}}]
""")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3_000_000)
