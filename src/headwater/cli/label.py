"""`headwater label`: a name for this moment, which all tables of a pipeline can be read as of."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.completion import Name
from headwater.cli.output import Output
from headwater.model.errors import InputError

if TYPE_CHECKING:
    from headwater.engine.labels import WrittenLabel

_POLL_SECONDS = 0.5
_NOT_LANDED = 1


def label(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The label: letters, digits, '.', '_' and '-'; none that is there.")
    ],
    *,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="Wait until a run that goes on elsewhere has landed it (the default), or by --no-wait do not.",
            show_default=False,
        ),
    ] = True,
    timeout: Annotated[str, typer.Option("--timeout", metavar="DURATION", help="How long to wait.")] = "10m",
    file: Annotated[
        Path | None,
        typer.Option("--file", help="The pipeline's file. Default: the one with that name beside headwater.yaml."),
    ] = None,
) -> None:
    """Name this moment in the source's log.

    Everything that committed before is landed first; then each table gets an Iceberg tag of that name. For sources of kind
    postgres. Exits 1 if it was written and has not landed in time: a later run lands it.
    """
    from headwater.cli.opening import opened_project, pipeline_named  # noqa: PLC0415 - not paid for by --help

    seconds = _seconds(timeout)
    with opened_project(flags, out, [file] if file else []) as project:
        pipeline = pipeline_named(project, name, file)
        written = pipeline.label(text)
        if wait:
            out.say(f"{name}: {text} stands at {written.place}; waiting for the run that lands it")
        landed = _landed(written, seconds if wait else 0.0)
    if landed:
        said = (
            f"{name}: {text} has landed, and tables have the tag; headwater history {name} names those that could not"
        )
    else:
        said = f"{name}: {text} stands at {written.place}, and lands with the next run that gets there"
    out.value({"pipeline": name, "label": text, "place": written.place, "landed": landed}, said)
    if wait and not landed:
        raise typer.Exit(_NOT_LANDED)


def _seconds(timeout: str) -> float:
    from headwater.config.frozen import parse_duration  # noqa: PLC0415 - not paid for by --help

    try:
        return parse_duration(timeout).total_seconds()
    except ValueError as error:
        raise InputError(f"--timeout {timeout}: {error}") from error


def _landed(label: WrittenLabel, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not label.landed():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
