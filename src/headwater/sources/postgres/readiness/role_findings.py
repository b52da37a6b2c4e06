"""What the role that captures changes must be allowed, and no more."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.sources.postgres.readiness import sql_text
from headwater.sources.postgres.readiness.facts import Facts
from headwater.sources.postgres.readiness.findings import Finding, missing, note, ok


def about_role(facts: Facts) -> Iterator[Finding]:
    role, rds = facts.role, facts.server.service == "rds"
    subject = f"role {role.name}"
    if not role.exists:
        sql = [sql_text.create_role(role.name, rds=rds)]
        if rds:
            sql.append(sql_text.allow_replication(role.name, rds=True))
        yield missing(subject, "there is no such role", "create it, and give it a password", *sql)
        return
    if not role.login:
        yield missing(subject, "may not log in", "allow it", f"ALTER ROLE {sql_text.name(role.name)} LOGIN")
    if not role.may_replicate:
        remedy = "an administrator allows it"
        yield missing(subject, "may not replicate", remedy, sql_text.allow_replication(role.name, rds=rds))
    elif role.superuser:
        remedy = "headwater postgres prepare --role NAME makes one that may only read these tables"
        yield note(subject, "is a superuser, which nobody needs to capture changes", remedy)
    else:
        by = " (by rds_replication)" if role.rds_replication and not role.replication else ""
        yield ok(subject, f"may replicate{by}; no superuser")
    schemas = dict.fromkeys(table.schema for table in facts.tables if not table.may_use_schema)
    for schema in schemas:
        yield missing(subject, f"may not use schema {schema}", "allow it", sql_text.grant_usage(schema, role.name))
    unread = [table for table in facts.tables if not table.may_select]
    if unread:
        found = f"may not read {', '.join(table.full_name for table in unread)}"
        yield missing(subject, found, "allow it to read, and nothing else", sql_text.grant_select(unread, role.name))
