"""`headwater rewind`: the one move that may take a mark back, asked for and on record (G3)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.completion import Name
from headwater.cli.output import Output
from headwater.cli.shapes import mark_json
from headwater.model.errors import InputError

SKIP_GAP = "skip-gap"  # as a source's `position` knows it


def rewind(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="VALUE|start|earliest|latest", help="Where the mark goes: rows after it are read."
        ),
    ] = None,
    skip_gap: Annotated[
        bool,
        typer.Option(
            "--skip-gap", help="Go on behind what the source no longer has; the rest of the mark stays. Kafka."
        ),
    ] = False,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason; it stays in the history.")],
    file: Annotated[
        Path | None,
        typer.Option("--file", help="The pipeline's file. Default: the one with that name beside headwater.yaml."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Move a pipeline's mark, back or forth.

    Shows what it does and asks first; the history keeps who, when and why.
    """
    from headwater.cli.opening import opened_project, pipeline_named  # noqa: PLC0415 - not paid for by --help

    if (to is None) is not skip_gap:
        raise InputError("rewind needs one target", hint="write --to VALUE, or --skip-gap")
    to = SKIP_GAP if to is None else to
    with opened_project(flags, out, [file] if file else []) as project:
        pipeline = pipeline_named(project, name, file)
        before = pipeline.progress()
        out.say(f"{name}: the mark stands at {before.mark or 'none'} and goes to {to} in {project.store.address}")
        out.say("  the next cycle reads the rows after it; a sink that appends gets rows again that it already has")
        if before.intent:
            out.say(f"  an unfinished window is given up: {before.intent.window}")
        if not yes:
            confirm(out, "rewind")
        after = pipeline.rewind(to, why=why)
    data = {
        "pipeline": name,
        "store": project.store.address,
        "epoch": after.epoch,
        "from": mark_json(before.mark),
        "mark": mark_json(after.mark),
    }
    out.value(data, f"{name}: {before.mark or 'none'} → {after.mark or 'none'}")


def confirm(out: Output, what: str) -> None:
    """Ask on the terminal. Where nobody can answer, refuse (exit 2)."""
    if not sys.stdin.isatty():
        raise InputError(f"{what} asks before it acts, and nobody can answer here", hint="add --yes")
    out.err.write(f"{what}? [y/N] ")
    out.err.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise InputError("not confirmed; nothing was changed")
