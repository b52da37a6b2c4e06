"""Plans the role that captures changes: it may log in, replicate and read the tables; nothing else. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.model.secret import MASK
from headwater.sources.postgres.readiness import sql_text
from headwater.sources.postgres.readiness.facts import Facts
from headwater.sources.postgres.readiness.preparation import Request, Statement


def prepare_role(facts: Facts, request: Request) -> tuple[Sequence[Statement], Sequence[str]]:
    """The statements that are needed, and what is worth knowing; nothing where no role was asked for."""
    if request.role is None:
        return [], []
    made = _changed(facts) if facts.role.exists else _created(facts, request)
    return [*made, *_grants(facts, request)], list(_notices(facts, request))


def _created(facts: Facts, request: Request) -> Iterator[Statement]:
    name, rds = facts.role.name, facts.server.service == "rds"
    yield Statement(sql_text.create_role(name, rds=rds))
    if rds:
        yield Statement(sql_text.allow_replication(name, rds=True))
    if request.role_password is not None:
        yield Statement(f"ALTER ROLE {sql_text.name(name)} PASSWORD '{MASK}'", password_of=name)


def _changed(facts: Facts) -> Iterator[Statement]:
    role = facts.role
    if not role.login:
        yield Statement(f"ALTER ROLE {sql_text.name(role.name)} LOGIN")
    if not role.may_replicate:
        yield Statement(sql_text.allow_replication(role.name, rds=facts.server.service == "rds"))


def _grants(facts: Facts, request: Request) -> Iterator[Statement]:
    # Published under their own names, partitions are read as tables of their own.
    leaves = [leaf for table in facts.tables for leaf in table.partitions] if request.via_root is False else []
    read = [*facts.tables, *leaves]
    for schema in dict.fromkeys(table.schema for table in read if not table.may_use_schema):
        yield Statement(sql_text.grant_usage(schema, facts.role.name))
    unread = [table for table in read if not table.may_select]
    if unread:
        yield Statement(sql_text.grant_select(unread, facts.role.name))


def _notices(facts: Facts, request: Request) -> Iterator[str]:
    role = facts.role
    if not role.exists and request.role_password is None:
        yield f"role {role.name} gets no password: --role-password-env NAME sets one"
    if role.exists and request.role_password is not None:
        yield f"role {role.name} is there already: its password is left as it is"
    if role.superuser:
        yield f"role {role.name} is a superuser, which nobody needs to capture changes"
