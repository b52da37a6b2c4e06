"""PostgreSQL over TLS beside plain connections: a full load, and a slot's changes, in processor seconds of the client.

The client is this process and all that it started (Spark's JVM, Python workers); the server is not. Both ways read the
same tables of the same server in turn. Needs a PostgreSQL server with TLS (Debian: apt-get install postgresql).
Run: python bench/tls.py [ROWS] [CHANGES]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
from captured_orders import change_orders, make_orders
from full_load import make_table

from headwater.api import Pipeline, Project
from headwater.config.load import load_project
from headwater.testing.servers import TlsPostgres, running_tls_postgres

ROUNDS = 5  # and one more to warm up
MODES = ("plain", "tls")
MOST = 1.3


def main(rows: int, changes: int) -> None:
    with running_tls_postgres({"max_wal_size": "16GB"}) as server, tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        (folder / "headwater.yaml").write_text("spark: {memory: 3g}\n")
        make_table(server.plain_url(), "loaded", rows)
        make_orders(server.plain_url(), "captured", changes // 2)
        with Project(load_project(folder), folder) as project:
            bench = Bench(project, folder, server, changes)
            print(f"processor seconds of the client, {rows:,} rows and {changes:,} changes, median of {ROUNDS}")
            for name, once in (("full load", bench.full_load), ("slot", bench.slot)):
                times: dict[str, list[float]] = {tls_mode: [] for tls_mode in MODES}
                for number in range(ROUNDS + 1):
                    for tls_mode, seconds in once(number).items():
                        times[tls_mode].append(seconds)
                        print(f"  {name:<10} {tls_mode:<6} {seconds:6.2f} s", flush=True)
                plain, tls = (statistics.median(times[tls_mode][1:]) for tls_mode in MODES)
                print(
                    f"{name}: plain {plain:.2f} s, TLS {tls:.2f} s, TLS / plain {tls / plain:.2f} ×   (at most {MOST})"
                )


@dataclass
class Bench:
    """Each round takes both ways, in turns of who begins."""

    project: Project
    folder: Path
    server: TlsPostgres
    changes: int

    def full_load(self, number: int) -> dict[str, float]:
        pipelines = {
            tls_mode: self.new_pipeline(
                f"load_{tls_mode}_{number}", f"sql: {{url: '{url}', table: public.loaded, cursor: id}}", "append"
            )
            for tls_mode, url in self.urls(number).items()
        }
        return {tls_mode: processor_seconds(pipeline) for tls_mode, pipeline in pipelines.items()}

    def slot(self, number: int) -> dict[str, float]:
        """The same changes from two slots; the table is copied before."""
        pipelines, first = {}, self.changes * (number + 1)
        for tls_mode, url in self.urls(number).items():
            source = f"postgres: {{url: '{url}', tables: [public.captured], slot: {tls_mode}_{number}, window: 4GB}}"
            pipelines[tls_mode] = self.new_pipeline(f"slot_{tls_mode}_{number}", source, "merge")
            processor_seconds(pipelines[tls_mode])
        change_orders(self.server.plain_url(), "captured", self.changes // 2, self.changes, first)
        times = {tls_mode: processor_seconds(pipeline) for tls_mode, pipeline in pipelines.items()}
        with psycopg.connect(self.server.plain_url(), autocommit=True) as connection:
            connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
        return times

    def urls(self, number: int) -> dict[str, str]:
        urls = {"plain": self.server.plain_url(), "tls": self.server.url()}
        return {tls_mode: urls[tls_mode] for tls_mode in MODES[:: 1 if number % 2 else -1]}

    def new_pipeline(self, name: str, source: str, mode: str) -> Pipeline:
        path = self.folder / f"{name}.yaml"
        path.write_text(
            f"pipeline: {name}\nsource: {{{source}}}\nsinks: [{{iceberg: {{table: lake.bench.{name}, mode: {mode}}}}}]\n"
        )
        return self.project.pipelines([path])[0]


def processor_seconds(pipeline: Pipeline) -> float:
    """Until nothing is new."""
    before = client_seconds()
    while (result := pipeline.run_once()).outcome == "landed":
        pass
    if result.error:
        raise result.error
    return client_seconds() - before


def client_seconds() -> float:
    """Of this process and those below it, but for the server."""
    return sum(map(used_seconds, (psutil.Process(), *psutil.Process().children(recursive=True))))


def used_seconds(process: psutil.Process) -> float:
    try:
        if process.name() == "postgres":
            return 0.0
        used = process.cpu_times()
    except psutil.NoSuchProcess:  # its seconds are its parent's now
        return 0.0
    return used.user + used.system + used.children_user + used.children_system


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    main(*numbers, *(3_000_000, 500_000)[len(numbers) :])
