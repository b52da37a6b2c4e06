"""`headwater plan` and `headwater check`: the next window, and mistakes in files."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.commands.run import Paths
from headwater.cli.output import (
    Output,
    error_json,
    error_text,
    lag_json,
    lag_of,
    lag_table,
    mark_json,
    table,
    window_json,
)
from headwater.model.errors import HeadwaterError
from headwater.model.json_codec import to_json
from headwater.model.secret import masked

if TYPE_CHECKING:
    from headwater.api import Pipeline
    from headwater.model.position.marks import Json
    from headwater.model.progress import Progress
    from headwater.model.protocols.source import Plan


def plan(
    out: Output,
    flags: ProjectFlags,
    paths: Paths,
    *,
    tables: Annotated[
        bool,
        typer.Option(
            "--tables", help="Also show how the rows would be merged into their tables, and why. Starts Spark."
        ),
    ] = False,
) -> None:
    """Show what the next cycle would read.

    The window, the rows, how they are selected, and warnings. Changes nothing, starts no Spark.
    """
    from headwater.cli.project import load_all_pipelines, open_project

    files = load_all_pipelines(flags, paths)
    with open_project(flags, out, paths) as project:
        for file in files:
            pipeline = project.pipeline(file.settings, file.folder)
            progress, planned = pipeline.progress(), pipeline.plan()
            store, lags = project.store.address, lag_of(pipeline, out)
            data, text = (
                _plan_json(pipeline, progress, planned, store),
                _plan_text(pipeline, progress, planned, store),
            )
            if tables:
                merges = pipeline.explain_merge(planned)
                data["tables"] = to_json(merges)
                if merges:
                    text += "\n" + table(("sink", "table", "strategy", "why"), [astuple(merge) for merge in merges])
            out.value(
                data if lags is None else {**data, "lag": lag_json(lags)},
                f"{text}\n{lag_table(lags)}" if lags else text,
            )


def check(
    out: Output,
    flags: ProjectFlags,
    paths: Paths,
    *,
    connect: Annotated[
        bool, typer.Option("--connect", help="Also check that the store and every source answer.")
    ] = False,
) -> None:
    """Check settings files without running anything.

    Lists every mistake with its line and the correction.
    """
    from headwater.cli.project import load_all_pipelines, open_project

    files = load_all_pipelines(flags, paths)
    lines: list[dict[str, Json]] = [
        {"pipeline": file.settings.pipeline, "file": str(file.file), "line": file.line} for file in files
    ]
    failures: list[HeadwaterError] = []
    if connect:
        with open_project(flags, out, paths) as project:
            for file, line in zip(files, lines, strict=True):
                error = _reach(project.pipeline(file.settings, file.folder))
                line["answers"] = error is None
                if error:
                    line["error"] = error_json(error)
                    failures.append(error)
    texts = [
        f"{line['file']}:{line['line']}  {line['pipeline']}  {'ok' if line.get('answers', True) else 'does not answer'}"
        for line in lines
    ]
    out.value({"ok": not failures, "pipelines": lines}, "\n".join(texts))
    for error in failures:
        out.say(error_text(error))
    raise typer.Exit(max((error.exit_code for error in failures), default=0))


def _reach(pipeline: Pipeline) -> HeadwaterError | None:
    try:
        pipeline.progress()
        pipeline.plan()
    except HeadwaterError as error:
        return error
    return None


def _plan_json(pipeline: Pipeline, progress: Progress, planned: Plan, store: str) -> dict[str, Json]:
    return {
        "pipeline": pipeline.name,
        "store": store,
        "mark": mark_json(progress.mark),
        "unfinished": window_json(progress.intent.window) if progress.intent else None,
        "window": window_json(planned.window),
        "streams": [
            {"stream": one.stream, "window": window_json(one.window), "rows": one.rows, "why": one.why}
            for one in planned.streams
        ],
        "refused": {stream: masked(error.message) for stream, error in planned.refused.items()},
        "waiting": [paused.stream for paused in progress.paused if paused.window],
        "warnings": list(planned.warnings),
    }


def _plan_text(pipeline: Pipeline, progress: Progress, planned: Plan, store: str) -> str:
    lines = [f"{pipeline.name}: mark {progress.mark or 'none'} (from {store})"]
    if progress.intent:
        lines.append(f"first finishes the window of run {progress.intent.run}: {progress.intent.window}")
    lines += [f"retries {paused.stream}: {paused.window}" for paused in progress.paused if paused.window]
    if planned.window is None:
        lines.append("nothing new")
    else:
        lines.append(f"window: {planned.window}")
        rows = [
            (stream.stream, "unknown" if stream.rows is None else stream.rows, stream.why) for stream in planned.streams
        ]
        lines.append(table(("stream", "rows", "how"), rows))
        sinks = ", ".join(
            f"{position}:{sink.kind}{' (at least once: a crash can repeat messages)' if sink.kafka else ''}"
            for position, sink in enumerate(pipeline.settings.sinks, start=1)
        )
        lines.append(f"lands in {sinks}")
    lines.extend(f"pauses {stream}: {masked(error.message)}" for stream, error in planned.refused.items())
    lines.extend(f"warning: {warning}" for warning in planned.warnings)
    return "\n".join(lines)
