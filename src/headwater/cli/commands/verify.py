"""`headwater verify`: whether tables equal their source."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import File, Name, ProjectFlags, Yes, confirm, seconds_of
from headwater.cli.output import Output, mark_json, table
from headwater.model.errors import InputError

if TYPE_CHECKING:
    from headwater.engine.verify.report import ComparedTable, RepairedTable, VerifyReport
    from headwater.model.position.marks import Json

DIFFERENT = 1  # the exit code


def verify(
    out: Output,
    flags: ProjectFlags,
    name: Name,
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Read missing and different rows again, and land them. Asks first.")
    ] = False,
    delete_extra: Annotated[
        bool,
        typer.Option(
            "--delete-extra", help="With --repair: remove rows that only the table has, such as deleted ones."
        ),
    ] = False,
    keep_extra: Annotated[
        bool,
        typer.Option("--keep-extra", help="Show rows that only the table has, but do not count them as differences."),
    ] = False,
    stream: Annotated[list[str] | None, typer.Option("--stream", help="Only this stream. Repeatable.")] = None,
    sink: Annotated[
        str,
        typer.Option(
            "--sink", metavar="ID", help="Only this sink: 2:iceberg, or 2. Default: all that can be verified."
        ),
    ] = "",
    ranges: Annotated[
        int | None,
        typer.Option("--ranges", min=1, max=65536, help="How many ranges of the key get a checksum each."),
    ] = None,
    examples: Annotated[int, typer.Option("--examples", min=0, help="Keys to show of each kind of difference.")] = 5,
    wait: Annotated[
        str,
        typer.Option(
            "--wait", metavar="DURATION", help="How long to wait for the mark, or for another process's cycle."
        ),
    ] = "10m",
    file: File = None,
    yes: Yes = False,
) -> None:
    """Compare tables with their source, row for row.

    At one position, while both keep changing. Exits 0 if they are equal or repaired, 1 if they differ.
    """
    from headwater.cli.event_log import event_log
    from headwater.cli.project import find_pipeline, open_project
    from headwater.engine.verify.verify import VerifyRequest

    if delete_extra and (keep_extra or not repair):
        raise InputError("--delete-extra needs --repair and excludes --keep-extra", hint="choose one")
    request = VerifyRequest(tuple(stream or ()), sink, ranges, seconds_of("--wait", wait), delete_extra)

    def ask(report: VerifyReport) -> bool:
        if keep_extra and not any(_differences(table, keep_extra=True) for table in report.tables):
            return False
        out.say(report_text(report, examples, keep_extra=keep_extra))
        confirm(out, "repair", yes=yes)
        return True

    # A live display and a question do not share a terminal.
    log = contextlib.nullcontext() if repair and not yes else event_log(out.err)
    with log as events, open_project(flags, out, [file] if file else [], events) as project:
        report = find_pipeline(project, name, file).verify(request, repair=ask if repair else None)
    out.value(
        report_json(report, examples, keep_extra=keep_extra),
        report_text(report, examples, keep_extra=keep_extra),
    )
    if not is_right(report, keep_extra=keep_extra):
        raise typer.Exit(DIFFERENT)


def _differences(result: ComparedTable, *, keep_extra: bool) -> int:
    """The number of rows to repair."""
    counts = result.counts
    return counts["missing"] + counts["different"] + (0 if keep_extra else counts["extra"])


def is_right(report: VerifyReport, *, keep_extra: bool) -> bool:
    """Whether no differences remain."""
    repaired = {(result.sink, result.stream): result for result in report.repaired}
    return all(
        _remaining(result, repaired.get((result.sink, result.stream)), keep_extra=keep_extra) == 0
        for result in report.tables
    )


def _remaining(result: ComparedTable, repaired: RepairedTable | None, *, keep_extra: bool) -> int:
    if repaired is None:
        return _differences(result, keep_extra=keep_extra)
    extra = 0 if keep_extra or result.follows_deletes else result.counts["extra"] - repaired.removed
    return repaired.unrepaired + max(extra, 0)


def report_json(report: VerifyReport, examples: int, *, keep_extra: bool) -> dict[str, Json]:
    """The public JSON shape."""
    return {
        "pipeline": report.pipeline,
        "mark": mark_json(report.mark),
        "equal": is_right(report, keep_extra=keep_extra),
        "tables": [{**result.to_json(examples), "mark": mark_json(result.mark)} for result in report.tables],
        "refused": [result.to_json() for result in report.skipped],
        "repaired": [result.to_json() for result in report.repaired] if report.was_repaired else None,
        "seconds": round(report.seconds, 3),
    }


def report_text(report: VerifyReport, examples: int, *, keep_extra: bool) -> str:
    """The same for people."""
    lines = [f"{report.pipeline}: compared at {report.mark}"]
    columns = ("table", "source", "ranges", "rows", "missing", "different", "extra")
    rows = [
        (result.table, result.stream, result.ranges, result.table_rows, *result.counts.values())
        for result in report.tables
    ]
    lines += [table(columns, rows)] if rows else []
    for result in report.tables:
        if result.mark not in (None, report.mark):
            lines.append(f"  {result.table} was compared at {result.mark}")
        lines += _remarks(result, examples)
    lines += [f"not compared: {result.stream} in {result.sink}: {result.why}" for result in report.skipped]
    for repaired in report.repaired:
        unrepaired = f", {repaired.unrepaired:,} not found in the source" if repaired.unrepaired else ""
        lines.append(
            f"repaired {repaired.stream} in {repaired.sink}: {repaired.landed:,} rows landed, {repaired.removed:,} removed{unrepaired}"
        )
    right = is_right(report, keep_extra=keep_extra)
    verdict = "repaired" if right and report.was_repaired else "equal" if right else "different"
    return "\n".join([*lines, f"{verdict}, in {report.seconds:.1f} s"])


def _remarks(result: ComparedTable, examples: int) -> Iterator[str]:
    from headwater.engine.verify.report import key_text

    for difference, keys in result.examples(examples).items():
        if keys:
            more = ", …" if result.counts[difference] > len(keys) else ""
            yield f"  {difference} ({', '.join(result.key)}): {', '.join(map(key_text, keys))}{more}"
    if result.waiting:
        yield f"  {result.waiting:,} rows of {result.stream} not compared: no window has read them yet"
    if result.rejected:
        yield f"  {result.rejected:,} rows of {result.stream} are rejected"
