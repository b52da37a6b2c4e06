"""`headwater run`: bring pipelines forward, once or by their schedules."""

from __future__ import annotations

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
from headwater.cli.output import Output, error_text
from headwater.cli.shapes import mark_json
from headwater.model.marks import Json
from headwater.model.secret import masked

if TYPE_CHECKING:
    from headwater.api import Pipeline, Project
    from headwater.engine.result import CycleResult
    from headwater.engine.runner import Report

Paths = Annotated[list[Path], typer.Argument(metavar="FILE|DIR…", help="Pipeline files, or folders of them.")]


def run(
    out: Output,
    flags: ProjectFlags,
    paths: Paths,
    *,
    once: Annotated[bool, typer.Option("--once", help="One cycle of each pipeline, then stop.")] = False,
) -> None:
    """Read what is new and land it. Without --once each pipeline follows its `every:`.

    SIGTERM or Ctrl-C finishes the cycle under way and stops; a second one abandons it, which is safe: the next
    run finishes what was begun. With --json one object per cycle.
    """
    from headwater.cli.event_log import event_log  # noqa: PLC0415 - not paid for by --help
    from headwater.cli.opening import checked_pipelines, opened_project  # noqa: PLC0415

    found = checked_pipelines(flags, paths)
    stop = threading.Event()
    results: list[CycleResult] = []

    def report(result: CycleResult) -> None:
        out.value(cycle_json(result), cycle_text(result))

    with event_log(out.err) as log, opened_project(flags, out, paths, log) as project:
        pipelines = [project.pipeline(one.settings, one.folder) for one in found]
        with _stopping(stop, project, out):
            results.extend(_in_thread(pipelines, stop, report, once=once))
    raise typer.Exit(exit_code(results))


def exit_code(results: Sequence[CycleResult]) -> int:
    """0 when all is well; the code of the failures when they agree, else 1."""
    codes = {result.error.exit_code if result.error else 1 for result in results if result.outcome == "failed"}
    return 0 if not codes else codes.pop() if len(codes) == 1 else 1


def cycle_text(result: CycleResult) -> str:
    if result.error and result.goes_on:
        others = replace(result, error=None, failed_streams=(), outcome="landed" if result.windows else "nothing new")
        failed = f"without {', '.join(result.failed_streams)}, which failed"
        return f"{cycle_text(others)}, {failed}\n{masked(error_text(result.error))}"
    if result.error:
        return f"{result.pipeline}: failed after {result.seconds:.1f} s\n{masked(error_text(result.error))}"
    if result.outcome == "nothing new":
        return f"{result.pipeline}: nothing new"
    window = f"after {result.windows[0].start or 'the beginning'} up to {result.windows[-1].end}"
    recovered = ", with what an earlier run began" if result.recovered else ""
    more = "; there is more" if result.more else ""
    aside = f", set {result.rejected:,} aside," if result.rejected else ""
    return f"{result.pipeline}: landed {result.rows:,} {'row' if result.rows == 1 else 'rows'}{aside} {window} in {result.seconds:.1f} s{recovered}{more}"


def cycle_json(result: CycleResult) -> dict[str, Json]:
    """The result with its marks in the public shape: what only the engine needs may be large."""
    data = result.to_json()
    if result.windows:
        data["window"] = {"start": mark_json(result.windows[0].start), "end": mark_json(result.windows[-1].end)}
    if result.error:
        data["error"] = {name: masked(text) for name, text in data["error"].items()}
    return data


def _in_thread(
    pipelines: Sequence[Pipeline], stop: threading.Event, report: Report, *, once: bool
) -> Sequence[CycleResult]:
    """Work beside the main thread: PySpark takes over Ctrl-C in the thread that starts the session."""
    from headwater.api import run_forever  # noqa: PLC0415

    results: list[CycleResult] = []
    surprises: list[BaseException] = []

    def work() -> None:
        try:
            if not once:
                results.extend(run_forever(pipelines, stop, report))
                return
            for pipeline in pipelines:
                if not stop.is_set():
                    results.append(pipeline.run_once())
                    report(results[-1])
        except BaseException as error:  # noqa: BLE001 - carried over to the thread that handles it
            surprises.append(error)

    worker = threading.Thread(target=work, name="headwater-run")
    worker.start()
    worker.join()
    for surprise in surprises:
        raise surprise
    return results


@contextmanager
def _stopping(stop: threading.Event, project: Project, out: Output) -> Iterator[None]:
    """The first signal asks for the end, the second one does not wait for it."""

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            # G2: a crash at any point is repaired by the next run, so this is allowed at any point.
            out.say("abandoned; the next run finishes what was begun")
            os._exit(128 + number)
        stop.set()
        if project.session.started:
            out.say("stopping after the cycle under way; once more to abandon it")

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
