"""`headwater rewind`: the one move that may take a mark back, asked for and on record (G3)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.completion import Name
from headwater.cli.output import Output
from headwater.cli.shapes import mark_json
from headwater.model.errors import InputError
from headwater.model.marks import Json

if TYPE_CHECKING:
    from headwater.engine.rebuild import Rebuilt

SKIP_GAP = "skip-gap"  # as a source's `position` knows it


def rewind(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]...", help="With --to snapshot: copy only these again.", show_default=False),
    ] = None,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="VALUE|start|earliest|latest|snapshot",
            help="Where the mark goes: rows after it are read. snapshot: copy captured tables again.",
        ),
    ] = None,
    skip_gap: Annotated[
        bool,
        typer.Option(
            "--skip-gap", help="Go on behind what the source no longer has; the rest of the mark stays. Kafka."
        ),
    ] = False,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="Make tables of mode merge and history anew from the log (mode changes), up to the mark, or to --to. "
            "Shows what differs before it is published.",
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

    if (to is None) is not skip_gap and not (rebuild and not skip_gap):
        raise InputError("rewind needs one target", hint="write --to VALUE, or --skip-gap")
    if tables and to != "snapshot":
        raise InputError("tables are named where they are copied again", hint="write --to snapshot TABLE…")
    to = SKIP_GAP if skip_gap else shlex.join([to, *(tables or ())]) if to == "snapshot" else to
    with opened_project(flags, out, [file] if file else []) as project:
        pipeline = pipeline_named(project, name, file)
        before = pipeline.progress()
        out.say(f"{name}: the mark stands at {before.mark or 'none'} and {_moves(to)} in {project.store.address}")
        if to is not None:
            out.say("  the next cycle reads the rows after it; a sink that appends gets rows again that it already has")
        if before.intent:
            out.say(f"  an unfinished window is given up: {before.intent.window}")
        for waiting in before.waiting:
            out.say(f"  {waiting.stream} waits no longer, and is read from there like all others")
        if rebuild:
            shown: list[dict[str, Json]] = []
            after = pipeline.rewind(to, why=why, rebuild=partial(_agreed, out, shown, ask=not yes))
        else:
            if not yes:
                confirm(out, "rewind")
            after = pipeline.rewind(to, why=why)
    data = {
        "pipeline": name,
        "store": project.store.address,
        "epoch": after.epoch,
        "from": mark_json(before.mark),
        "mark": mark_json(after.mark),
        **({"rebuilt": shown} if rebuild else {}),
    }
    out.value(data, f"{name}: {before.mark or 'none'} → {after.mark or 'none'}")


def _moves(to: str | None) -> str:
    return "stays there" if to is None else f"goes to {to}"


def _agreed(out: Output, shown: list[dict[str, Json]], found: Sequence[Rebuilt], *, ask: bool) -> bool:
    """Show what would become of each table; where something differs, ask."""
    for one in found:
        shown.append({"table": one.table, "rows": one.rows, "added": one.added, "lost": one.lost})
        changes = f"{one.added:,} rows come, {one.lost:,} go" if one.differs else "nothing differs"
        out.say(f"  {one.table}: {one.rows:,} rows; {changes}")
    if ask:
        confirm(out, "publish")
    return True


def confirm(out: Output, what: str) -> None:
    """Ask on the terminal. Where nobody can answer, refuse (exit 2)."""
    if not sys.stdin.isatty():
        raise InputError(f"{what} asks before it acts, and nobody can answer here", hint="add --yes")
    out.err.write(f"{what}? [y/N] ")
    out.err.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise InputError("not confirmed; nothing was changed")
