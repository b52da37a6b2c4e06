"""A project of a test's own: a store, a source, sinks; cycles here or in child processes; what landed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from headwater.api import Pipeline, Project
from headwater.engine.cycle import run_cycle
from headwater.engine.operations.replay import Replayed
from headwater.engine.result import CycleResult
from headwater.engine.verify.report import VerifyReport
from headwater.engine.verify.verify import VerifyRequest
from headwater.model.errors import HeadwaterError
from headwater.model.faults import Faults
from headwater.model.progress import HistoryEntry, Progress
from headwater.model.protocols.source import Source
from headwater.testing.crashes import expire_lease, lend
from tests.support.wait import wait_until
from tests.support.warm_processes import warm_programs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHILD = Path(__file__).with_name("child.py")
CHILD_SECONDS = 180
Component = Mapping[str, Mapping[str, Any]]  # {"sql": {"url": …, "table": …}}


class World:
    """One pipeline in a folder of its own; several worlds may share a folder, and with it the store.

    Every cycle opens the project anew, as another process would: it knows only what was stored. Without a Spark session
    neither the cycles nor the children may start a JVM.
    """

    def __init__(
        self,
        folder: Path,
        source: Component,
        sinks: Sequence[Component],
        *,
        name: str = "world",
        store: str = "sqlite:///progress.db",
        spark: SparkSession | None = None,
        project: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.folder, self.name, self.spark = folder, name, spark
        self.path = folder / f"{name}.yaml"
        self.settings = {"pipeline": name, "lease": "2s", "source": source, "sinks": sinks, **settings}
        self._children: list[Child] = []
        # Without a session of its own it may share the worker's, which has another lake.
        lake = {} if spark else {"lake": {"name": f"lake_{uuid.uuid4().hex[:10]}"}}
        (folder / "headwater.yaml").write_text(json.dumps({"progress": store, **lake, **(project or {})}))
        self.configure()

    def configure(self, *, source: Mapping[str, Any] | None = None, **settings: Any) -> None:
        """Write the pipeline's file; `source` has settings of the source as it is, all others replace what is there."""
        ((kind, now),) = self.settings["source"].items()
        self.settings |= {"source": {kind: {**now, **(source or {})}}, **settings}
        self.path.write_text(json.dumps(self.settings))

    # Cycles in this process

    @contextmanager
    def pipeline(self, faults: Faults | None = None) -> Iterator[Pipeline]:
        with Project.open(self.folder, spark=self.spark, faults=faults) as project:
            yield project.pipelines([self.path])[0]

    def run(self, faults: Faults | None = None, source: Source | None = None) -> CycleResult:
        """One cycle; over `source` instead of the one in the settings, where it is given."""
        with self.pipeline(faults) as pipeline, pipeline.opened() as opened:
            return run_cycle(replace(opened, source=source or opened.source))

    def run_after_crash(self) -> CycleResult:
        """One cycle; the lease of a dead or frozen process has run out."""
        result = self.run()
        if result.error and result.error.code == "lease-held":
            self.expire_lease()
            result = self.run()
        return result

    def catch_up(
        self, *, outage: Callable[[HeadwaterError], bool] = lambda _: False, seconds: float = 600
    ) -> list[CycleResult]:
        """Cycles until nothing is new, through crashes; raises errors but those that `outage` says will pass."""
        results: list[CycleResult] = []
        deadline = time.monotonic() + seconds
        with self.pipeline() as pipeline:
            while not results or results[-1].outcome != "nothing new":
                result = pipeline.run_once()
                if result.error and result.error.code == "lease-held":
                    self.expire_lease()
                elif result.error and not outage(result.error):
                    raise result.error
                else:
                    results.append(result)
                assert time.monotonic() < deadline, f"the pipeline did not catch up: {result}"
        return results

    def expire_lease(self) -> None:
        expire_lease(self.folder, self.name)

    # Child processes

    def start(self, mode: str = "cycle", fault: str = "", script: Path = CHILD) -> Child:
        """A process that runs in a mode of child.py, and dies or freezes at the fault point."""
        # A process that is killed or woken from outside needs a pid of its own, which warm ones do not have.
        python = warm_programs().child if ":kill" in fault else sys.executable
        jvm = lend(self.spark) if self.spark else {"JAVA_HOME": "/nonexistent"}
        child = Child(
            self.folder / f"{self.name}.child{len(self._children)}",
            [str(python), str(script), mode, str(self.path)],
            {**os.environ, **jvm, "HEADWATER_FAULT": fault},
        )
        self._children.append(child)
        return child

    def kill_at(self, fault: str, mode: str = "cycle") -> None:
        """A cycle in a process of its own that is killed at the point `fault` names."""
        child = self.start(mode, fault)
        assert child.wait() == -signal.SIGKILL, f"the point was not reached: {child.output}"

    def stop_children(self) -> None:
        """Let every child in mode `cycles` end after its cycle."""
        (self.folder / f"{self.name}.stop").touch()

    def close(self) -> None:
        """End children that still run."""
        for child in self._children:
            child.kill()

    # What is stored

    def progress(self) -> Progress:
        with self.pipeline() as pipeline:
            return pipeline.progress()

    def history(self, limit: int = 1000) -> list[HistoryEntry]:
        """The newest entry first."""
        with self.pipeline() as pipeline:
            return list(pipeline.history(limit))

    def bookmarks(self) -> list[dict[str, Any]]:
        with self.pipeline() as pipeline:
            return pipeline.ledger().between([("", None)]).to_pylist()

    # What an operator does

    def rewind(self, to: str | None, why: str = "a test", **options: Any) -> Progress:
        with self.pipeline() as pipeline:
            return pipeline.rewind(to, why=why, **options)

    def replay(self, faults: Faults | None = None) -> Replayed:
        with self.pipeline(faults) as pipeline:
            return pipeline.replay(pipeline.rejects())

    def verify(self, **request: Any) -> VerifyReport:
        with self.pipeline() as pipeline:
            return pipeline.verify(VerifyRequest(**request))

    def repair(self, agreed: Callable[[VerifyReport], bool] = lambda _: True, **request: Any) -> VerifyReport:
        with self.pipeline() as pipeline:
            return pipeline.verify(VerifyRequest(**request), repair=agreed)

    # What landed

    def select(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of the lake."""
        assert self.spark
        return [tuple(row) for row in self.spark.sql(query).collect()]

    def count(self, query: str) -> Counter[tuple[Any, ...]]:
        """Rows of the lake, and how often each is there."""
        return Counter(self.select(query))

    def has_table(self, table: str) -> bool:
        assert self.spark
        return self.spark.catalog.tableExists(table)

    def published(self, path: str = "files", stream: str = "") -> list[dict[str, Any]]:
        """Rows of the published files under `path`, of the streams whose folder's name contains `stream`."""
        rows: list[dict[str, Any]] = []
        # Unlike rglob, os.walk bears that a writer renames a folder meanwhile.
        files = [Path(folder, name) for folder, _, names in os.walk(self.folder / path) for name in names]
        for file in sorted(files):
            names = file.relative_to(self.folder / path).parts
            if any(name[0] in "._" for name in names) or stream not in "/".join(names[:-1]):
                continue
            if file.suffix == ".parquet":
                rows += pq.read_table(file).to_pylist()
            elif file.suffix == ".jsonl":
                rows += [json.loads(line) for line in file.read_text().splitlines()]
        return rows


class Child:
    """A process; its output goes to files, because no test empties a pipe while it does other things."""

    def __init__(self, path: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._out, self._errors = path.with_suffix(path.suffix + ".out"), path.with_suffix(path.suffix + ".err")
        with self._out.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=errors
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return self._out.read_text() + self._errors.read_text()

    def wait(self, seconds: float = CHILD_SECONDS) -> int:
        return self._process.wait(seconds)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(CHILD_SECONDS)

    def kill_after(self, seconds: float) -> None:
        """At a moment that no fault point names."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def wait_frozen(self) -> None:
        """Until a fault `…:stop` has stopped it."""
        state = Path(f"/proc/{self.pid}/stat")
        wait_until(lambda: state.read_text().rsplit(")", 1)[1].split()[0] == "T", CHILD_SECONDS)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def cycles(self) -> list[dict[str, Any]]:
        """The results of its cycles up to now."""
        return [json.loads(line) for line in self._out.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def results(self) -> list[dict[str, Any]]:
        """The results of its cycles, when it has ended by itself."""
        assert self.wait() == 0, self.output
        return self.cycles()
