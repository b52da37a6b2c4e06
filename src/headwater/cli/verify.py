"""`headwater verify`: is what landed what the source has?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.completion import Name
from headwater.cli.output import Output, table
from headwater.cli.rewind import confirm
from headwater.cli.shapes import mark_json
from headwater.model.errors import InputError

if TYPE_CHECKING:
    from headwater.engine.verify.report import Compared, Repaired, Verified
    from headwater.model.marks import Json

DIFFERENT = 1  # the exit code


def verify(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Read again what is missing or different, and land it. Asks first.")
    ] = False,
    delete_extra: Annotated[
        bool,
        typer.Option(
            "--delete-extra", help="With --repair: remove rows that only the table has, such as deleted ones."
        ),
    ] = False,
    keep_extra: Annotated[
        bool, typer.Option("--keep-extra", help="Rows that only the table has are shown, and are no difference.")
    ] = False,
    stream: Annotated[list[str] | None, typer.Option("--stream", help="Only this stream. Repeatable.")] = None,
    sink: Annotated[
        str,
        typer.Option("--sink", metavar="LABEL", help="Only this sink: 2:iceberg, or 2. By default all that can be."),
    ] = "",
    ranges: Annotated[
        int | None,
        typer.Option("--ranges", min=1, max=65536, help="How many ranges of the key have sums of their own."),
    ] = None,
    examples: Annotated[int, typer.Option("--examples", min=0, help="Keys shown of each kind of difference.")] = 5,
    wait: Annotated[
        str,
        typer.Option(
            "--wait", metavar="DURATION", help="How long to wait for the mark, or for another process's cycle."
        ),
    ] = "10m",
    file: Annotated[
        Path | None,
        typer.Option("--file", help="The pipeline's file. Default: the one with that name beside headwater.yaml."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Compare tables with their source, row for row.

    At one position, while both go on. Exits 0 if they are equal or were repaired, 1 if they differ.
    """
    from headwater.cli.event_log import event_log  # noqa: PLC0415 - not paid for by --help
    from headwater.cli.opening import opened_project, pipeline_named  # noqa: PLC0415
    from headwater.engine.verify.verifying import VerifyOrder  # noqa: PLC0415

    if delete_extra and (keep_extra or not repair):
        raise InputError("--delete-extra needs --repair, and nothing else to do with extra rows", hint="choose one")
    order = VerifyOrder(tuple(stream or ()), sink, ranges, _seconds(wait), delete_extra)

    def agreed(found: Verified) -> bool:
        if keep_extra and not any(_wrong(one, keep_extra=True) for one in found.tables):
            return False
        out.say(verified_text(found, examples, keep_extra=keep_extra))
        if not yes:
            confirm(out, "repair")
        return True

    # A live display and a question do not share a terminal.
    log = contextlib.nullcontext() if repair and not yes else event_log(out.err)
    with log as events, opened_project(flags, out, [file] if file else [], events) as project:
        verified = pipeline_named(project, name, file).verify(order, repair=agreed if repair else None)
    out.value(
        verified_json(verified, examples, keep_extra=keep_extra),
        verified_text(verified, examples, keep_extra=keep_extra),
    )
    if not is_right(verified, keep_extra=keep_extra):
        raise typer.Exit(DIFFERENT)


def _seconds(text: str) -> float:
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - as above

    from headwater.config.frozen import Duration  # noqa: PLC0415

    try:
        return float(TypeAdapter(Duration).validate_python(text).total_seconds())
    except ValidationError:
        raise InputError(f"--wait: {text!r} is no duration", hint="write for example 30s or 10m") from None


def _wrong(one: Compared, *, keep_extra: bool) -> int:
    """Rows that should be other than they are."""
    counts = one.counts
    return counts["missing"] + counts["different"] + (0 if keep_extra else counts["extra"])


def is_right(verified: Verified, *, keep_extra: bool) -> bool:
    """Whether nothing is left to do."""
    done = {(one.sink, one.stream): one for one in verified.repaired}
    return all(_left(one, done.get((one.sink, one.stream)), keep_extra=keep_extra) == 0 for one in verified.tables)


def _left(one: Compared, repaired: Repaired | None, *, keep_extra: bool) -> int:
    if repaired is None:
        return _wrong(one, keep_extra=keep_extra)
    extra = 0 if keep_extra or one.follows_deletes else one.counts["extra"] - repaired.removed
    return repaired.left + max(extra, 0)


def verified_json(verified: Verified, examples: int, *, keep_extra: bool) -> dict[str, Json]:
    """For machines."""
    return {
        "pipeline": verified.pipeline,
        "mark": mark_json(verified.mark),
        "equal": is_right(verified, keep_extra=keep_extra),
        "tables": [{**one.to_json(examples), "mark": mark_json(one.mark)} for one in verified.tables],
        "refused": [one.to_json() for one in verified.refused],
        "repaired": [one.to_json() for one in verified.repaired] if verified.was_repaired else None,
        "seconds": round(verified.seconds, 3),
    }


def verified_text(verified: Verified, examples: int, *, keep_extra: bool) -> str:
    """For people."""
    lines = [f"{verified.pipeline}: compared at {verified.mark}"]
    columns = ("table", "source", "ranges", "rows", "missing", "different", "extra")
    rows = [(one.table, one.stream, one.ranges, one.table_rows, *one.counts.values()) for one in verified.tables]
    lines += [table(columns, rows)] if rows else []
    for one in verified.tables:
        if one.mark not in (None, verified.mark):
            lines.append(f"  {one.table} was compared at {one.mark}")
        lines += _remarks(one, examples)
    lines += [f"not compared: {one.stream} in {one.sink}: {one.why}" for one in verified.refused]
    for done in verified.repaired:
        left = f", {done.left:,} could not be found again" if done.left else ""
        lines.append(
            f"repaired {done.stream} in {done.sink}: {done.landed:,} rows landed, {done.removed:,} removed{left}"
        )
    right = is_right(verified, keep_extra=keep_extra)
    said = "repaired" if right and verified.was_repaired else "equal" if right else "different"
    return "\n".join([*lines, f"{said}, in {verified.seconds:.1f} s"])


def _remarks(one: Compared, examples: int) -> Iterator[str]:
    from headwater.engine.verify.report import key_text  # noqa: PLC0415 - as above

    for kind, keys in one.examples(examples).items():
        if keys:
            more = ", …" if one.counts[kind] > len(keys) else ""
            yield f"  {kind} ({', '.join(one.key)}): {', '.join(map(key_text, keys))}{more}"
    if one.waiting:
        yield f"  {one.waiting:,} rows of {one.stream} are left out: no window has brought them yet"
    if one.aside:
        yield f"  {one.aside:,} rows of {one.stream} cannot be kept, and are set aside"
