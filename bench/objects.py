"""JSON-lines objects into Iceberg, from local disk and from S3, against spark.read.json and against plain processes.

20,000 objects of 10 KB, a given schema, warm sessions. Floor: two plain Python processes that parse the files with pyarrow
into Parquet, each half of them. Afterwards an idle run of the same folder, in a process of its own.
Run: python bench/objects.py [OBJECTS] [local|s3 …]
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from headwater.api import Project
from headwater.config.load import load_project
from headwater.config.project import S3Settings
from headwater.services.jars import JarSet, ensure_jars
from headwater.services.stack.s3 import S3, client
from headwater.services.stack.service import running
from headwater.storage.s3.bucket import s3_store
from headwater.storage.s3.credentials import find_access

SCHEMA = "id bigint, at timestamp, customer string, amount double, tags array<string>, note string"
SIZE = 10_000
ROUNDS = {"local": 8, "s3": 3}
PAUSE_SECONDS = 2  # what the JVM compiles after one job is not for the next one to pay


def main(objects: int, stores: list[str]) -> None:
    with tempfile.TemporaryDirectory() as work, ExitStack() as stack:
        folder = Path(work)
        contents = [content(number) for number in range(objects)]
        rows = sum(text.count(b"\n") for text in contents)
        print(f"{objects:,} objects of {SIZE:,} bytes, {rows:,} rows; best of several rounds", flush=True)
        for store_name in stores:
            url, settings, spark_path = prepare(store_name, folder, contents, stack)
            run_store(store_name, folder, url=url, settings=settings, spark_path=spark_path)


def run_store(store_name: str, folder: Path, *, url: str, settings: dict, spark_path: str) -> None:
    home = folder / store_name
    home.mkdir()
    (home / "headwater.yaml").write_text(json.dumps(settings))
    with Project(load_project(home), home) as project, ProcessPoolExecutor(2) as pool:
        best: dict[str, float] = {}
        for number in range(ROUNDS[store_name]):
            jobs = [("headwater", lambda n=number: headwater(project, home, url, n))]
            jobs += [("spark.read.json", lambda n=number: plain_spark(project.session(), spark_path, n))]
            where = spark_path if store_name == "local" else settings["s3"]
            jobs.append(("two processes", lambda where=where: list(pool.map(parse_half, [(where, 0), (where, 1)]))))
            for name, work in jobs:
                time.sleep(PAUSE_SECONDS)
                began = time.monotonic()
                work()
                seconds = time.monotonic() - began
                best[name] = min(best.get(name, seconds), seconds)
                print(f"  {store_name} {name:<16} {seconds:6.2f} s", flush=True)
    print(f"{store_name}: spark.read.json / headwater {best['spark.read.json'] / best['headwater']:.1f} × (at least 5)")
    print(f"{store_name}: headwater / two processes   {best['headwater'] / best['two processes']:.2f} × (at most 1.4)")
    for _ in range(2):
        began = time.monotonic()
        command = [sys.executable, "-m", "headwater.cli.main", "run", str(home / "load_0.yaml"), "--once", "--json"]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        print(
            f"{store_name}: idle run {time.monotonic() - began:.2f} s (below 1.5): {json.loads(process.stdout)['outcome']}"
        )


def headwater(project: Project, home: Path, url: str, number: int) -> None:
    path = home / f"load_{number}.yaml"
    path.write_text(f"""
pipeline: load_{number}
source: {{objects: {{url: "{url}", format: json, schema: "{SCHEMA}"}}}}
sinks: [{{iceberg: {{table: lake.bench.load_{number}}}}}]
""")
    pipeline = project.pipelines([path])[0]
    while (result := pipeline.run_once()).outcome == "landed":
        if not result.more:
            return
    raise result.error or RuntimeError(result.outcome)


def plain_spark(spark, path: str, number: int) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
    table = f"lake.bench.plain_{number}"
    spark.sql(f"CREATE TABLE {table} ({SCHEMA}) USING iceberg")
    spark.read.schema(SCHEMA).json(path).writeTo(table).append()


def parse_half(job: tuple[str | dict, int]) -> None:
    import pyarrow.json as pj
    import pyarrow.parquet as pq

    where, half = job
    files, read_all = local_files(where) if isinstance(where, str) else s3_files(where)
    files = files[half::2]
    kinds = {"at": pa.timestamp("us", "UTC"), "tags": pa.list_(pa.string()), "id": pa.int64(), "amount": pa.float64()}
    names = ["id", "at", "customer", "amount", "tags", "note"]
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in names])
    with (
        tempfile.TemporaryDirectory() as out,
        pq.ParquetWriter(f"{out}/x.parquet", schema, compression="zstd") as writer,
    ):
        for begin in range(0, len(files), 800):
            joined = b"".join(read_all(files[begin : begin + 800]))
            options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
            read = pj.ReadOptions(use_threads=False, block_size=8 << 20)
            writer.write_table(pj.read_json(io.BytesIO(joined), read_options=read, parse_options=options))


def local_files(folder: str) -> tuple[list, Callable[[list], Iterable[bytes]]]:
    return sorted(Path(folder).glob("*.jsonl")), lambda paths: (path.read_bytes() for path in paths)


def s3_files(access: dict) -> tuple[list, Callable[[list], Iterable[bytes]]]:
    """By Arrow's own client, as many at once as it has threads."""
    store, threads = client(access), ThreadPoolExecutor(16)

    def read(path: str) -> bytes:
        with store.open_input_file(path) as file:
            return file.read()

    infos = store.get_file_info(fs.FileSelector("bench"))
    return sorted(one.path for one in infos), lambda paths: threads.map(read, paths)


def content(number: int) -> bytes:
    chance, lines, size = random.Random(number), [], 0  # noqa: S311 - no secrets
    while size < SIZE:
        row = {
            "id": number * 1000 + len(lines),
            "at": f"2026-03-02T08:00:{len(lines) % 60:02d}Z",
            "customer": f"customer {chance.randrange(100_000)}",
            "amount": chance.randrange(10**6) / 100,
            "tags": ["a", "b", "c"][: chance.randrange(4)],
            "note": "lorem ipsum dolor sit amet " * chance.randrange(4),
        }
        lines.append(json.dumps(row))
        size += len(lines[-1]) + 1
    return ("\n".join(lines) + "\n").encode()


def prepare(store_name: str, folder: Path, contents: list[bytes], stack: ExitStack) -> tuple[str, dict, str]:
    """The source's url, headwater.yaml, and the path for Spark."""
    if store_name == "local":
        inbox = folder / "in"
        inbox.mkdir()
        for number, text in enumerate(contents):
            (inbox / f"{number:06d}.jsonl").write_bytes(text)
        return str(inbox), {"spark": {"memory": "3g"}}, str(inbox)
    server = stack.enter_context(running(S3(keep_alive=True), folder / "server"))
    access = server.address
    client(access).create_dir("bench")
    ours = {name: access[name] for name in ("endpoint", "region", "access_key", "secret_key")}
    bucket = s3_store(find_access("bench", S3Settings.model_validate(ours)))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda job: bucket.put(f"{job[0]:06d}.jsonl", job[1]), enumerate(contents)))
    jars = [*ensure_jars(print), *ensure_jars(print, JarSet.s3a)]
    conf = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.hadoop.fs.s3a.endpoint": access["endpoint"],
        "spark.hadoop.fs.s3a.endpoint.region": access["region"],
        "spark.hadoop.fs.s3a.access.key": access["access_key"],
        "spark.hadoop.fs.s3a.secret.key": access["secret_key"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
    return "s3://bench/", {"s3": ours, "spark": {"memory": "3g", "conf": conf}}, "s3a://bench/"


if __name__ == "__main__":
    count = sys.argv[1] if len(sys.argv) > 1 else "20000"
    names = sys.argv[2:] or ["local", "s3"]
    if len(names) == 1:
        main(int(count), names)
    for store_name in names if len(names) > 1 else ():  # each in a process of its own: a JVM keeps its class path
        subprocess.run([sys.executable, __file__, count, store_name], check=True)
