"""A folder that objects arrive in, some of them damaged, a pipeline over it, and the oracle of what must have landed."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from headwater.api import Project
from headwater.config.load import load_project
from headwater.engine.operations.replay import Replayed
from headwater.engine.result import CycleResult
from headwater.testing.crashes import expire_lease, lend
from tests.support.warm_processes import warm_programs

CHILD = Path(__file__).parent / "object_child.py"
Row = tuple[str, int]


class Arrivals:
    """Writes objects, and remembers what the table must hold."""

    def __init__(self, folder: Path, table: str, mode: str, seed: int = 1) -> None:
        self.folder, self.table, self.mode = folder, table, mode
        self.inbox = folder / "in"
        self.inbox.mkdir()
        self._random, self._number = random.Random(seed), 0
        self.good: dict[str, list[int]] = {}
        self.landed: Counter[Row] = Counter()  # of append: every version that was there when a cycle looked
        self.damaged: set[str] = set()
        (folder / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
        (folder / "objects.yaml").write_text(f"""
pipeline: objects
lease: 2s
source:
  objects: {{url: ./in, format: json, schema: "n bigint", tries: 2, retry_after: 0s, max_objects: 40}}
sinks:
  - iceberg: {{table: {table}, mode: {mode}}}
""")

    def add(self, count: int, damaged: int = 0) -> None:
        """New objects; so many of them cannot be read."""
        for place in range(count):
            self._number += 1
            name = f"{self._random.randrange(10)}/{self._number:06d}.jsonl.gz"
            if place < damaged:
                self._put(name, gzip.compress(b'{"n": 1}\n' * 50)[:-10])
                self.damaged.add(name)
            else:
                self._write(name)

    def update(self, count: int) -> None:
        for name in self._random.sample(sorted(self.good), count):
            self._write(name)

    def mend(self) -> None:
        for name in sorted(self.damaged):
            self._write(name)
        self.damaged.clear()

    def _write(self, name: str) -> None:
        rows = [self._random.randrange(1 << 40) for _ in range(self._random.randrange(4))]
        self._put(name, gzip.compress("".join(f"{json.dumps({'n': n})}\n" for n in rows).encode()))
        self.good[name] = rows
        self.landed += Counter((name, n) for n in rows)

    def _put(self, name: str, content: bytes) -> None:
        path = self.inbox / name
        path.parent.mkdir(exist_ok=True)
        temporary = self.inbox / f".{path.name}"
        temporary.write_bytes(content)
        temporary.replace(path)

    def expected(self) -> Counter[Row]:
        if self.mode == "append":
            return self.landed
        return Counter((name, n) for name, rows in self.good.items() for n in rows)

    def in_lake(self, spark) -> Counter[Row]:
        prefix = f"file://{self.inbox}/"
        rows = spark.sql(f"SELECT object_url, n FROM {self.table}").collect()
        return Counter((row.object_url.removeprefix(prefix), row.n) for row in rows)

    def aside(self, spark) -> Counter[str]:
        if not spark.catalog.tableExists(f"{self.table}__rejects"):
            return Counter()
        prefix = f"file://{self.inbox}/"
        rows = spark.sql(f"SELECT object FROM {self.table}__rejects").collect()
        return Counter(row.object.removeprefix(prefix) for row in rows)

    @property
    def path(self) -> Path:
        return self.folder / "objects.yaml"

    def project(self, spark=None) -> Project:
        return Project(load_project(self.folder), self.folder, spark=spark)

    def run(self, spark) -> CycleResult:
        with self.project(spark) as project:
            return project.pipelines([self.path])[0].run_once()

    def replay(self, spark) -> Replayed:
        with self.project(spark) as project:
            pipeline = project.pipelines([self.path])[0]
            return pipeline.replay(pipeline.rejects())

    def rewind(self, to: str) -> None:
        with self.project() as project:
            project.pipelines([self.path])[0].rewind(to, why="a test")

    def run_to_the_end(self, spark) -> None:
        """Until nothing is new; a dead process's lease has run out."""
        while True:
            result = self.run(spark)
            if result.outcome == "nothing new":
                return
            if result.error and result.error.code == "lease-held":
                expire_lease(self.folder, "objects")
            elif result.error:
                raise result.error

    def start_child(self, spark, fault: str = "") -> subprocess.Popen[str]:
        environment = {**os.environ, **lend(spark), "HEADWATER_FAULT": fault}
        return subprocess.Popen(
            [warm_programs().child if fault else sys.executable, str(CHILD), str(self.path)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def standings(self) -> Counter[str]:
        """How many objects there are of each standing."""
        with self.project() as project, project.pipelines([self.path])[0].bookmarks() as desk:
            return Counter({standing: objects for standing, (objects, _) in desk.count().items() if objects})

    def check(self, spark) -> None:
        assert self.in_lake(spark) == self.expected()
        assert set(self.aside(spark)) == self.damaged
        expected = Counter({"landed": len(self.good), "aside": len(self.damaged)})
        assert self.standings() == +expected
