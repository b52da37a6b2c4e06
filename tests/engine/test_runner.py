"""Many pipelines in one process: schedules, retries, and a stop that is quick and clean."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path

import pytest

from headwater.api import Project, run_forever
from headwater.config.load import load_project
from tests.support.wait import wait_until


@pytest.fixture
def folder(tmp_path):
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT)")
    (tmp_path / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
    return tmp_path


def write_pipeline(
    folder: Path, name: str, *, every: str | None = "50ms", table: str = "orders", more: str = ""
) -> Path:
    schedule = f"every: {every}\n" if every else ""
    path = folder / f"{name}.yaml"
    path.write_text(f"""
pipeline: {name}
{schedule}source: {{sql: {{url: "sqlite:///shop.db", table: {table}, cursor: id{more}}}}}
sinks: [{{files: {{path: ./{name}, format: json}}}}]
""")
    return path


def insert(folder: Path, count: int) -> None:
    with sqlite3.connect(folder / "shop.db") as shop:
        shop.executemany("INSERT INTO orders (note) VALUES (?)", [(f"note {n}",) for n in range(count)])


def landed(folder: Path, name: str) -> list[int]:
    files = [p for p in (folder / name).rglob("*.json*") if not any(part.startswith(("_", ".")) for part in p.parts)]
    return sorted(json.loads(line)["id"] for path in files for line in path.read_text().splitlines())


class Running:
    """Pipelines that run in the background until the block ends."""

    def __init__(self, folder: Path, *paths: Path) -> None:
        self.results, self.stop = [], threading.Event()
        self.project = Project(load_project(folder), folder)
        pipelines = self.project.pipelines(paths)
        self.thread = threading.Thread(target=run_forever, args=(pipelines, self.stop, self.results.append))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(timeout=30)
        assert not self.thread.is_alive()
        self.project.close()

    def outcomes(self, name: str) -> list[str]:
        return [result.outcome for result in self.results if result.pipeline == name]


def test_rows_that_arrive_while_it_runs_are_landed_once(folder):
    with Running(folder, write_pipeline(folder, "orders")) as running:
        for _ in range(5):
            before = len(running.results)
            insert(folder, 10)
            wait_until(lambda seen=before: len(running.results) > seen + 2)
    assert landed(folder, "orders") == list(range(1, 51))


def test_a_failing_pipeline_disturbs_no_other(folder):
    insert(folder, 3)
    broken = write_pipeline(folder, "broken", table="no_such_table")
    with Running(folder, broken, write_pipeline(folder, "orders")) as running:
        wait_until(lambda: len(running.outcomes("orders")) > 5 and running.outcomes("broken"))
    assert set(running.outcomes("broken")) == {"failed"}
    assert "failed" not in running.outcomes("orders")
    assert landed(folder, "orders") == [1, 2, 3]


def test_what_needs_somebodys_hand_is_tried_once_and_not_again(folder):
    with Running(folder, write_pipeline(folder, "broken", table="no_such_table")) as running:
        running.thread.join(timeout=30)
        assert not running.thread.is_alive()
    assert running.outcomes("broken") == ["failed"]


def test_an_idle_engine_does_not_wait_for_its_schedule_to_stop(folder):
    with Running(folder, write_pipeline(folder, "orders", every="1h")) as running:
        wait_until(lambda: running.outcomes("orders"))
        running.stop.set()
        running.thread.join(timeout=10)
        assert not running.thread.is_alive()


def test_without_a_schedule_a_pipeline_runs_until_it_has_caught_up(folder):
    insert(folder, 25)
    with Running(folder, write_pipeline(folder, "orders", every=None, more=", max_rows: 10")) as running:
        running.thread.join(timeout=60)
    assert running.outcomes("orders") == ["landed"] * 3
    assert landed(folder, "orders") == list(range(1, 26))
