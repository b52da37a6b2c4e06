"""`headwater label`: names this moment, so that all tables of a pipeline can be read as of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import File, Name, ProjectFlags, seconds_of
from headwater.cli.output import Output

if TYPE_CHECKING:
    from headwater.engine.labels import WrittenLabel

_POLL_SECONDS = 0.5
_NOT_LANDED = 1


def label(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A new label: letters, digits, '.', '_' and '-'.")],
    *,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="Wait until the run in another process has landed it (the default), or do not wait.",
            show_default=False,
        ),
    ] = True,
    timeout: Annotated[str, typer.Option("--timeout", metavar="DURATION", help="How long to wait.")] = "10m",
    file: File = None,
) -> None:
    """Label this moment in the WAL of the source.

    The run lands every earlier commit first, then tags each Iceberg table with that name. For postgres sources.
    Exits 1 if the label is written but not landed in time: a later run lands it.
    """
    from headwater.cli.project import find_pipeline, open_project

    seconds = seconds_of("--timeout", timeout)
    with open_project(flags, out, [file] if file else []) as project:
        pipeline = find_pipeline(project, name, file)
        written = pipeline.label(text)
        if wait:
            out.say(f"{name}: {text} is at {written.lsn}; waiting for the run to land it")
        landed = _wait_until_landed(written, seconds if wait else 0.0)
    if landed:
        message = f"{name}: {text} landed, and tables have the tag; headwater history {name} lists exceptions"
    else:
        message = f"{name}: {text} is at {written.lsn}; the next run that reaches it lands it"
    out.value({"pipeline": name, "label": text, "place": written.lsn, "landed": landed}, message)
    if wait and not landed:
        raise typer.Exit(_NOT_LANDED)


def _wait_until_landed(label: WrittenLabel, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not label.landed():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
