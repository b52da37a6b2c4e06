"""Folders of objects, pipelines over them, and workers in processes of their own. No JVM: rows land in files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater.api import Project
from headwater.engine.result import CycleResult
from headwater.model.progress import HistoryEntry
from headwater.testing.crashes import expire_lease

_CHILD = Path(__file__).parent / "worker_child.py"
SECONDS = 90


class Child:
    """A process that writes what comes of its cycles into a file."""

    def __init__(self, file: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._file = file
        with file.open("wb") as out:
            self.process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)

    def results(self) -> list[dict]:
        code = self.process.wait(SECONDS)
        text = self._file.read_text()
        assert code == 0, text
        return [json.loads(line) for line in text.splitlines()]


class Yard:
    """Folders with objects, a pipeline over each, one store for all, and what has landed."""

    def __init__(self, folder: Path, store: str, *names: str, more: str = "") -> None:
        self.folder, self.names = folder, names
        self._children: list[Child] = []
        (folder / "headwater.yaml").write_text(f"progress: {store}\n")
        for name in names:
            (folder / f"in_{name}").mkdir()
            self.file(name).write_text(f"""
pipeline: {name}
lease: 2s
source: {{objects: {{url: ./in_{name}, format: text, max_objects: 7, metadata: []{more}}}}}
sinks: [{{files: {{path: ./out_{name}, format: json}}}}]
""")

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.yaml"

    def put(self, name: str, keys: Sequence[str], content: str = "first") -> None:
        """An object's one row says which object and which version it is."""
        for key in keys:
            whole = self.folder / f".{key}"
            whole.write_text(f"{key} {content}\n")
            whole.replace(self.folder / f"in_{name}" / key)

    def landed(self, name: str) -> Counter[str]:
        files = (self.folder / f"out_{name}").glob(f"in_{name}/window=*/*.jsonl")
        return Counter(json.loads(line)["value"] for file in files for line in file.read_text().splitlines())

    def run(self, name: str) -> CycleResult:
        with Project.open(self.folder) as project:
            return project.pipelines([self.file(name)])[0].run_once()

    def catch_up(self, name: str) -> list[CycleResult]:
        """Cycles until there is nothing new; a frozen process's lease has run out."""
        results: list[CycleResult] = []
        while not results or results[-1].outcome != "nothing new":
            result = self.run(name)
            if result.error and result.error.code == "lease-held":
                expire_lease(self.folder, name)
            else:
                assert result.error is None, result.error
                results.append(result)
        return results

    def bookmarks(self, name: str) -> list[dict]:
        with Project.open(self.folder) as project:
            return project.pipelines([self.file(name)])[0].ledger().between([("", None)]).to_pylist()

    def history(self, name: str) -> Sequence[HistoryEntry]:
        with Project.open(self.folder) as project:
            return project.pipelines([self.file(name)])[0].history(1000)

    def start(self, mode: str, name: str, fault: str = "") -> Child:
        # Without a JVM: the sink needs none, and whoever started one would say so.
        environment = {**os.environ, "HEADWATER_FAULT": fault, "JAVA_HOME": "/nonexistent"}
        # Into a file: nobody empties a pipe while a test goes on.
        child = Child(
            self.folder / f"child{len(self._children)}",
            [sys.executable, str(_CHILD), mode, str(self.file(name))],
            environment,
        )
        self._children.append(child)
        return child

    def end(self) -> None:
        for child in self._children:
            child.process.kill()
            child.process.wait(SECONDS)
