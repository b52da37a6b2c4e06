"""`headwater plan` and `headwater check`: what would happen, and whether the files are right."""

from __future__ import annotations

from dataclasses import asdict, astuple
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.lag import lag_json, lag_of, lag_table
from headwater.cli.output import Output, error_json, error_text, table
from headwater.cli.run import Paths
from headwater.cli.shapes import mark_json, window_json
from headwater.model.errors import HeadwaterError
from headwater.model.secret import masked

if TYPE_CHECKING:
    from headwater.api import Pipeline
    from headwater.model.marks import Json
    from headwater.model.progress import Progress
    from headwater.model.source import Plan


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

    The window, the rows, how they are found, and what an operator should know. Changes nothing, starts no Spark.
    """
    from headwater.cli.opening import checked_pipelines, opened_project  # noqa: PLC0415 - not paid for by --help

    found = checked_pipelines(flags, paths)
    with opened_project(flags, out, paths) as project:
        for one in found:
            pipeline = project.pipeline(one.settings, one.folder)
            progress, planned = pipeline.progress(), pipeline.plan()
            store, lags = project.store.address, lag_of(pipeline, out)
            data, text = (
                _plan_json(pipeline, progress, planned, store),
                _plan_text(pipeline, progress, planned, store),
            )
            if tables:
                foreseen = pipeline.foresee(planned)
                data["tables"] = [asdict(one) for one in foreseen]
                if foreseen:
                    text += "\n" + table(("sink", "table", "way", "why"), [astuple(one) for one in foreseen])
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
        bool, typer.Option("--connect", help="Also ask the store and every source whether they answer.")
    ] = False,
) -> None:
    """Check settings files without running anything.

    Lists every mistake with its place and what to write instead.
    """
    from headwater.cli.opening import checked_pipelines, opened_project  # noqa: PLC0415 - as above

    found = checked_pipelines(flags, paths)
    lines: list[dict[str, Json]] = [
        {"pipeline": one.settings.pipeline, "file": str(one.file), "line": one.line} for one in found
    ]
    failures: list[HeadwaterError] = []
    if connect:
        with opened_project(flags, out, paths) as project:
            for one, line in zip(found, lines, strict=True):
                error = _reach(project.pipeline(one.settings, one.folder))
                line["answers"] = error is None
                if error:
                    line["error"] = error_json(error)
                    failures.append(error)
    texts = [f"{line['file']}:{line['line']}  {line['pipeline']}  {_verdict(line)}" for line in lines]
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


def _verdict(line: dict[str, Json]) -> str:
    return "ok" if line.get("answers", True) else "does not answer"


def _plan_json(pipeline: Pipeline, progress: Progress, planned: Plan, store: str) -> dict[str, Json]:
    return {
        "pipeline": pipeline.name,
        "store": store,
        "mark": mark_json(progress.mark),
        "unfinished": window_json(progress.intent.window) if progress.intent else None,
        "window": window_json(planned.window),
        "streams": [
            {"stream": s.stream, "window": window_json(s.window), "rows": s.rows, "why": s.why} for s in planned.streams
        ],
        "refused": {stream: masked(error.message) for stream, error in planned.refused.items()},
        "waiting": [one.stream for one in progress.waiting if one.window],
        "warnings": list(planned.warnings),
    }


def _plan_text(pipeline: Pipeline, progress: Progress, planned: Plan, store: str) -> str:
    lines = [f"{pipeline.name}: mark {progress.mark or 'none'} (from {store})"]
    if progress.intent:
        lines.append(f"first finishes what run {progress.intent.run} began: {progress.intent.window}")
    lines += [f"tries {one.stream} again: {one.window}" for one in progress.waiting if one.window]
    if planned.window is None:
        lines.append("nothing new")
    else:
        lines.append(f"window: {planned.window}")
        rows = [(s.stream, "unknown" if s.rows is None else s.rows, s.why) for s in planned.streams]
        lines.append(table(("stream", "rows", "how"), rows))
        kinds = ", ".join(
            f"{position}:{sink.kind}{' (at least once: a crash can repeat messages)' if sink.kafka else ''}"
            for position, sink in enumerate(pipeline.settings.sinks, start=1)
        )
        lines.append(f"lands in {kinds}")
    lines.extend(f"without {stream}: {masked(error.message)}" for stream, error in planned.refused.items())
    lines.extend(f"warning: {warning}" for warning in planned.warnings)
    return "\n".join(lines)
