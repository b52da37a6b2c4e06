"""`headwater rewind`: the only command that may move a mark back; the move is on record (G3)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import File, Name, ProjectFlags, Yes, confirm
from headwater.cli.output import Output, mark_json
from headwater.model.errors import InputError
from headwater.model.json_codec import to_json
from headwater.model.position.marks import Json

if TYPE_CHECKING:
    from headwater.engine.operations.rebuild import Rebuilt

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
            help="The new mark: the next cycle reads the rows after it. snapshot: copy captured tables again.",
        ),
    ] = None,
    skip_gap: Annotated[
        bool,
        typer.Option(
            "--skip-gap",
            help="Continue after offsets that the source no longer has; the rest of the mark stays. Kafka.",
        ),
    ] = False,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="Rebuild tables of mode merge and history from the table of mode changes, up to the mark, or to --to. "
            "Shows the differences before it publishes.",
        ),
    ] = False,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for the history.")],
    file: File = None,
    yes: Yes = False,
) -> None:
    """Move a pipeline's mark, back or forward.

    Shows the move and asks first; the history records who, when and why.
    """
    from headwater.cli.project import find_pipeline, open_project

    if (to is None) is not skip_gap and not (rebuild and not skip_gap):
        raise InputError("rewind needs one target", hint="write --to VALUE, or --skip-gap")
    if tables and to != "snapshot":
        raise InputError("tables can be named only with --to snapshot", hint="write --to snapshot TABLE…")
    to = SKIP_GAP if skip_gap else shlex.join([to, *(tables or ())]) if to == "snapshot" else to
    with open_project(flags, out, [file] if file else []) as project:
        pipeline = find_pipeline(project, name, file)
        before = pipeline.progress()
        moves = "stays" if to is None else f"moves to {to}"
        out.say(f"{name}: the mark is {before.mark or 'not set'} and {moves} in {project.store.address}")
        if to is not None and before.mark is not None:
            out.say("  the next cycle reads the rows after it; an appending sink receives them a second time")
        if before.intent:
            out.say(f"  abandons the unfinished window: {before.intent.window}")
        for paused in before.paused:
            out.say(f"  {paused.stream} is no longer paused, and is read from there too")
        if rebuild:
            tables_json: list[Json] = []
            after = pipeline.rewind(to, why=why, rebuild=partial(_confirm_rebuild, out, tables_json, yes=yes))
        else:
            confirm(out, "rewind", yes=yes)
            after = pipeline.rewind(to, why=why)
    data = {
        "pipeline": name,
        "store": project.store.address,
        "epoch": after.epoch,
        "from": mark_json(before.mark),
        "mark": mark_json(after.mark),
        **({"rebuilt": tables_json} if rebuild else {}),
    }
    out.value(data, f"{name}: {before.mark or 'none'} → {after.mark or 'none'}")


def _confirm_rebuild(out: Output, tables_json: list[Json], rebuilt: Sequence[Rebuilt], *, yes: bool) -> bool:
    """Show how each table would change, and ask."""
    for table in rebuilt:
        tables_json.append(to_json(table))
        changes = f"{table.added:,} rows added, {table.lost:,} removed" if table.differs else "no differences"
        out.say(f"  {table.table}: {table.rows:,} rows; {changes}")
    confirm(out, "publish", yes=yes)
    return True
