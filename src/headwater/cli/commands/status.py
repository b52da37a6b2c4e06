"""`headwater status`, `history` and `marks`: the content of the progress store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import Name, ProjectFlags
from headwater.cli.output import Output, lag_json, lag_line, lag_of, lag_table, mark_json, table, window_json
from headwater.model.errors import InputError
from headwater.model.secret import masked

if TYPE_CHECKING:
    from headwater.api import Project
    from headwater.model.position.marks import Json
    from headwater.model.progress import HistoryEntry, PausedStream, Progress
    from headwater.model.protocols.source import Lag


def status(out: Output, flags: ProjectFlags) -> None:
    """List every pipeline in the store.

    Its mark, its unfinished work, and its last run.
    """
    from headwater.cli.project import open_project

    with open_project(flags, out) as project:
        pipelines = [(project.store.load(name), project.store.history(name, 1)) for name in project.store.pipelines()]
        lags = {progress.pipeline: _lag(project, progress.pipeline, out) for progress, _ in pipelines}
        store = project.store.address
    data = [
        _status_json(progress, newest[0] if newest else None, lags[progress.pipeline]) for progress, newest in pipelines
    ]
    has_lag = any(lag is not None for lag in lags.values())
    rows = [
        (
            progress.pipeline,
            progress.mark or "none",
            progress.epoch,
            _unfinished(progress),
            *([lag_line(lags[progress.pipeline])] if has_lag else []),
            newest[0].kind if newest else "–",
            _timestamp(newest[0].at) if newest else "–",
        )
        for progress, newest in pipelines
    ]
    columns = ("pipeline", "mark", "epoch", "intent", *(["behind"] if has_lag else []), "last", "at (UTC)")
    empty_text = f"no pipelines in {store} yet\n  → headwater run FILE --once"
    out.value(
        {"store": store, "pipelines": data}, f"{table(columns, rows)}\nstore: {store}" if pipelines else empty_text
    )


def history(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show at most this many.")] = 20,
) -> None:
    """Show the history of a pipeline, newest first.

    Landed and abandoned windows, failures, and rewinds with who and why.
    """
    from headwater.cli.project import check_name, open_project

    with open_project(flags, out) as project:
        entries = project.store.history(check_name(project, name), limit)
    data = [{**entry.to_json(), "error": masked(entry.error)} for entry in entries]
    rows = [
        (
            _timestamp(entry.at),
            entry.kind,
            entry.rows,
            f"{entry.seconds:.1f}",
            entry.start,
            entry.end,
            entry.epoch,
            _note(entry),
        )
        for entry in entries
    ]
    columns = ("at (UTC)", "what", "rows", "seconds", "after", "up to", "epoch", "note")
    out.value({"pipeline": name, "history": data}, table(columns, rows) if rows else f"{name}: no history yet")


def marks(out: Output, flags: ProjectFlags, name: Name) -> None:
    """Show the mark of a pipeline.

    And its lag, where the source reports it.
    """
    from headwater.cli.project import check_name, open_project

    with open_project(flags, out) as project:
        progress, store = project.store.load(check_name(project, name)), project.store.address
        lags = _lag(project, name, out)
    data = {"pipeline": name, "store": store, "epoch": progress.epoch, "mark": mark_json(progress.mark)}
    if lags is not None:
        data["lag"] = lag_json(lags)
    lines = [f"{name}: {progress.mark or 'no mark yet'}", f"epoch {progress.epoch}, from {store}"]
    if progress.intent:
        lines.append(f"unfinished: {progress.intent.window} (run {progress.intent.run})")
    lines += [_paused_text(paused) for paused in progress.paused]
    if progress.paused:
        data["waiting"] = _waiting_json(progress)
    if lags:
        lines.append(lag_table(lags))
    out.value(data, "\n".join(lines))


def _lag(project: Project, name: str, out: Output) -> Sequence[Lag] | None:
    """Only of pipelines with a file in the project's folder: the store knows no sources."""
    from headwater.cli.project import find_pipeline

    try:
        pipeline = find_pipeline(project, name, None)
    except InputError:
        return None
    return lag_of(pipeline, out)


def _status_json(progress: Progress, newest: HistoryEntry | None, lags: Sequence[Lag] | None) -> dict[str, Json]:
    return {
        **({} if lags is None else {"lag": lag_json(lags)}),
        "pipeline": progress.pipeline,
        "epoch": progress.epoch,
        "mark": mark_json(progress.mark),
        "unfinished": window_json(progress.intent.window) if progress.intent else None,
        "waiting": _waiting_json(progress),
        "last": {**newest.to_json(), "error": masked(newest.error)} if newest else None,
    }


def _unfinished(progress: Progress) -> str:
    """The unfinished window and the paused streams."""
    unfinished = [f"unfinished: {progress.intent.window}"] if progress.intent else []
    return "; ".join([*unfinished, *(_paused_text(paused) for paused in progress.paused)]) or "–"


def _paused_text(paused: PausedStream) -> str:
    return f"{paused.stream} paused since {_timestamp(paused.since)}: {masked(paused.error)}"


def _waiting_json(progress: Progress) -> list[dict[str, Json]]:
    return [
        {
            "stream": paused.stream,
            "since": paused.since.isoformat(),
            "code": paused.code,
            "error": masked(paused.error),
            "window": window_json(paused.window),
        }
        for paused in progress.paused
    ]


def _timestamp(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _note(entry: HistoryEntry) -> str:
    who = f"by {entry.who}" if entry.kind == "rewound" else ""
    return ": ".join(part for part in (who, masked(entry.error) or entry.why) if part)
