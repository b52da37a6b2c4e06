"""`headwater bookmarks …`: what a source of objects remembers of each."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.completion import Name
from headwater.cli.output import Output, table
from headwater.cli.rejects import File
from headwater.model.errors import InputError

if TYPE_CHECKING:
    from headwater.engine.bookmark_desk import BookmarkDesk
    from headwater.model.marks import Json

Key = Annotated[str, typer.Argument(metavar="KEY", help="The object's key, as `bookmarks list` shows it.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def list_bookmarks(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    *,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only these: landed, pending, failed, aside, gone. Default: all but gone."),
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Only keys that begin so.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many, in the order of keys.")] = 100,
    file: File = None,
) -> None:
    """List what is remembered of each object.

    landed: its rows are in every sink. pending: staged for a window. failed: to be tried again. aside: failed too often.
    """
    from headwater.engine.bookmark_desk import STANDINGS  # noqa: PLC0415 - not paid for by --help

    unknown = sorted(set(state or ()) - set(STANDINGS))
    if unknown:
        raise InputError(f"--state {unknown[0]} is none", hint=f"write one of {', '.join(STANDINGS)}")
    wanted = state or [standing for standing in STANDINGS if standing != "gone"]
    with _desk(out, flags, name, file) as desk:
        found = list(islice(desk.all(wanted, prefix), limit + 1))  # type: ignore[arg-type]
    shown = found[:limit]
    rows = [(row["key"], row["standing"], row["size"], _seconds(row["modified"]), row["reason"][:60]) for row in shown]
    text = table(("key", "state", "bytes", "modified (UTC)", "reason"), rows) if rows else f"{name}: no bookmarks"
    out.value({"pipeline": name, "bookmarks": [_json(row) for row in shown]}, text)
    if len(found) > limit:
        out.say(f"the first {limit:,}: there are more, see `headwater bookmarks count {name}` and --limit")


def show(out: Output, flags: ProjectFlags, name: Name, key: Key, *, file: File = None) -> None:
    """Show all that is remembered of one object."""
    with _desk(out, flags, name, file) as desk:
        row = desk.get(key)
    lines = [f"{field:<11} {value}" for field, value in _json(row).items() if value not in ("", None)]
    out.value(_json(row), "\n".join(lines))


def count(out: Output, flags: ProjectFlags, name: Name, *, file: File = None) -> None:
    """Count objects by state."""
    with _desk(out, flags, name, file) as desk:
        counted = desk.count()
    data = {state: {"objects": objects, "bytes": size} for state, (objects, size) in counted.items()}
    rows = [(state, f"{objects:,}", f"{size:,}") for state, (objects, size) in counted.items()]
    out.value({"pipeline": name, **data}, table(("state", "objects", "bytes"), rows))


def remove(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    keys: Annotated[list[str], typer.Argument(metavar="KEY…", help="The objects' keys.")],
    *,
    file: File = None,
    yes: Yes = False,
) -> None:
    """Forget objects, so that they are read again.

    Objects that are not there any more are just forgotten.
    """
    with _desk(out, flags, name, file) as desk:
        for key in keys:
            desk.get(key)
        out.say(f"{name}: {len(keys):,} bookmark{'s are' if len(keys) != 1 else ' is'} removed from {desk.topic}")
        out.say("  the next cycle reads the objects that are still there; a sink that appends gets their rows again")
        _confirmed(out, "remove", yes=yes)
        desk.remove(keys)
    out.value({"pipeline": name, "removed": keys}, f"{name}: {len(keys):,} removed")


def retry(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY…]", help="Only these; without any, all.")] = None,
    *,
    file: File = None,
) -> None:
    """Let the next cycle try objects again that could not be read."""
    with _desk(out, flags, name, file) as desk:
        tried = desk.try_again(keys or [])
    out.value({"pipeline": name, "retried": tried}, f"{name}: {tried:,} will be tried by the next cycle")


def export(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    path: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Default: standard output.")] = None,
    *,
    file: File = None,
) -> None:
    """Write the bookmarks of landed objects as JSON.

    In the shape of a bookmarks.json: topic (the bucket), partition (the key), offset, timestamp, metadata.
    """
    with _desk(out, flags, name, file) as desk:
        if path is None:
            for piece in _exported(desk):
                sys.stdout.write(piece)
            return
        temporary = path.with_name(f".{path.name}.new")
        with temporary.open("w", encoding="utf-8") as written:
            written.writelines(_exported(desk))
        temporary.replace(path)
        landed = desk.count()["landed"][0]
    out.value({"pipeline": name, "exported": landed, "file": str(path)}, f"{name}: {landed:,} bookmarks in {path}")


def import_bookmarks(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="As `bookmarks export` or another tool wrote it.")],
    *,
    file: File = None,
    yes: Yes = False,
) -> None:
    """Take objects for read that a bookmarks.json names.

    An object that has changed since its bookmark is read all the same.
    """
    from headwater.progress.bookmarks import read_file  # noqa: PLC0415 - not paid for by --help

    _, bookmarks = read_file(path)
    with _desk(out, flags, name, file) as desk:
        out.say(f"{name}: {len(bookmarks):,} bookmarks of {path}: objects of {desk.topic} that they name are not read")
        _confirmed(out, "import", yes=yes)
        done = desk.take_in(bookmarks)
    text = (
        f"{name}: {done.known:,} objects count as read, {done.newer:,} have changed since and will be read, "
        f"{done.missing:,} are not there, {done.others:,} bookmarks are of other topics"
    )
    out.value({"pipeline": name, **vars(done)}, text)


def _exported(desk: BookmarkDesk) -> Iterator[str]:
    """One entry after the other: there may be millions."""
    from headwater.progress.bookmarks import VERSION, iso  # noqa: PLC0415 - as above

    now = iso(dt.datetime.now(dt.UTC))
    yield f'{{\n  "version": "{VERSION}",\n  "created_at": "{now}",\n  "updated_at": "{now}",\n  "bookmarks": ['
    between = "\n"
    for bookmark in desk.export():
        lines = json.dumps(bookmark.to_dict(), indent=2, ensure_ascii=False).replace("\n", "\n    ")
        yield f"{between}    {lines}"
        between = ",\n"
    yield "\n  ]\n}\n" if between != "\n" else "]\n}\n"


@contextmanager
def _desk(out: Output, flags: ProjectFlags, name: str, file: Path | None) -> Iterator[BookmarkDesk]:
    from headwater.cli.opening import opened_project, pipeline_named  # noqa: PLC0415 - not paid for by --help

    with (
        opened_project(flags, out, [file] if file else []) as project,
        pipeline_named(project, name, file).bookmarks() as desk,
    ):
        yield desk


def _confirmed(out: Output, what: str, *, yes: bool) -> None:
    from headwater.cli.rewind import confirm  # noqa: PLC0415 - as above

    if not yes:
        confirm(out, what)


def _json(row: dict[str, Any]) -> dict[str, Json]:
    return {
        "key": row["key"],
        "state": row["standing"],
        "etag": row["etag"],
        "size": row["size"],
        "modified": row["modified"].isoformat(),
        "generation": row["generation"],
        "tries": row["tries"],
        "reason": row["reason"],
        "retry_at": row["retry_at"].isoformat() if row["retry_at"] else None,
        "run": row["run"],
    }


def _seconds(moment: dt.datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
