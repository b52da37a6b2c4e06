"""`headwater demo`: a small shop, three cycles into a local lake, a crash in the middle and its recovery."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.demo_shop import DAYS, PIPELINE, live, open_shop
from headwater.cli.demo_summary import commands, compare, history_table, landed_table, marks_table, write_questions
from headwater.cli.output import Output
from headwater.cli.run import cycle_json, cycle_text
from headwater.model.errors import InputError, LeaseHeld, RunError
from headwater.model.faults import VARIABLE

if TYPE_CHECKING:
    from headwater.api import Pipeline
    from headwater.engine.result import CycleResult

_MARKER = ".headwater-demo"
# After the second landing of the window: the new versions of both tables stand in the logs, readers see them,
# and nobody has written down yet that the second one is there.
_CRASH = "land.published:kill:2"
# For JVMs that live a minute: the second compiler would take as long as all the rest.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def run_demo(folder: Path, out: Output) -> None:
    """Start over in `folder`, tell what happens on the way, leave everything for the user to look at."""
    from headwater.api import Project  # noqa: PLC0415 - `headwater --help` must not pay for the engine

    began = time.monotonic()
    os.environ.setdefault("JAVA_TOOL_OPTIONS", _SHORT_LIVED)  # for our session and for the child's
    folder = _fresh(folder.absolute())
    open_shop(folder)
    tell = _Teller(out)
    tell.step("A shop in SQLite, and a pipeline that follows it", f"{folder / 'shop.yaml'}:", _indented(PIPELINE))
    with Project.open(folder, say=out.say, out=out.err) as project:
        (pipeline,) = project.pipelines([folder / "shop.yaml"])
        results = [_first_cycle(pipeline, folder, tell), _crash(pipeline, folder, tell), _third(pipeline, folder, tell)]
        landed = compare(project.session(), folder)
        entries = pipeline.history()
        tell.step("What landed", landed_table(landed))
        tell.step("The record: headwater history shop", history_table(entries))
    write_questions(folder)
    asked = commands(folder)
    seconds = time.monotonic() - began
    tell.step(
        "Look for yourself",
        "\n".join(asked),
        f"\nAll of it is in {folder}. Start over with the same command. ({seconds:.0f} s)",
    )
    if out.json:
        data = {
            "folder": str(folder),
            "cycles": [cycle_json(result) for result in results],
            "landed": landed,
            "commands": asked,
            "seconds": round(seconds, 1),
        }
        out.value(data, "")


class _Teller:
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


def _first_cycle(pipeline: Pipeline, folder: Path, tell: _Teller) -> CycleResult:
    live(folder, DAYS[0])
    tell.step(f"First cycle: {DAYS[0].told}", "   Spark starts (some ten seconds, once) …")
    return _cycle(pipeline, tell)


def _crash(pipeline: Pipeline, folder: Path, tell: _Teller) -> CycleResult:
    live(folder, DAYS[1])
    tell.step(
        f"Second cycle, in a process of its own that is killed in the middle: {DAYS[1].told}",
        f"   {VARIABLE}={_CRASH} headwater run {folder.name}/shop.yaml --once",
    )
    _killed_child(folder)
    progress = pipeline.progress()
    if progress.intent is None:
        raise RunError("the killed process left no intent behind", hint="please report this, with the demo's folder")
    tell.line(
        "   SIGKILL, right after rows became visible and before anybody wrote that down.",
        "   The mark has not moved, and what was intended is on record:",
        _indented(marks_table(progress.mark, progress.intent.window.end)),
        "   Run again (when the dead process's lease has ended):",
    )
    _wait_for_lease(pipeline)
    return _cycle(pipeline, tell)


def _third(pipeline: Pipeline, folder: Path, tell: _Teller) -> CycleResult:
    live(folder, DAYS[2])
    tell.step(f"Third cycle: {DAYS[2].told}")
    return _cycle(pipeline, tell)


def _cycle(pipeline: Pipeline, tell: _Teller) -> CycleResult:
    result = pipeline.run_once()
    if result.error:
        raise result.error
    tell.line(f"   {cycle_text(result)}")
    return result


def _wait_for_lease(pipeline: Pipeline) -> None:
    """A lease of a process that is gone ends by itself; `every:` would just try again later."""
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


def _killed_child(folder: Path) -> None:
    """A real process with a Spark of its own, told to die at a fault point."""
    command = [sys.executable, "-m", "headwater.cli.main", "run", "shop.yaml", "--once"]
    log = folder / ".headwater" / "killed-run.log"
    with log.open("wb") as file:
        child = subprocess.run(
            command, cwd=folder, env={**os.environ, VARIABLE: _CRASH}, stdout=file, stderr=file, check=False
        )
    if child.returncode != -signal.SIGKILL:
        raise RunError(
            f"the second cycle was to be killed, and ended with {child.returncode} instead", hint=f"its log is {log}"
        )


def _fresh(folder: Path) -> Path:
    """An empty folder of the demo's own. What is not a demo's folder is never touched."""
    if folder.exists() and not (folder / _MARKER).is_file():
        if not folder.is_dir() or any(folder.iterdir()):
            raise InputError(
                f"{folder} exists and was not made by the demo", hint="name another folder: headwater demo --dir DIR"
            )
    elif folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARKER).write_text("This folder belongs to `headwater demo`, which empties it when it starts over.\n")
    return folder


def _indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.rstrip().splitlines())
