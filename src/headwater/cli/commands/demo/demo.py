"""`headwater demo`: a small shop, three cycles into a local lake, a crash in the middle and its recovery."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.commands.demo.shop import DAYS, PIPELINE, apply_day, open_shop, shop_rows, versions
from headwater.cli.commands.run import cycle_json, cycle_text
from headwater.cli.output import Output, table
from headwater.model.errors import InputError, LeaseHeld, RunError
from headwater.model.faults import VARIABLE
from headwater.model.position.marks import Mark, StreamsMark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.api import Pipeline
    from headwater.engine.result import CycleResult
    from headwater.model.progress import HistoryEntry

_MARKER = ".headwater-demo"
# After the second landing of the window: both `_log` tables have the new versions, readers see them, and the progress
# store does not know the second landing yet.
_CRASH = "land.published:kill:2"
# For JVMs that live a minute: the second compiler would double the time.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def run_demo(folder: Path, out: Output) -> None:
    """Start over in `folder`, narrate every step, and leave all files for inspection."""
    from headwater.api import Project

    start = time.monotonic()
    os.environ.setdefault("JAVA_TOOL_OPTIONS", _SHORT_LIVED)  # for this session and the child's
    folder = empty_folder(folder.absolute())
    open_shop(folder)
    narrator = _Narrator(out)
    narrator.step("A shop in SQLite, and a pipeline that follows it", f"{folder / 'shop.yaml'}:", _indent(PIPELINE))
    with Project.open(folder, say=out.say, out=out.err) as project:
        (pipeline,) = project.pipelines([folder / "shop.yaml"])
        results = [
            _first_cycle(pipeline, folder, narrator),
            _crashed_cycle(pipeline, folder, narrator),
            _third_cycle(pipeline, folder, narrator),
        ]
        landed = compare(project.session(), folder)
        entries = pipeline.history()
        narrator.step("What landed", landed_table(landed))
        narrator.step("The record: headwater history shop", history_table(entries))
    write_scripts(folder)
    next_commands = commands(folder)
    seconds = time.monotonic() - start
    narrator.step(
        "Explore it",
        "\n".join(next_commands),
        f"\nAll of it is in {folder}. Start over with the same command. ({seconds:.0f} s)",
    )
    if out.json:
        data = {
            "folder": str(folder),
            "cycles": [cycle_json(result) for result in results],
            "landed": landed,
            "commands": next_commands,
            "seconds": round(seconds, 1),
        }
        out.value(data, "")


class _Narrator:
    """The story goes to stdout, or to stderr when stdout carries JSON."""

    def __init__(self, out: Output) -> None:
        self._file = out.err if out.json else out.out
        self._step = 0

    def step(self, title: str, *lines: str) -> None:
        self._step += 1
        self.line(f"\n{self._step}. {title}", *lines)

    def line(self, *lines: str) -> None:
        for line in lines:
            self._file.write(f"{line}\n")
        self._file.flush()


def _first_cycle(pipeline: Pipeline, folder: Path, narrator: _Narrator) -> CycleResult:
    apply_day(folder, DAYS[0])
    narrator.step(f"First cycle: {DAYS[0].title}", "   Spark starts (some ten seconds, once) …")
    return _cycle(pipeline, narrator)


def _crashed_cycle(pipeline: Pipeline, folder: Path, narrator: _Narrator) -> CycleResult:
    apply_day(folder, DAYS[1])
    narrator.step(
        f"Second cycle, in a child process that is killed half-way: {DAYS[1].title}",
        f"   {VARIABLE}={_CRASH} headwater run {folder.name}/shop.yaml --once",
    )
    _run_killed_child(folder)
    progress = pipeline.progress()
    if progress.intent is None:
        raise RunError("the killed process left no intent", hint="please report this, with the demo's folder")
    narrator.line(
        "   SIGKILL, after the rows became visible and before the progress store recorded it.",
        "   The mark has not moved, and the intent is stored:",
        _indent(marks_table(progress.mark, progress.intent.window.end)),
        "   Run again (after the dead process's lease has expired):",
    )
    _wait_for_lease(pipeline)
    return _cycle(pipeline, narrator)


def _third_cycle(pipeline: Pipeline, folder: Path, narrator: _Narrator) -> CycleResult:
    apply_day(folder, DAYS[2])
    narrator.step(f"Third cycle: {DAYS[2].title}")
    return _cycle(pipeline, narrator)


def _cycle(pipeline: Pipeline, narrator: _Narrator) -> CycleResult:
    result = pipeline.run_once()
    if result.error:
        raise result.error
    narrator.line(f"   {cycle_text(result)}")
    return result


def _wait_for_lease(pipeline: Pipeline) -> None:
    """Wait until the dead process's lease expires; with `every:` the engine would retry."""
    store, seconds = pipeline.project.store, pipeline.settings.lease.total_seconds()
    deadline = time.monotonic() + 2 * seconds
    while True:
        try:
            store.release(store.acquire(pipeline.name, "headwater demo", seconds))
        except LeaseHeld:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _run_killed_child(folder: Path) -> None:
    """Run a real process with its own Spark session, which dies at a fault point."""
    command = [sys.executable, "-m", "headwater.cli.main", "run", "shop.yaml", "--once"]
    log = folder / ".headwater" / "killed-run.log"
    with log.open("wb") as file:
        child = subprocess.run(
            command, cwd=folder, env={**os.environ, VARIABLE: _CRASH}, stdout=file, stderr=file, check=False
        )
    if child.returncode != -signal.SIGKILL:
        raise RunError(
            f"the second cycle should have been killed, but exited with {child.returncode}", hint=f"its log is {log}"
        )


def empty_folder(folder: Path) -> Path:
    """An empty folder. A folder that the demo did not create is never changed."""
    if folder.exists() and not (folder / _MARKER).is_file():
        if not folder.is_dir() or any(folder.iterdir()):
            raise InputError(
                f"{folder} exists and the demo did not create it", hint="name another folder: headwater demo --dir DIR"
            )
    elif folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARKER).write_text("This folder belongs to `headwater demo`, which empties it when it starts over.\n")
    return folder


def _indent(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.rstrip().splitlines())


_STREAMS = ("customers", "orders")

_PYICEBERG = '''\
"""Read the demo's lake with pyiceberg (pip install 'headwater[demo]'): no Spark, no Java."""

import sqlite3
from pathlib import Path

from pyiceberg.table import StaticTable

catalog = sqlite3.connect(Path(__file__).parent / "lake" / "catalog.db")
(metadata,) = catalog.execute(
    "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = 'shop' AND table_name = 'orders'"
).fetchone()
print(StaticTable.from_metadata(metadata).scan(row_filter="state = 'shipped'").to_arrow().to_pandas())
'''

_DUCKDB = '''\
"""Ask the demo's lake with DuckDB (pip install 'headwater[demo]')."""

import sqlite3
from pathlib import Path

import duckdb
from pyiceberg.table import StaticTable

catalog = sqlite3.connect(Path(__file__).parent / "lake" / "catalog.db")
found = catalog.execute("SELECT table_name, metadata_location FROM iceberg_tables WHERE table_namespace = 'shop'")
for name, metadata in found.fetchall():
    duckdb.register(name, StaticTable.from_metadata(metadata).scan().to_arrow())
print(duckdb.sql("""
    SELECT c.name, c.city, sum(o.cents) / 100 AS spent
    FROM orders o JOIN customers c ON c.id = o.customer_id
    GROUP BY ALL ORDER BY spent DESC
"""))
'''


def compare(spark: SparkSession, folder: Path) -> Mapping[str, Mapping[str, int]]:
    """Rows in the shop and in the lake. Raises RunError if they differ."""
    counts: dict[str, dict[str, int]] = {}
    for name in _STREAMS:
        shop = shop_rows(folder, name)
        lake = spark.sql(f"SELECT * FROM lake.shop.{name} ORDER BY id").collect()  # noqa: S608 - a name of ours
        (logged, distinct) = spark.sql(
            f"SELECT count(*), count(DISTINCT id, updated_at) FROM lake.shop.{name}_log"  # noqa: S608
        ).first() or (0, 0)
        counts[name] = {"shop": len(shop), "lake": len(lake), "log": logged, "versions": versions(name)}
        # All but the last column: times are texts in SQLite and instants of their own type in the lake.
        same = [tuple(row)[:-1] for row in lake] == [row[:-1] for row in shop]
        if not same or not logged == distinct == versions(name):
            raise RunError(f"lake.shop.{name} differs from the shop: {counts[name]}")
    return counts


def landed_table(counts: Mapping[str, Mapping[str, int]]) -> str:
    rows = [(name, n["shop"], n["lake"], n["versions"], n["log"]) for name, n in counts.items()]
    columns = (
        "table",
        "rows in the shop",
        "rows in lake.shop.TABLE",
        "versions written",
        "rows in lake.shop.TABLE_log",
    )
    return (
        f"{table(columns, rows)}\nEvery row equals the shop's, every version landed once: nothing lost, nothing twice."
    )


def marks_table(mark: Mark | None, intent_end: Mark) -> str:
    """One line per stream: its mark, and the mark that the killed run intended."""
    if not isinstance(mark, StreamsMark) or not isinstance(intent_end, StreamsMark):
        return f"{mark} → {intent_end}"
    rows = [(name, mark.marks.get(name, "none"), end) for name, end in sorted(intent_end.marks.items())]
    return table(("stream", "mark", "intended"), rows)


def history_table(entries: Sequence[HistoryEntry]) -> str:
    rows = [(entry.kind, entry.rows, f"{entry.seconds:.1f}", entry.end, entry.epoch, entry.why) for entry in entries]
    return table(("what", "rows", "seconds", "up to", "epoch", "note"), rows)


def write_scripts(folder: Path) -> None:
    (folder / "ask_pyiceberg.py").write_text(_PYICEBERG)
    (folder / "ask_duckdb.py").write_text(_DUCKDB)


def commands(folder: Path) -> Sequence[str]:
    """Commands to type next, valid in the current folder."""
    headwater, python = _program("headwater"), _program("python")
    where = _relative(folder)
    project = f"--project {where}"
    extra = "   # after: pip install 'headwater[demo]'"
    for_pyiceberg = "" if importlib.util.find_spec("pyiceberg") else extra
    for_duckdb = for_pyiceberg or ("" if importlib.util.find_spec("duckdb") else extra)
    return (
        f'{headwater} sql "SELECT state, count(*) AS orders, sum(cents) / 100 AS total FROM lake.shop.orders GROUP BY state" {project}',  # noqa: S608 - for people
        f"{headwater} history shop {project}",
        f"{headwater} marks shop {project}",
        f"{python} {_relative(folder / 'ask_pyiceberg.py')}{for_pyiceberg}",
        f"{python} {_relative(folder / 'ask_duckdb.py')}{for_duckdb}",
    )


def _program(name: str) -> str:
    """Its bare name if the shell finds the same program, else the path beside our interpreter."""
    own = Path(sys.executable).parent / name
    on_path = shutil.which(name)
    if not own.exists() or (on_path and Path(on_path) == own):
        return name
    return _relative(own)


def _relative(path: Path) -> str:
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
