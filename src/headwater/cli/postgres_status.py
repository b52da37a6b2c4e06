"""`headwater postgres status`: the slots of pipelines, what they make their servers keep, and how far they are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.output import Output, error_json, table
from headwater.model.errors import HeadwaterError, InputError

if TYPE_CHECKING:
    from headwater.api import Pipeline
    from headwater.config.postgres_source import PostgresSource
    from headwater.model.lsn_mark import LsnMark
    from headwater.model.marks import Json
    from headwater.sources.postgres.guard.reporting import SlotReport

_UNHEALTHY = 1


def status(
    out: Output,
    flags: ProjectFlags,
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|DIR|NAME]…",
            help="Pipeline files, folders of them, or names. Default: all beside headwater.yaml.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the replication slots of pipelines, and how far they are.

    What each makes its server keep, its budget, the oldest transaction, the tables. Exits 1 if something needs attention.
    """
    from headwater.cli.opening import opened_project, pipelines_meant  # noqa: PLC0415 - not paid for by --help

    texts = given or []
    with opened_project(flags, out, [Path(text) for text in texts if Path(text).exists()]) as project:
        found = [_seen(pipeline) for pipeline in pipelines_meant(project, texts) if pipeline.settings.source.postgres]
    if not found:
        raise InputError("none of these pipelines has a source of kind postgres", hint="name another file or folder")
    healthy = all(data["healthy"] for data, _ in found)
    out.value({"healthy": healthy, "pipelines": [data for data, _ in found]}, "\n\n".join(text for _, text in found))
    if not healthy:
        raise typer.Exit(_UNHEALTHY)


def _seen(pipeline: Pipeline) -> tuple[dict[str, Json], str]:
    from headwater.model.lsn_mark import LsnMark  # noqa: PLC0415 - not paid for by --help
    from headwater.sources.postgres.guard.reporting import report  # noqa: PLC0415

    settings, mark = pipeline.settings.source.postgres, pipeline.progress().mark
    assert settings is not None  # noqa: S101 - only such pipelines come here
    known = mark if isinstance(mark, LsnMark) else None
    try:
        seen = report(settings, known)
    except HeadwaterError as error:
        data: dict[str, Json] = {"pipeline": pipeline.name, "healthy": False, "error": error_json(error)}
        return data, f"{pipeline.name}: {error}"
    if seen.verdict.error:
        seen.verdict.error.hint = seen.verdict.error.hint.replace("rewind NAME", f"rewind {pipeline.name}")
    return _json(pipeline.name, settings, known, seen), _text(pipeline.name, settings, known, seen)


def _json(name: str, settings: PostgresSource, mark: LsnMark | None, seen: SlotReport) -> dict[str, Json]:
    from headwater.model.lsn import lsn_text  # noqa: PLC0415 - as above
    from headwater.sources.postgres.guard.reporting import behind_bytes, table_state  # noqa: PLC0415

    server, slot, oldest = seen.state.server, seen.state.slot, seen.state.server.oldest

    def place(lsn: int | None) -> str | None:
        return None if lsn is None else lsn_text(lsn)

    return {
        "pipeline": name,
        "healthy": seen.healthy,
        "server": {
            "address": seen.address,
            "version": server.version,
            "standby": server.standby,
            "timeline": server.timeline,
            "lsn": lsn_text(server.lsn),
        },
        "slot": None
        if slot is None
        else {
            "name": slot.name,
            "wal_status": slot.wal_status,
            "invalidation_reason": slot.invalidated or None,
            "active_pid": slot.active_pid,
            "restart_lsn": place(slot.restart),
            "confirmed_flush_lsn": place(slot.confirmed),
            "retained_bytes": seen.state.retained_bytes,
            "budget_bytes": settings.guard.budget,
            "safe_bytes": slot.safe_bytes,
            "restart_gap_bytes": slot.restart_gap,
            "failover": slot.failover,
        },
        "oldest_transaction": None
        if oldest is None
        else {
            "began": oldest.began.isoformat(),
            "database": oldest.database,
            "pid": oldest.pid,
            "prepared": oldest.prepared or None,
        },
        "sees_sessions": server.sees_sessions,
        "mark": place(mark.lsn) if mark else None,
        "behind_bytes": behind_bytes(seen.state, mark),
        "tables": [
            {"stream": stream, "state": table_state(one)[0], "detail": table_state(one)[1]}
            for stream, one in sorted(mark.tables.items() if mark else ())
        ],
        "warnings": list(seen.verdict.warnings),
        "error": error_json(seen.verdict.error) if seen.verdict.error else None,
    }


def _text(name: str, settings: PostgresSource, mark: LsnMark | None, seen: SlotReport) -> str:
    from headwater.sources.postgres.guard.reporting import table_state  # noqa: PLC0415 - as above

    lines = [f"{name}: {'healthy' if seen.healthy else 'needs attention'}"]
    facts = _facts(settings, mark, seen)
    width = max(len(label) for label, _ in facts)
    lines += [f"  {label:<{width}}  {value}" for label, value in facts]
    if mark and mark.tables:
        rows = [(stream, *table_state(one)) for stream, one in sorted(mark.tables.items())]
        lines += [f"  {line}" for line in table(("table", "state", ""), rows).splitlines()]
    lines += [f"  warning: {said}" for said in seen.verdict.warnings]
    if seen.verdict.error:
        lines.append(f"  error: {seen.verdict.error.message}\n    → {seen.verdict.error.hint}")
    return "\n".join(lines)


def _facts(settings: PostgresSource, mark: LsnMark | None, seen: SlotReport) -> list[tuple[str, str]]:
    from headwater.model.lsn import lsn_text  # noqa: PLC0415 - as above
    from headwater.sources.postgres.guard.reporting import behind_bytes  # noqa: PLC0415
    from headwater.sources.postgres.guard.sizes import size_text  # noqa: PLC0415

    server, slot = seen.state.server, seen.state.slot
    kind = "a standby" if server.standby else "primary"
    version = f"PostgreSQL {server.version // 10_000}.{server.version % 10_000}"
    facts = [("server", f"{seen.address} ({version}, {kind}, timeline {server.timeline})")]
    if slot is None:
        facts.append(("slot", f"{settings.slot}: is not there"))
    else:
        reader = f"is read now (pid {slot.active_pid})" if slot.active_pid else "is not read at this moment"
        safe = "no limit is set" if slot.safe_bytes is None else f"lost after {size_text(max(slot.safe_bytes, 0))} more"
        kept, budget = size_text(seen.state.retained_bytes), size_text(settings.guard.budget)
        facts += [
            ("slot", f"{slot.name}: {slot.wal_status or 'unknown'}, {reader}"),
            ("keeps", f"{kept} of the log (budget {budget}; {safe})"),
            ("reads again", f"{size_text(slot.restart_gap)} with every cycle"),
        ]
    facts.append(("oldest transaction", _oldest(seen)))
    behind = behind_bytes(seen.state, mark)
    standing = "none yet" if mark is None else lsn_text(mark.lsn)
    facts.append(("mark", standing if behind is None else f"{standing}, {size_text(behind)} behind"))
    return facts


def _oldest(seen: SlotReport) -> str:
    server = seen.state.server
    if server.oldest:
        began = server.oldest.began.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{server.oldest}, since {began}"
    return (
        "none"
        if server.sees_sessions
        else "not known: the role does not see others' sessions (GRANT pg_read_all_stats)"
    )
