"""A PostgreSQL table compared with its table in the lake, against the floor: both read to nowhere.

Floor: two connections that each COPY half of the table in binary and throw it away, then a scan of all columns of the
Iceberg table's Parquet files by two threads.
Run: python bench/verify.py [ROWS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import psycopg
import pyarrow.parquet as pq

from headwater.api import Pipeline, Project
from headwater.config.load import load_project
from headwater.services.stack.postgres import running_postgres

ROUNDS = 3


def main(rows: int) -> None:
    with running_postgres() as server, tempfile.TemporaryDirectory() as work, ProcessPoolExecutor(2) as pool:
        url, folder = server.url(), Path(work)
        make_table(url, rows)
        (folder / "headwater.yaml").write_text("spark: {memory: 3g}\n")
        (folder / "orders.yaml").write_text(f"""
pipeline: orders
source: {{sql: {{url: "{url}", table: public.orders, cursor: id}}}}
sinks: [iceberg: {{table: lake.bench.orders, mode: merge}}]
""")
        with Project(load_project(folder), folder) as project:
            pipeline = project.pipelines([folder / "orders.yaml"])[0]
            done = pipeline.run_once()
            assert done.rows == rows, done.error
            files = [
                Path(row[0].removeprefix("file:"))
                for row in project.session().sql("SELECT file_path FROM lake.bench.orders.files").collect()
            ]
            list(pool.map(warm_up, [url] * 2))
            print(f"{rows:,} rows × 7 columns, median of {ROUNDS}, warm sessions")
            times: dict[str, list[float]] = {"copy": [], "scan": [], "verify": []}
            for number in range(ROUNDS + 1):
                for name, act in (
                    ("copy", lambda: list(pool.map(copy_half, [(url, 0), (url, 1)]))),
                    ("scan", lambda: scan(files)),
                    ("verify", lambda: equal(pipeline, rows)),
                ):
                    began = time.monotonic()
                    act()
                    seconds = time.monotonic() - began
                    print(f"  {name:<7} {seconds:6.2f} s", flush=True)
                    if number:
                        times[name].append(seconds)
            copy, scanned, verified = (statistics.median(times[name]) for name in times)
            print(f"floor   {copy + scanned:.2f} s (copy {copy:.2f}, scan {scanned:.2f})")
            print(f"verify  {verified:.2f} s, {rows / verified:,.0f} rows a second on both sides")
            print(f"verify / floor  {verified / (copy + scanned):.2f} ×")
            find_and_repair(project, pipeline)


def equal(pipeline: Pipeline, rows: int) -> None:
    verified = pipeline.verify()
    assert verified.is_equal
    assert verified.tables[0].source_rows == rows


def find_and_repair(project: Project, pipeline: Pipeline) -> None:
    """What the second look costs, and a repair of a few rows."""
    project.session().sql("UPDATE lake.bench.orders SET note = 'wrong' WHERE id IN (1000, 1000000, 2000000)")
    began = time.monotonic()
    report = pipeline.verify()
    print(f"three wrong rows: found in {time.monotonic() - began:.2f} s ({report.tables[0].counts})")
    began = time.monotonic()
    repaired = pipeline.verify(repair=lambda _: True)
    print(f"found and repaired in {time.monotonic() - began:.2f} s ({repaired.repaired[0].landed} rows landed)")


def copy_half(job: tuple[str, int]) -> None:
    url, half = job
    with psycopg.connect(url) as connection:
        (pages,) = connection.execute("SELECT pg_relation_size('orders') / 8192").fetchone()
        low, high = ("(0,0)", f"({pages // 2},0)") if half == 0 else (f"({pages // 2},0)", "(4294967295,0)")
        query = f"COPY (SELECT * FROM orders WHERE ctid >= '{low}' AND ctid < '{high}') TO STDOUT (FORMAT binary)"
        with connection.cursor() as cursor, cursor.copy(query) as copy:
            for _ in copy:
                pass


def scan(files: list[Path]) -> None:
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda file: pq.read_table(file, use_threads=False), files))


def warm_up(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("SELECT count(*) FROM orders")


def make_table(url: str, rows: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text,
               amount numeric(12,2), updated_at timestamptz DEFAULT now(), flag boolean, note text, payload jsonb)"""
        )
        connection.execute(
            """INSERT INTO orders (customer, amount, updated_at, flag, note, payload)
               SELECT 'cust-' || n %% 999983, (n %% 1000000) / 100.0, now() - n * interval '1 second', n %% 2 = 0,
                      'note for row ' || n || ' lorem ipsum dolo', jsonb_build_object('k', n, 'v', 'payload')
               FROM generate_series(1, %s) n""",
            [rows],
        )
        connection.execute("VACUUM ANALYZE orders")


if __name__ == "__main__":
    main(int(sys.argv[1].replace(",", "")) if len(sys.argv) > 1 else 3_000_000)
