"""`headwater run`: run pipelines, once or by their schedules."""

from __future__ import annotations

import datetime as dt
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.output import Output, error_text, mark_json
from headwater.model.position.marks import ColumnMark, Json, LsnMark, Mark, ObjectsMark, StreamsMark
from headwater.model.secret import masked

if TYPE_CHECKING:
    from headwater.api import Pipeline, Project
    from headwater.engine.result import CycleResult
    from headwater.engine.runner import Report

_SIGNAL_SECONDS = 0.5
Paths = Annotated[list[Path], typer.Argument(metavar="FILE|DIR…", help="Pipeline files, or folders of them.")]


def run(
    out: Output,
    flags: ProjectFlags,
    paths: Paths,
    *,
    once: Annotated[bool, typer.Option("--once", help="One cycle of each pipeline, then stop.")] = False,
) -> None:
    """Read what is new and land it. Without --once each pipeline follows its `every:`.

    SIGTERM or Ctrl-C finishes the current cycle and stops; a second one abandons it, which is safe: the next run
    finishes the window. With --json one object per cycle.
    """
    from headwater.cli.event_log import event_log
    from headwater.cli.project import load_all_pipelines, open_project

    files = load_all_pipelines(flags, paths)
    stop = threading.Event()
    results: list[CycleResult] = []

    def report(result: CycleResult) -> None:
        out.value(cycle_json(result), cycle_text(result))

    with event_log(out.err) as log, open_project(flags, out, paths, log) as project:
        pipelines = [project.pipeline(file.settings, file.folder) for file in files]
        with _handle_signals(stop, project, out):
            results.extend(_run_in_thread(pipelines, stop, report, once=once))
    raise typer.Exit(exit_code(results))


def exit_code(results: Sequence[CycleResult]) -> int:
    """0 without failures; the code of the failures if they share one, else 1."""
    codes = {result.error.exit_code if result.error else 1 for result in results if result.outcome == "failed"}
    return 0 if not codes else codes.pop() if len(codes) == 1 else 1


def cycle_text(result: CycleResult) -> str:
    if result.error and result.continues:
        others = replace(result, error=None, failed_streams=(), outcome="landed" if result.windows else "nothing new")
        failed = f"failed: {', '.join(result.failed_streams)}"
        return f"{cycle_text(others)}; {failed}\n{masked(error_text(result.error))}"
    if result.error:
        return f"{result.pipeline}: failed after {result.seconds:.1f} s\n{masked(error_text(result.error))}"
    if result.outcome == "nothing new":
        return f"{result.pipeline}: nothing new"
    rows = f"{result.rows:,} {'row' if result.rows == 1 else 'rows'} landed"
    rejected = f", {result.rejected:,} rejected" if result.rejected else ""
    recovered = "; finished the window of an earlier run" if result.recovered else ""
    more = "; more to read" if result.more else ""
    bound = bound_text(result.windows[-1].end)
    return f"{result.pipeline}: {rows}{rejected} in {result.seconds:.1f} s ({bound}){recovered}{more}"


def bound_text(mark: Mark) -> str:
    """`updated_at ≤ 2026-03-02 12:20:00Z`: how far a window goes, for people."""
    match mark:
        case StreamsMark():
            return "; ".join(f"{stream}: {bound_text(bound)}" for stream, bound in sorted(mark.marks.items()))
        case ColumnMark() if isinstance(mark.value, dt.datetime):
            moment = mark.value.astimezone(dt.UTC) if mark.value.tzinfo else mark.value
            return f"{mark.column} ≤ {moment.isoformat(' ').replace('+00:00', 'Z')}"
        case ColumnMark() if mark.value is not None:
            return f"{mark.column} ≤ {mark.type.to_text(mark.value)}"
        case LsnMark():
            return f"lsn ≤ {mark}"
        case ObjectsMark():
            return f"generation {mark.generation}, {mark.count:,} object{'s' * (mark.count != 1)}"
    return str(mark)


def cycle_json(result: CycleResult) -> dict[str, Json]:
    """The result with its marks in the public shape, without the engine's own fields."""
    data = result.to_json()
    if result.windows:
        data["window"] = {"start": mark_json(result.windows[0].start), "end": mark_json(result.windows[-1].end)}
    if result.error:
        data["error"] = {name: masked(text) for name, text in data["error"].items()}
    return data


def _run_in_thread(
    pipelines: Sequence[Pipeline], stop: threading.Event, report: Report, *, once: bool
) -> Sequence[CycleResult]:
    """Run beside the main thread: PySpark takes over Ctrl-C in the thread that starts the session."""
    from headwater.api import run_forever

    results: list[CycleResult] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            if not once:
                results.extend(run_forever(pipelines, stop, report))
                return
            for pipeline in pipelines:
                if not stop.is_set():
                    results.append(pipeline.run_once())
                    report(results[-1])
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            errors.append(error)

    worker = threading.Thread(target=work, name="headwater-run")
    worker.start()
    while worker.is_alive():
        # The system may hand a signal to any thread, but only this one runs Python's handlers, and not while it waits.
        worker.join(_SIGNAL_SECONDS)
    for error in errors:
        raise error
    return results


@contextmanager
def _handle_signals(stop: threading.Event, project: Project, out: Output) -> Iterator[None]:
    """The first signal stops after the cycle, the second one at once."""

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            # G2: a crash at any point is repaired by the next run, so this is allowed at any point.
            out.say("abandoned; the next run finishes the window")
            os._exit(128 + number)
        stop.set()
        if project.session.started:
            out.say("stopping after the current cycle; send the signal again to abandon it")

    previous = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
