"""`headwater bookmarks …`: the bookmark of each object of a source."""

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

from headwater.cli.command import File, Name, ProjectFlags, Yes, confirm
from headwater.cli.output import Output, table
from headwater.model.errors import InputError

if TYPE_CHECKING:
    from headwater.engine.operations.bookmarks import PipelineBookmarks
    from headwater.model.position.marks import Json

Key = Annotated[str, typer.Argument(metavar="KEY", help="The object's key, as in `bookmarks list`.")]


def list_bookmarks(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    *,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only these: landed, pending, failed, aside, gone. Default: all but gone."),
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Only keys with this prefix.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show at most this many, in the order of keys.")] = 100,
    file: File = None,
) -> None:
    """List the bookmarks of objects.

    landed: its rows are in every sink. pending: staged for a window. failed: will be retried. aside: failed too often.
    """
    from headwater.engine.operations.bookmarks import STANDINGS

    unknown = sorted(set(state or ()) - set(STANDINGS))
    if unknown:
        raise InputError(f"--state {unknown[0]} is unknown", hint=f"write one of {', '.join(STANDINGS)}")
    states = state or [state_name for state_name in STANDINGS if state_name != "gone"]
    with _open_bookmarks(out, flags, name, file) as bookmarks:
        matches = list(islice(bookmarks.all(states, prefix), limit + 1))  # type: ignore[arg-type]
    page = matches[:limit]
    rows = [
        (row["key"], row["standing"], row["size"], f"{row['modified']:%Y-%m-%d %H:%M:%S}", row["reason"][:60])
        for row in page
    ]
    text = table(("key", "state", "bytes", "modified (UTC)", "reason"), rows) if rows else f"{name}: no bookmarks"
    out.value({"pipeline": name, "bookmarks": [_json(row) for row in page]}, text)
    if len(matches) > limit:
        out.say(f"the first {limit:,} of more: see `headwater bookmarks count {name}`, and raise --limit")


def show(out: Output, flags: ProjectFlags, name: Name, key: Key, *, file: File = None) -> None:
    """Show the bookmark of one object."""
    with _open_bookmarks(out, flags, name, file) as bookmarks:
        row = bookmarks.get(key)
    lines = [f"{field:<11} {value}" for field, value in _json(row).items() if value not in ("", None)]
    out.value(_json(row), "\n".join(lines))


def count(out: Output, flags: ProjectFlags, name: Name, *, file: File = None) -> None:
    """Count objects by state."""
    with _open_bookmarks(out, flags, name, file) as bookmarks:
        counts = bookmarks.count()
    data = {state: {"objects": objects, "bytes": size} for state, (objects, size) in counts.items()}
    rows = [(state, f"{objects:,}", f"{size:,}") for state, (objects, size) in counts.items()]
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
    """Remove bookmarks, so that their objects are read again.

    Bookmarks of deleted objects are only removed.
    """
    with _open_bookmarks(out, flags, name, file) as bookmarks:
        for key in keys:
            bookmarks.get(key)
        out.say(f"{name}: {len(keys):,} bookmark{'s' * (len(keys) != 1)} of {bookmarks.topic} will be removed")
        out.say("  the next cycle reads those objects that still exist; an appending sink receives their rows again")
        confirm(out, "remove", yes=yes)
        bookmarks.remove(keys)
    out.value({"pipeline": name, "removed": keys}, f"{name}: {len(keys):,} removed")


def retry(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY…]", help="Only these; by default all.")] = None,
    *,
    file: File = None,
) -> None:
    """Let the next cycle retry objects that failed."""
    with _open_bookmarks(out, flags, name, file) as bookmarks:
        count = bookmarks.try_again(keys or [])
    out.value({"pipeline": name, "retried": count}, f"{name}: the next cycle retries {count:,}")


def export(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    path: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Default: standard output.")] = None,
    *,
    file: File = None,
) -> None:
    """Write the bookmarks of landed objects as JSON.

    In the format of bookmarks.json: topic (the bucket), partition (the key), offset, timestamp, metadata.
    """
    with _open_bookmarks(out, flags, name, file) as bookmarks:
        if path is None:
            for text in _export_text(bookmarks):
                sys.stdout.write(text)
            return
        temporary = path.with_name(f".{path.name}.new")
        with temporary.open("w", encoding="utf-8") as target:
            target.writelines(_export_text(bookmarks))
        temporary.replace(path)
        landed = bookmarks.count()["landed"][0]
    out.value({"pipeline": name, "exported": landed, "file": str(path)}, f"{name}: {landed:,} bookmarks in {path}")


def import_bookmarks(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Written by `bookmarks export` or another tool.")],
    *,
    file: File = None,
    yes: Yes = False,
) -> None:
    """Mark the objects of a bookmarks.json as read.

    An object that has changed since its bookmark is still read.
    """
    from headwater.progress.bookmark_file import read_file

    _, entries = read_file(path)
    with _open_bookmarks(out, flags, name, file) as bookmarks:
        out.say(f"{name}: {len(entries):,} bookmarks of {path}: their objects of {bookmarks.topic} count as read")
        confirm(out, "import", yes=yes)
        result = bookmarks.take_in(entries)
    text = (
        f"{name}: {result.known:,} objects count as read, {result.newer:,} changed since and will be read, "
        f"{result.missing:,} do not exist, {result.others:,} bookmarks belong to other topics"
    )
    out.value({"pipeline": name, **vars(result)}, text)


def _export_text(bookmarks: PipelineBookmarks) -> Iterator[str]:
    """Entry by entry: there may be millions."""
    from headwater.progress.bookmark_file import VERSION, iso

    now = iso(dt.datetime.now(dt.UTC))
    yield f'{{\n  "version": "{VERSION}",\n  "created_at": "{now}",\n  "updated_at": "{now}",\n  "bookmarks": ['
    separator = "\n"
    for bookmark in bookmarks.export():
        lines = json.dumps(bookmark.to_dict(), indent=2, ensure_ascii=False).replace("\n", "\n    ")
        yield f"{separator}    {lines}"
        separator = ",\n"
    yield "\n  ]\n}\n" if separator != "\n" else "]\n}\n"


@contextmanager
def _open_bookmarks(out: Output, flags: ProjectFlags, name: str, file: Path | None) -> Iterator[PipelineBookmarks]:
    from headwater.cli.project import find_pipeline, open_project

    with (
        open_project(flags, out, [file] if file else []) as project,
        find_pipeline(project, name, file).bookmarks() as bookmarks,
    ):
        yield bookmarks


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
