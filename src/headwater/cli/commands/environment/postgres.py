"""`headwater postgres check`, `prepare` and `status`: whether a server is ready for change capture, and the slots of pipelines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags, confirm
from headwater.cli.output import Output, error_json, table
from headwater.model.errors import HeadwaterError, InputError
from headwater.model.json_codec import to_json
from headwater.model.secret import Secret
from headwater.pg.address import Login

if TYPE_CHECKING:
    from headwater.api import Pipeline
    from headwater.config.sources.postgres import PostgresSourceSettings
    from headwater.model.position.marks import Json, LsnMark
    from headwater.pg.catalog import Facts
    from headwater.services.postgres_setup.preparation import Preparation, Request
    from headwater.services.postgres_setup.rules import Finding
    from headwater.sources.postgres.guard.slot import SlotReport

_NOT_READY = 1

Tables = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="NAME", help="schema.table, or a pattern: 'sales.*'. Repeatable."),
]
Excluded = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="NAME", help="Exclude these from a pattern. Repeatable.")
]


def check(
    out: Output,
    login: Login,
    *,
    tables: Tables = None,
    exclude: Excluded = None,
    publication: Annotated[
        str | None,
        typer.Option("--publication", metavar="NAME", help="The publication to use. Default: any with the tables."),
    ] = None,
    role: Annotated[
        str | None, typer.Option("--role", metavar="NAME", help="The role that captures. Default: the current user.")
    ] = None,
    slot: Annotated[str | None, typer.Option("--slot", metavar="NAME", help="The slot to use, if it exists.")] = None,
) -> None:
    """Check whether a server is ready for change capture.

    Checks wal_level, free slots and senders, the role and its grants, replica identities, the publication. Changes
    nothing. Every missing item comes with the SQL that fixes it. Exits 1 if one is missing.
    """
    from headwater.pg.address import connected, only_address
    from headwater.pg.catalog import read_facts
    from headwater.services.postgres_setup.rules import CaptureNames, examine, is_ready

    address = only_address(login)
    with connected(address) as connection:
        facts = read_facts(connection, tables or (), excluded=exclude or (), publication=publication, role=role)
    findings = examine(facts, CaptureNames(publication, slot))
    ready = is_ready(findings)
    data: Json = {
        "ready": ready,
        "server": str(address),
        "findings": [_finding_json(finding) for finding in findings],
        "sql": [f"{statement};" for statement in _fixes(findings)],
    }
    out.value(data, _findings_text(findings, ready=ready))
    if not ready:
        raise typer.Exit(_NOT_READY)


def prepare(
    out: Output,
    login: Login,
    *,
    tables: Tables = None,
    exclude: Excluded = None,
    publication: Annotated[
        str, typer.Option("--publication", metavar="NAME", help="Created for exactly these tables, or extended.")
    ] = "headwater",
    role: Annotated[
        str | None,
        typer.Option(
            "--role",
            metavar="NAME",
            help="Created, or granted what it lacks: LOGIN, REPLICATION, SELECT on these tables.",
        ),
    ] = None,
    role_password_env: Annotated[
        str | None,
        typer.Option("--role-password-env", metavar="NAME", help="The variable with the password of a new role."),
    ] = None,
    slot: Annotated[
        str | None,
        typer.Option("--slot", metavar="NAME", help="Also create a slot; the server retains WAL for it from then on."),
    ] = None,
    replica_identity: Annotated[
        list[str] | None,
        typer.Option(
            "--replica-identity",
            metavar="[TABLE=]full|default|INDEX",
            help="The identity of a table; `full` alone: of all tables without one. Repeatable.",
        ),
    ] = None,
    via_root: Annotated[
        bool | None,
        typer.Option(
            "--via-root/--via-partitions",
            help="Publish changes of partitioned tables under their own name (the default), or by --via-partitions under their partitions'.",
            show_default=False,
        ),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Run the SQL: shows it and asks first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --apply: do not ask.")] = False,
) -> None:
    """Print the SQL that makes a server ready, or run it.

    A publication for exactly these tables and a role that may read them and nothing else. Only what is absent: a second
    run has nothing to do. Tables on which UPDATE would fail once published are refused.
    """
    from headwater.pg.address import connected, only_address, variable
    from headwater.pg.catalog import read_facts
    from headwater.services.postgres_setup import preparation as setup

    if not tables:
        raise InputError("no table given", hint="write --table schema.table, or --table 'schema.*'")
    password = None if role_password_env is None else Secret(variable(login, role_password_env, "--role-password-env"))
    with connected(only_address(login)) as connection:
        facts = read_facts(connection, tables, excluded=exclude or (), publication=publication, role=role)
        default, by_table = setup.parse_identities(replica_identity or (), facts.tables)
        request = setup.Request(publication, role, password, slot, default, by_table, via_root)
        preparation = setup.prepare(facts, request)
        for notice in preparation.notices:
            out.say(f"note: {notice}")
        if apply and preparation.statements:
            out.say(_sql_text(preparation))
            confirm(out, "run this", yes=yes)
            setup.apply(connection, preparation, password)
    _show_preparation(out, preparation, facts, request, applied=apply)


def _show_preparation(out: Output, preparation: Preparation, facts: Facts, request: Request, *, applied: bool) -> None:
    count = len(preparation.statements)
    data: Json = {
        "publication": request.publication,
        "role": request.role,
        "slot": request.slot,
        "tables": [table.full_name for table in facts.tables],
        "statements": [f"{statement.text};" for statement in preparation.statements],
        "notices": list(preparation.notices),
        "applied": applied,
    }
    if not count:
        text = f"nothing to do: {request.publication} is prepared for {len(facts.tables):,} table(s)"
    else:
        text = f"done: {count} statement{'s' * (count > 1)}" if applied else _sql_text(preparation)
    out.value(data, text)


def _sql_text(preparation: Preparation) -> str:
    return "\n".join(f"{statement.text};" for statement in preparation.statements)


def _finding_json(finding: Finding) -> dict[str, Json]:
    return {**to_json(finding), "sql": [f"{statement};" for statement in finding.sql]}


def _fixes(findings: Sequence[Finding]) -> list[str]:
    statements = [statement for finding in findings if finding.state == "missing" for statement in finding.sql]
    return list(dict.fromkeys(statements))


def _findings_text(findings: Sequence[Finding], *, ready: bool) -> str:
    lines = [table(("", "state", "found"), [(finding.subject, finding.state, finding.found) for finding in findings])]
    for finding in findings:
        if finding.state != "ok" and finding.remedy:
            lines += ["", f"{finding.subject}: {finding.remedy}", *(f"  {statement};" for statement in finding.sql)]
    count = sum(finding.state == "missing" for finding in findings)
    lines += ["", "ready" if ready else f"not ready: {count} item{'s' * (count > 1)} missing"]
    return "\n".join(lines)


_UNHEALTHY = 1


def status(
    out: Output,
    flags: ProjectFlags,
    pipelines: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|DIR|NAME]…",
            help="Pipeline files, folders of them, or names. Default: all beside headwater.yaml.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the replication slots of pipelines.

    Retained WAL, budget, lag, the oldest transaction, the tables. Exits 1 if a slot needs attention.
    """
    from headwater.cli.project import open_project, select_pipelines

    texts = pipelines or []
    with open_project(flags, out, [Path(text) for text in texts if Path(text).exists()]) as project:
        reports = [
            _report_slot(pipeline) for pipeline in select_pipelines(project, texts) if pipeline.settings.source.postgres
        ]
    if not reports:
        raise InputError("none of these pipelines has a postgres source", hint="name another file or folder")
    healthy = all(data["healthy"] for data, _ in reports)
    out.value(
        {"healthy": healthy, "pipelines": [data for data, _ in reports]}, "\n\n".join(text for _, text in reports)
    )
    if not healthy:
        raise typer.Exit(_UNHEALTHY)


def _report_slot(pipeline: Pipeline) -> tuple[dict[str, Json], str]:
    from headwater.model.position.marks import LsnMark
    from headwater.sources.postgres.guard.slot import slot_report

    settings, mark = pipeline.settings.source.postgres, pipeline.progress().mark
    assert settings is not None  # noqa: S101 - only such pipelines come here
    lsn_mark = mark if isinstance(mark, LsnMark) else None
    try:
        report = slot_report(settings, lsn_mark)
    except HeadwaterError as error:
        data: dict[str, Json] = {"pipeline": pipeline.name, "healthy": False, "error": error_json(error)}
        return data, f"{pipeline.name}: {error}"
    if report.verdict.error:
        report.verdict.error.hint = report.verdict.error.hint.replace("rewind NAME", f"rewind {pipeline.name}")
    return _slot_json(pipeline.name, settings, lsn_mark, report), _slot_text(pipeline.name, settings, lsn_mark, report)


def _slot_json(
    name: str, settings: PostgresSourceSettings, mark: LsnMark | None, report: SlotReport
) -> dict[str, Json]:
    from headwater.model.position.lsn import lsn_text
    from headwater.sources.postgres.guard.slot import behind_bytes, table_state

    server, slot, oldest = report.state.server, report.state.slot, report.state.server.oldest

    def text_or_none(lsn: int | None) -> str | None:
        return None if lsn is None else lsn_text(lsn)

    return {
        "pipeline": name,
        "healthy": report.healthy,
        "server": {
            "address": report.address,
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
            "restart_lsn": text_or_none(slot.restart),
            "confirmed_flush_lsn": text_or_none(slot.confirmed),
            "retained_bytes": report.state.retained_bytes,
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
        "mark": text_or_none(mark.lsn) if mark else None,
        "behind_bytes": behind_bytes(report.state, mark),
        "tables": [
            {"stream": stream, "state": table_state(state)[0], "detail": table_state(state)[1]}
            for stream, state in sorted(mark.streams.items() if mark else ())
        ],
        "warnings": list(report.verdict.warnings),
        "error": error_json(report.verdict.error) if report.verdict.error else None,
    }


def _slot_text(name: str, settings: PostgresSourceSettings, mark: LsnMark | None, report: SlotReport) -> str:
    from headwater.sources.postgres.guard.slot import table_state

    lines = [f"{name}: {'healthy' if report.healthy else 'needs attention'}"]
    facts = _slot_facts(settings, mark, report)
    width = max(len(label) for label, _ in facts)
    lines += [f"  {label:<{width}}  {value}" for label, value in facts]
    if mark and mark.streams:
        rows = [(stream, *table_state(state)) for stream, state in sorted(mark.streams.items())]
        lines += [f"  {line}" for line in table(("table", "state", ""), rows).splitlines()]
    lines += [f"  warning: {warning}" for warning in report.verdict.warnings]
    if report.verdict.error:
        lines.append(f"  error: {report.verdict.error.message}\n    → {report.verdict.error.hint}")
    return "\n".join(lines)


def _slot_facts(settings: PostgresSourceSettings, mark: LsnMark | None, report: SlotReport) -> list[tuple[str, str]]:
    from headwater.model.position.lsn import lsn_text
    from headwater.sources.postgres.guard.checks import size_text
    from headwater.sources.postgres.guard.slot import behind_bytes

    server, slot = report.state.server, report.state.slot
    role = "standby" if server.standby else "primary"
    version = f"PostgreSQL {server.version // 10_000}.{server.version % 10_000}"
    facts = [("server", f"{report.address} ({version}, {role}, timeline {server.timeline})")]
    if slot is None:
        facts.append(("slot", f"{settings.slot}: does not exist"))
    else:
        reader = f"has a reader (pid {slot.active_pid})" if slot.active_pid else "has no reader now"
        safe = "no limit" if slot.safe_bytes is None else f"lost after {size_text(max(slot.safe_bytes, 0))} more"
        retained, budget = size_text(report.state.retained_bytes), size_text(settings.guard.budget)
        facts += [
            ("slot", f"{slot.name}: {slot.wal_status or 'unknown'}, {reader}"),
            ("retains", f"{retained} of WAL (budget {budget}; {safe})"),
            ("decodes again", f"{size_text(slot.restart_gap)} in every cycle"),
        ]
    facts.append(("oldest transaction", _oldest(report)))
    behind = behind_bytes(report.state, mark)
    position = "none yet" if mark is None else lsn_text(mark.lsn)
    facts.append(("mark", position if behind is None else f"{position}, {size_text(behind)} behind"))
    return facts


def _oldest(report: SlotReport) -> str:
    server = report.state.server
    if server.oldest:
        began = server.oldest.began.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{server.oldest}, since {began}"
    return "none" if server.sees_sessions else "unknown: the role cannot see other sessions (GRANT pg_read_all_stats)"
