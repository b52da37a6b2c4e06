"""A shop in PostgreSQL, a pipeline over it, and the plain-Python oracle of what must have landed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pyarrow.parquet as pq

from headwater.api import Project
from headwater.config.load import load_project
from headwater.engine.result import CycleResult
from headwater.testing.crashes import expire_lease, lend
from tests.support.warm_processes import warm_programs

CHILD = Path(__file__).parents[1] / "support" / "cycle_child.py"


@dataclass(frozen=True)
class Shop:
    """The source, the pipeline's folder and the table it lands in."""

    database: str
    folder: Path
    table: str
    mode: str

    @classmethod
    def build(
        cls, database: str, folder: Path, table: str, mode: str, *, url: str | None = None, progress: str | None = None
    ) -> Shop:
        with psycopg.connect(database) as connection:
            connection.execute("""
                CREATE TABLE orders (
                    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
                    amount numeric(12,2) NOT NULL,
                    note text)""")
        cursor = "id" if mode == "append" else "updated_at"
        progress = progress or "sqlite:///progress.db"
        (folder / "headwater.yaml").write_text(f"progress: {progress}\n")
        (folder / "orders.yaml").write_text(f"""
pipeline: orders
lease: 2s
source:
  sql: {{url: "{url or database}", table: public.orders, cursor: {cursor}}}
sinks:
  - files: {{path: ./files}}
  - iceberg: {{table: {table}, mode: {mode}}}
""")
        return cls(database, folder, table, mode)

    def insert(self, count: int) -> None:
        with psycopg.connect(self.database) as connection:
            connection.execute(
                "INSERT INTO orders (amount, note) SELECT n / 7.0, 'note ' || n FROM generate_series(1, %s) n", [count]
            )

    def update(self, below: int) -> None:
        """Change old rows; an append pipeline reads by id and is not meant to see it."""
        if self.mode == "merge":
            with psycopg.connect(self.database) as connection:
                connection.execute(
                    "UPDATE orders SET amount = amount + 1, updated_at = clock_timestamp() WHERE id <= %s", [below]
                )

    def expected(self) -> Counter:
        with psycopg.connect(self.database) as connection:
            return Counter(connection.execute("SELECT id, amount, note FROM orders").fetchall())

    def in_lake(self, spark) -> Counter:
        return Counter(tuple(row) for row in spark.sql(f"SELECT id, amount, note FROM {self.table}").collect())

    def in_files(self) -> Counter:
        published = [
            p for p in (self.folder / "files").rglob("*.parquet") if not any(x.startswith(".") for x in p.parts)
        ]
        rows = [row for path in published for row in pq.read_table(path).to_pylist()]
        return Counter((row["id"], row["amount"], row["note"]) for row in rows)

    def run(self, spark, faults=None) -> CycleResult:
        """One cycle in this process."""
        with Project(load_project(self.folder), self.folder, spark=spark, faults=faults) as project:
            return project.pipelines([self.folder / "orders.yaml"])[0].run_once()

    def run_until_leased(self, spark) -> CycleResult:
        """A cycle; the lease of a dead or frozen process has run out."""
        result = self.run(spark)
        if result.error and result.error.code == "lease-held":
            expire_lease(self.folder, "orders")
            result = self.run(spark)
        return result

    def start_child(self, spark, fault: str) -> subprocess.Popen[str]:
        """One cycle in a process of its own that fails at the named point."""
        environment = {**os.environ, **lend(spark), "HEADWATER_FAULT": fault}
        python = sys.executable if ":stop" in fault else warm_programs().child  # a stopped one is woken by its pid
        return subprocess.Popen(
            [python, str(CHILD), str(self.folder / "orders.yaml")],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def acknowledged(self) -> list[str]:
        path = self.folder / "acknowledged.txt"
        return path.read_text().splitlines() if path.exists() else []


def child_result(process: subprocess.Popen[str]) -> dict:
    out, errors = process.communicate(timeout=120)
    assert out, errors
    return json.loads(out.splitlines()[-1])
