"""The first copy of a captured table into Iceberg, against the SQL source's full load of the same table.

Both land in a new table that keeps the current rows (mode merge); the capture makes its slot and its publication, too.
Run: python bench/first_copy.py [ROWS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import psycopg
from full_load import make_table

from headwater.api import Pipeline, Project
from headwater.config.load import load_project
from headwater.services.stack.postgres import running_postgres

ROUNDS = 5  # and one more to warm up
SOURCES = {
    "full load": "sql: {{url: '{url}', table: orders, cursor: id}}",
    "first copy": "postgres: {{url: '{url}', tables: [orders], slot: copy_{number}}}",
}


def main(rows: int) -> None:
    with running_postgres() as server, tempfile.TemporaryDirectory() as work:
        url, folder = server.url(), Path(work)
        make_table(url, "orders", rows)
        (folder / "headwater.yaml").write_text("spark: {memory: 3g}\n")
        with Project(load_project(folder), folder) as project:
            print(f"{rows:,} rows × 7 columns into Iceberg, warm, median of {ROUNDS}")
            times: dict[str, list[float]] = {name: [] for name in SOURCES}
            for number in range(ROUNDS + 1):
                for name in list(SOURCES)[:: 1 if number % 2 else -1]:
                    pipeline = new_pipeline(project, folder, url, name, number)
                    began = time.monotonic()
                    landed(pipeline)
                    times[name].append(time.monotonic() - began)
                    print(f"  {name:<11} {times[name][-1]:6.2f} s", flush=True)
                drop_slot(url, f"copy_{number}")
    usual = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
    for name, seconds in usual.items():
        print(f"{name:<11} {seconds:6.2f} s, {rows / seconds:,.0f} rows per second")
    print(f"first copy / full load  {usual['first copy'] / usual['full load']:.2f} ×   (about 1)")


def new_pipeline(project: Project, folder: Path, url: str, source_name: str, number: int) -> Pipeline:
    name = f"{source_name.replace(' ', '_')}_{number}"
    path = folder / f"{name}.yaml"
    source = SOURCES[source_name].format(url=url, number=number)
    key = ", key: [id]" if source_name == "full load" else ""
    path.write_text(
        f"pipeline: {name}\nsource: {{{source}}}\nsinks: [{{iceberg: {{table: lake.bench.{name}, mode: merge{key}}}}}]\n"
    )
    return project.pipelines([path])[0]


def landed(pipeline: Pipeline) -> None:
    while (result := pipeline.run_once()).outcome == "landed" and result.more:
        pass
    if result.error:
        raise result.error


def drop_slot(url: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(%s)", [name])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3_000_000)
