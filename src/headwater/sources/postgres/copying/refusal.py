"""Why a server makes no slot for a copy: found out by asking it, since its words come in any language."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from headwater.model.errors import SourceUnreachable
from headwater.model.secret import masked
from headwater.sources.sql.postgres_session import PostgresSession

_FACTS = """
SELECT current_setting('wal_level'), r.rolname::text, to_regrole('rds_replication') IS NOT NULL,
    r.rolsuper OR r.rolreplication OR coalesce((SELECT pg_has_role(r.oid, g.oid, 'MEMBER') FROM pg_roles g
        WHERE g.rolname = 'rds_replication'), false),
    (SELECT count(*) FROM pg_replication_slots), current_setting('max_replication_slots')::int,
    (SELECT count(*) FROM pg_stat_replication), current_setting('max_wal_senders')::int
FROM pg_roles r WHERE r.rolname = current_user"""


@dataclass(frozen=True)
class _Facts:
    wal_level: str
    role: str
    rds: bool
    may_replicate: bool
    slots: int
    most_slots: int
    senders: int
    most_senders: int


def refused(session: PostgresSession, words: str) -> SourceUnreachable:
    """The error for a copy's slot, or its connection, that the server refused; `words` are its own."""
    ((*row,),) = session.fetch(_FACTS)
    why, hint = _reason(_Facts(*row)) or (
        "the server refused a replication slot to copy tables with",
        "see the server's words; connect straight to it, a pooler in between cannot replicate",
    )
    said = masked(" ".join(words.split())).removeprefix("ERROR: ")
    return SourceUnreachable(f"{session.address}: {why} ({said})", hint=hint)


def _reason(facts: _Facts) -> tuple[str, str] | None:
    role = sql.Identifier(facts.role).as_string()
    if not facts.may_replicate:
        right = f"GRANT rds_replication TO {role}" if facts.rds else f"ALTER ROLE {role} REPLICATION"
        return f"role {facts.role} may not replicate", f"a superuser can allow it: {right}"
    if facts.wal_level != "logical":
        change = "ALTER SYSTEM SET wal_level = 'logical', then restart the server"
        return f"wal_level is {facts.wal_level}, and changes are in the log only with logical", change
    if facts.slots >= facts.most_slots:
        return (
            f"all {facts.most_slots} replication slots are taken, and a copy needs one while it runs",
            "drop a slot that nobody reads (SELECT * FROM pg_replication_slots), or raise max_replication_slots",
        )
    if facts.senders >= facts.most_senders:
        return (
            f"all {facts.most_senders} WAL senders are busy, and a copy needs one while it runs",
            "raise max_wal_senders, or end one of them (SELECT * FROM pg_stat_replication)",
        )
    return None
