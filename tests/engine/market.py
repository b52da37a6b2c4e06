"""Three tables of one database in one pipeline, of which one can be made so that its lake refuses it."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pyarrow.parquet as pq

from headwater.api import Project
from headwater.config.load import load_project
from headwater.engine.result import CycleResult
from headwater.model.progress import HistoryEntry, Progress
from headwater.testing.crashes import expire_lease, lend
from tests.support.warm_processes import warm_programs

CHILD = Path(__file__).parents[1] / "support" / "cycle_child.py"
TABLES = ("apples", "bread", "cheese")
POISONED = "bread"


@dataclass(frozen=True)
class Market:
    """Rows are only added; each has to land once in the files and once in the lake."""

    database: str
    folder: Path
    namespace: str
    spark: object

    def build(self) -> Market:
        with psycopg.connect(self.database) as connection:
            for table in TABLES:
                connection.execute(
                    f"CREATE TABLE {table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text)"
                )
        (self.folder / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
        (self.folder / "market.yaml").write_text(f"""
pipeline: market
lease: 2s
source:
  sql: {{url: "{self.database}", tables: [{", ".join(TABLES)}], cursor: id}}
sinks:
  - files: {{path: ./files}}
  - iceberg: {{table: "{self.namespace}.{{table}}"}}
""")
        return self

    def insert(self, count: int) -> None:
        with psycopg.connect(self.database) as connection:
            for table in TABLES:
                connection.execute(f"INSERT INTO {table} (note) SELECT n::text FROM generate_series(1, %s) n", [count])

    def poison(self) -> None:
        """Files take any column; a table of numbers takes no texts."""
        self._alter("RENAME COLUMN note TO kept", "ADD COLUMN note bigint")

    def mend(self) -> None:
        self._alter("DROP COLUMN note", "RENAME COLUMN kept TO note")

    def _alter(self, *steps: str) -> None:
        for step in steps:
            self.spark.sql(f"ALTER TABLE {self.namespace}.bread {step}")

    def expected(self, table: str) -> Counter:
        with psycopg.connect(self.database) as connection:
            return Counter(connection.execute(f"SELECT id, note::text FROM {table}").fetchall())

    def in_lake(self, table: str) -> Counter:
        found = self.spark.sql(f"SELECT id, note FROM {self.namespace}.{table}").collect()
        return Counter((row.id, str(row.note)) for row in found)

    def in_files(self, table: str) -> Counter:
        published = [
            path
            for path in (self.folder / "files").rglob("*.parquet")
            if table in str(path) and not any(part.startswith(".") for part in path.parts)
        ]
        rows = [row for path in published for row in pq.read_table(path).to_pylist()]
        return Counter((row["id"], str(row["note"])) for row in rows)

    def run(self) -> CycleResult:
        """One cycle; a dead process's lease has run out."""
        with Project(load_project(self.folder), self.folder, spark=self.spark) as project:
            pipeline = project.pipelines([self.folder / "market.yaml"])[0]
            result = pipeline.run_once()
            if result.error and result.error.code == "lease-held":
                expire_lease(self.folder, "market")
                result = pipeline.run_once()
        return result

    def killed(self, fault: str) -> tuple[int, str]:
        """One cycle in a process of its own; gives its exit code."""
        child = subprocess.run(
            [warm_programs().child, str(CHILD), str(self.folder / "market.yaml")],
            env={**os.environ, **lend(self.spark), "HEADWATER_FAULT": fault},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return child.returncode, child.stderr

    def progress(self) -> Progress:
        with Project(load_project(self.folder), self.folder, spark=self.spark) as project:
            return project.store.load("market")

    def history(self) -> list[HistoryEntry]:
        with Project(load_project(self.folder), self.folder, spark=self.spark) as project:
            return list(project.store.history("market", 50))
