"""Changes straight from PostgreSQL's slot into Iceberg, against Debezium's embedded engine receiving them into nothing.

    python bench/postgres_changes.py [--changes 1000000] [--rows 1000000] [--latency 30]

Both read the same changes, from slots of their own, in one run on one machine. Debezium's time is from its first batch to
its last; Headwater's is whole cycles of a warm engine, from the slot to committed tables.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg
from captured_orders import change_orders, digest, make_orders

from headwater.api import Pipeline, Project
from headwater.config.load import load_project
from headwater.model.position.marks import LsnMark
from headwater.model.progress import Lease
from headwater.model.protocols.source import Claim
from headwater.services.stack.postgres import running_postgres
from headwater.sources.open import open_source

SINKS = {
    "merge": "[iceberg: {table: 'lake.bench.{stream}_KIND', mode: merge}]",
    "changes and merge": "[iceberg: {table: 'lake.bench.{stream}_KIND_log', mode: changes}, iceberg: {table: 'lake.bench.{stream}_KIND', mode: merge}]",
}
LEASE = Lease("bench", "bench", 1, dt.datetime.now(dt.UTC), 60)
WARM_ROWS, WARM_CHANGES = 50_000, 100_000


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--changes", type=int, default=1_000_000)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--latency", type=int, default=30, help="seconds of 500 changes a second; 0: none")
    arguments.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True)
    options = arguments.parse_args()
    with running_postgres({"max_wal_size": "16GB"}) as server, tempfile.TemporaryDirectory() as work:
        folder, url = Path(work), server.url()
        (folder / "headwater.yaml").write_text("spark: {memory: 3g}\n")
        with Project(load_project(folder), folder) as project:
            run(project, folder, url, options)


def run(project: Project, folder: Path, url: str, options: argparse.Namespace) -> None:
    make_orders(url, "warm", WARM_ROWS)
    make_orders(url, "orders", options.rows)
    pipelines = {sink: captured(project, folder, url, "orders", sink) for sink in SINKS}
    warm = {sink: captured(project, folder, url, "warm", sink) for sink in SINKS}
    for pipeline in warm.values():
        caught_up(pipeline)
    change_orders(url, "warm", WARM_ROWS, WARM_CHANGES, WARM_ROWS + 1)
    for pipeline in warm.values():
        caught_up(pipeline)
    for sink, pipeline in pipelines.items():
        seconds = caught_up(pipeline)
        print(
            f"first copy of {options.rows:,} rows, {sink}: {seconds:.2f} s, {options.rows / seconds:,.0f} rows/s",
            flush=True,
        )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE PUBLICATION peer FOR TABLE orders")
        connection.execute("SELECT pg_create_logical_replication_slot('peer', 'pgoutput')")
    began = time.monotonic()
    change_orders(url, "orders", options.rows, options.changes, options.rows + 1)
    print(f"{options.changes:,} changes written in {time.monotonic() - began:.1f} s", flush=True)
    changes, seconds = decoding(pipelines["merge"])
    rates = {"reading and decoding": changes / seconds}
    for sink, pipeline in pipelines.items():
        rates[sink] = changes / caught_up(pipeline)
        name = f"lake.bench.orders_{word(sink)}"
        row = project.session().sql(f"SELECT count(*), sum(id), cast(sum(amount) AS string) FROM {name}").first()
        assert tuple(row) == digest(url, "orders"), (tuple(row), digest(url, "orders"))
    peer = debezium(url, changes, folder) if options.peer else None
    for what, rate in rates.items():
        against = f"   {rate / peer:5.1f} × Debezium" if peer else ""
        print(f"{what:<22} {rate:>10,.0f} changes/s{against}")
    if peer:
        print(f"{'Debezium, into nothing':<22} {peer:>10,.0f} changes/s")
    quiet(pipelines["merge"])
    if options.latency:
        latency(pipelines["merge"], url, options.latency)


def captured(project: Project, folder: Path, url: str, table: str, sink: str) -> Pipeline:
    name = f"{table}_{word(sink)}"
    sinks = SINKS[sink].replace("KIND", word(sink))
    (folder / f"{name}.yaml").write_text(
        f"pipeline: {name}\nsource:\n  postgres: {{url: '{url}', tables: [public.{table}], slot: {name}, window: 4GB}}\nsinks: {sinks}\n"
    )
    return project.pipelines([folder / f"{name}.yaml"])[0]


def word(sink: str) -> str:
    return sink.replace(" ", "_")


def caught_up(pipeline: Pipeline) -> float:
    """Seconds until nothing is new; each cycle is printed."""
    began = time.monotonic()
    while True:
        result = pipeline.run_once()
        if result.error:
            raise result.error
        if result.outcome == "nothing new":
            return time.monotonic() - began
        shares = ", ".join(f"{landing.sink} {landing.seconds:.2f} s" for landing in result.landings)
        print(
            f"    {pipeline.name}: {sum(x.rows for x in result.landings):,} rows in {result.seconds:.2f} s ({shares})",
            flush=True,
        )


def decoding(pipeline: Pipeline) -> tuple[int, float]:
    """Changes and seconds: the slot read and decoded into typed Arrow, in this process, without landing it."""
    source = open_source(pipeline.settings.source, pipeline.folder, 2)
    began = time.monotonic()
    plan = source.plan(pipeline.progress().mark)
    seconds = time.monotonic() - began
    changes = sum(stream.rows or 0 for stream in plan.streams)
    print(f"    read and decoded {changes:,} changes in {seconds:.2f} s", flush=True)
    source.close()
    return changes, seconds


def debezium(url: str, changes: int, folder: Path) -> float:
    port = url.rpartition(":")[2].partition("/")[0]
    command = [sys.executable, str(Path(__file__).with_name("debezium_receiver.py")), port, "peer", "peer"]
    process = subprocess.run(
        [*command, str(changes), str(folder)], capture_output=True, text=True, check=True, cwd=folder
    )
    answer = json.loads(next(line for line in process.stdout.splitlines() if line.startswith("{")))
    print(f"    Debezium: {answer['count']:,} events in {answer['seconds']:.1f} s", flush=True)
    return float(answer["rate"])


def quiet(pipeline: Pipeline) -> None:
    """A poll that finds nothing, in a running engine."""
    source = open_source(pipeline.settings.source, pipeline.folder, 2)
    mark, times = pipeline.progress().mark, []
    source.plan(mark, claim=Claim(LEASE, "quiet"))  # the first one connects
    for _ in range(50):
        began = time.monotonic()
        plan = source.plan(mark, claim=Claim(LEASE, "quiet"))
        assert plan.window is None, plan
        times.append(time.monotonic() - began)
    source.close()
    print(f"a quiet poll: median {sorted(times)[25] * 1000:.1f} ms, worst {max(times) * 1000:.1f} ms (below 50)")


def latency(pipeline: Pipeline, url: str, seconds: int) -> None:
    """From commit to a row that can be queried, at 500 changes a second, ten to a transaction."""
    commits: list[float] = []
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            number, due = 0, time.monotonic()
            while not stop.is_set():
                connection.execute(
                    "UPDATE orders SET amount = amount + 1 WHERE id = ANY(ARRAY(SELECT 1 + (%s + n) * 7 %% 900000 FROM generate_series(0, 9) AS n))",
                    [number * 10],
                )
                commits.append(time.time())
                number, due = number + 1, due + 0.02
                stop.wait(max(due - time.monotonic(), 0))

    writer = threading.Thread(target=write)
    writer.start()
    began, times, cycles, landings, seen = time.monotonic(), [], [], [], 0
    while time.monotonic() - began < seconds:
        result = pipeline.run_once()
        if result.error:
            raise result.error
        landed, mark = time.time(), pipeline.progress().mark
        assert isinstance(mark, LsnMark)
        assert mark.commit
        upto = mark.commit.time / 1e6
        cycles.append(result.seconds)
        landings.append(sum(landing.seconds for landing in result.landings))
        while seen < len(commits) and commits[seen] <= upto + 0.001:
            times.append(landed - commits[seen])
            seen += 1
    stop.set()
    writer.join()
    usual = sorted(times[len(times) // 10 :])
    print(
        f"latency at 500 changes/s: p50 {usual[len(usual) // 2]:.2f} s, p99 {usual[len(usual) * 99 // 100]:.2f} s; "
        f"a cycle takes {statistics.median(cycles):.2f} s, {statistics.median(landings):.2f} s of it the landing; "
        "the rest is peeking and decoding, the intent, the mark and the acknowledgement"
    )


if __name__ == "__main__":
    main()
