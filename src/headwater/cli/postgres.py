"""`headwater postgres check` and `prepare`: is a server ready for change capture, and the SQL that makes it so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import Output, table
from headwater.cli.rewind import confirm
from headwater.model.errors import InputError
from headwater.model.secret import Secret
from headwater.sources.postgres.readiness.login import Login

if TYPE_CHECKING:
    from headwater.model.marks import Json
    from headwater.sources.postgres.readiness.facts import Facts
    from headwater.sources.postgres.readiness.findings import Finding
    from headwater.sources.postgres.readiness.preparation import Preparation, Request

_NOT_READY = 1

Tables = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="NAME", help="schema.table, or a pattern: 'sales.*'. Repeatable."),
]
Excluded = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="NAME", help="Not these, of a pattern's. Repeatable.")
]


def check(
    out: Output,
    login: Login,
    *,
    tables: Tables = None,
    exclude: Excluded = None,
    publication: Annotated[
        str | None,
        typer.Option("--publication", metavar="NAME", help="The publication to use. Default: any that has the tables."),
    ] = None,
    role: Annotated[
        str | None, typer.Option("--role", metavar="NAME", help="Who will capture. Default: who connects now.")
    ] = None,
    slot: Annotated[
        str | None, typer.Option("--slot", metavar="NAME", help="The slot to use, if one is there.")
    ] = None,
) -> None:
    """Say whether a server is ready for change capture.

    Looks at wal_level, slots and senders left, the role and its grants, replica identities, the publication. Changes
    nothing. Each thing that is missing comes with the SQL that mends it. Exits 1 when something is.
    """
    from headwater.sources.postgres.readiness.address import connected, only_address  # noqa: PLC0415 - as --help
    from headwater.sources.postgres.readiness.asking import ask  # noqa: PLC0415
    from headwater.sources.postgres.readiness.examining import examine  # noqa: PLC0415
    from headwater.sources.postgres.readiness.findings import Wanted, is_ready  # noqa: PLC0415

    address = only_address(login)
    with connected(address) as connection:
        facts = ask(connection, tables or (), excluded=exclude or (), publication=publication, role=role)
    findings = examine(facts, Wanted(publication, slot))
    ready = is_ready(findings)
    data: Json = {
        "ready": ready,
        "server": str(address),
        "findings": [_finding_json(finding) for finding in findings],
        "sql": [f"{statement};" for statement in _mending(findings)],
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
        str, typer.Option("--publication", metavar="NAME", help="Made for exactly these tables, or added to.")
    ] = "headwater",
    role: Annotated[
        str | None,
        typer.Option(
            "--role", metavar="NAME", help="Made, or given what it lacks: LOGIN, REPLICATION, SELECT on these."
        ),
    ] = None,
    role_password_env: Annotated[
        str | None,
        typer.Option("--role-password-env", metavar="NAME", help="The variable with the password of a new role."),
    ] = None,
    slot: Annotated[
        str | None,
        typer.Option("--slot", metavar="NAME", help="Also make a slot; the log is kept for it from then on."),
    ] = None,
    replica_identity: Annotated[
        list[str] | None,
        typer.Option(
            "--replica-identity",
            metavar="[TABLE=]full|default|INDEX",
            help="Of a table; `full` alone: of all that have none. Repeatable.",
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

    A publication for exactly these tables and a role that may read them and nothing else. Only what is not there yet: a
    second run has nothing to do. Tables on which UPDATE would fail once they are published are refused.
    """
    from headwater.sources.postgres.readiness.address import connected, only_address, variable  # noqa: PLC0415
    from headwater.sources.postgres.readiness.applying import apply as run  # noqa: PLC0415
    from headwater.sources.postgres.readiness.asking import ask  # noqa: PLC0415
    from headwater.sources.postgres.readiness.identity_flags import identities  # noqa: PLC0415
    from headwater.sources.postgres.readiness.preparation import Request  # noqa: PLC0415
    from headwater.sources.postgres.readiness.preparing import prepare as planned  # noqa: PLC0415

    if not tables:
        raise InputError("no table is named", hint="write --table schema.table, or --table 'schema.*'")
    password = None if role_password_env is None else Secret(variable(login, role_password_env, "--role-password-env"))
    with connected(only_address(login)) as connection:
        facts = ask(connection, tables, excluded=exclude or (), publication=publication, role=role)
        lacking, by_table = identities(replica_identity or (), facts.tables)
        request = Request(publication, role, password, slot, lacking, by_table, via_root)
        preparation = planned(facts, request)
        for notice in preparation.notices:
            out.say(f"note: {notice}")
        if apply and preparation.statements:
            out.say(_sql_text(preparation))
            if not yes:
                confirm(out, "run this")
            run(connection, preparation, password)
    _show(out, preparation, facts, request, applied=apply)


def _show(out: Output, preparation: Preparation, facts: Facts, request: Request, *, applied: bool) -> None:
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
    return {
        "subject": finding.subject,
        "state": finding.state,
        "found": finding.found,
        "remedy": finding.remedy,
        "sql": [f"{statement};" for statement in finding.sql],
    }


def _mending(findings: Sequence[Finding]) -> list[str]:
    wanted = [statement for finding in findings if finding.state == "missing" for statement in finding.sql]
    return list(dict.fromkeys(wanted))


def _findings_text(findings: Sequence[Finding], *, ready: bool) -> str:
    shown = table(("", "state", "found"), [(finding.subject, finding.state, finding.found) for finding in findings])
    lines = [shown]
    for finding in findings:
        if finding.state != "ok" and finding.remedy:
            lines += ["", f"{finding.subject}: {finding.remedy}", *(f"  {statement};" for statement in finding.sql)]
    count = sum(finding.state == "missing" for finding in findings)
    lines += ["", "ready" if ready else f"not ready: {count} thing{'s' * (count > 1)} missing"]
    return "\n".join(lines)
