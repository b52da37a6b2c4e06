"""Whether a server is ready for change capture: rules on facts, each with the SQL that fixes what it reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from headwater.pg import sql_text
from headwater.pg.catalog import NO_LIMIT, Facts, Publication, Service, Slot, Table
from headwater.pg.sql_text import identity_problem, identity_text, kind_problem, remedies, without_identity

State = Literal["ok", "missing", "note"]

DEFAULT_PUBLICATION = "headwater"
ROW_OPERATIONS = frozenset({"insert", "update", "delete"})
_NEED_IDENTITY = {"update", "delete"}
_DECODING_STANDBY = 160_000  # the first version that decodes on a standby
_MIN_CAPACITY = 10
_MEGABYTE = 1024 * 1024

_SERVICES: dict[Service, str] = {
    "rds": "Amazon RDS or Aurora: no superuser exists; the role rds_replication grants replication, and settings are "
    "in the parameter group",
    "cloud sql": "Google Cloud SQL: settings are flags of the instance; a member of cloudsqlsuperuser grants REPLICATION",
    "azure": "Azure Database for PostgreSQL: settings are server parameters; a member of azure_pg_admin grants REPLICATION",
}
_SET_WAL_LEVEL: dict[Service, str] = {
    "rds": "set rds.logical_replication = 1 in the instance's parameter group (Aurora: the cluster's) and reboot it",
    "cloud sql": "set the flag cloudsql.logical_decoding = on; the instance restarts",
    "azure": "set wal_level = LOGICAL in the server parameters and restart the server",
}


@dataclass(frozen=True)
class Finding:
    """The result of one rule. A server with a `missing` finding is not ready; a `note` is for information."""

    subject: str
    state: State
    found: str
    remedy: str = ""
    sql: tuple[str, ...] = ()


@dataclass(frozen=True)
class CaptureNames:
    """The publication and slot to use. Without a publication any fits; without a slot the first run creates one."""

    publication: str | None = None
    slot: str | None = None


Rule = Callable[[Facts, CaptureNames], Iterator[Finding]]


def examine(facts: Facts, names: CaptureNames) -> Sequence[Finding]:
    """What every rule reports, in the order in which to fix it."""
    return [finding for rule in RULES for finding in rule(facts, names)]


def is_ready(findings: Sequence[Finding]) -> bool:
    return all(finding.state != "missing" for finding in findings)


def is_lost(slot: Slot) -> bool:
    return slot.wal_status == "lost" or bool(slot.invalidated)


def ok(subject: str, found: str) -> Finding:
    return Finding(subject, "ok", found)


def missing(subject: str, found: str, remedy: str, *sql: str) -> Finding:
    return Finding(subject, "missing", found, remedy, sql)


def note(subject: str, found: str, remedy: str = "", *sql: str) -> Finding:
    return Finding(subject, "note", found, remedy, sql)


def _server(facts: Facts, _: CaptureNames) -> Iterator[Finding]:
    server = facts.server
    yield ok("server", f"PostgreSQL {server.version_text}, database {server.database}")
    if server.service != "own":
        yield note("service", _SERVICES[server.service])


def _standby(facts: Facts, _: CaptureNames) -> Iterator[Finding]:
    if facts.server.standby and facts.server.version < _DECODING_STANDBY:
        remedy = "connect to the primary, or upgrade to PostgreSQL 16"
        yield missing("standby", "this server is a standby, and decodes no WAL before PostgreSQL 16", remedy)
    elif facts.server.standby:
        yield note("standby", "this server is a standby: change publications, roles and tables on its primary")


def _wal_level(facts: Facts, _: CaptureNames) -> Iterator[Finding]:
    server = facts.server
    if server.wal_level == "logical":
        yield ok("wal_level", "logical")
    elif server.service != "own":
        yield missing("wal_level", server.wal_level, _SET_WAL_LEVEL[server.service])
    else:
        remedy = "set it, then restart the server: a reload is not enough"
        yield missing("wal_level", server.wal_level, remedy, "ALTER SYSTEM SET wal_level = 'logical'")


def _free_slots(facts: Facts, names: CaptureNames) -> Iterator[Finding]:
    needed = names.slot is None or names.slot not in facts.slots
    yield _capacity(facts, "max_replication_slots", facts.server.slots_most, facts.server.slots_used, needed=needed)


def _free_senders(facts: Facts, names: CaptureNames) -> Iterator[Finding]:
    slot = facts.slots.get(names.slot or "")
    needed = slot is None or not slot.active
    yield _capacity(facts, "max_wal_senders", facts.server.senders_most, facts.server.senders_used, needed=needed)


def _capacity(facts: Facts, setting: str, limit: int, used: int, *, needed: bool) -> Finding:
    free = max(0, limit - used)
    text = f"{free} of {limit} left"
    if free or not needed:
        return ok(setting, text)
    if facts.server.service != "own":
        return missing(setting, text, f"raise {setting} in the service's settings, and restart")
    remedy = "raise it and restart the server, or drop slots without a reader"
    return missing(setting, text, remedy, f"ALTER SYSTEM SET {setting} = {max(_MIN_CAPACITY, 2 * limit)}")


def _wal_budget(facts: Facts, _: CaptureNames) -> Iterator[Finding]:
    server = facts.server
    if server.slot_keep_megabytes == NO_LIMIT:
        text = "no limit: an unread slot retains WAL until the disk is full"
        remedy = (
            "set a limit that the longest outage fits into; a slot beyond it is lost, and its tables are copied again"
        )
        yield note("max_slot_wal_keep_size", text, remedy)
    else:
        yield ok("max_slot_wal_keep_size", f"{server.slot_keep_megabytes:,} MB")
    if server.idle_slot_seconds:
        text = f"the server invalidates a slot that is not read for {server.idle_slot_seconds:,} s"
        yield note("idle_replication_slot_timeout", text, "keep it above the longest pause of the slot's reader")


def _role(facts: Facts, _: CaptureNames) -> Iterator[Finding]:
    role, rds = facts.role, facts.server.service == "rds"
    subject = f"role {role.name}"
    if not role.exists:
        sql = [sql_text.create_role(role.name, rds=rds)]
        if rds:
            sql.append(sql_text.allow_replication(role.name, rds=True))
        yield missing(subject, "this role does not exist", "create it, and give it a password", *sql)
        return
    if not role.login:
        yield missing(subject, "may not log in", "allow it", f"ALTER ROLE {sql_text.name(role.name)} LOGIN")
    if not role.may_replicate:
        remedy = "let an administrator allow it"
        yield missing(subject, "may not replicate", remedy, sql_text.allow_replication(role.name, rds=rds))
    elif role.superuser:
        remedy = "headwater postgres prepare --role NAME creates one that may only read these tables"
        yield note(subject, "is a superuser, which change capture does not need", remedy)
    else:
        by = " (by rds_replication)" if role.rds_replication and not role.replication else ""
        yield ok(subject, f"may replicate{by}; no superuser")


def _grants(facts: Facts, _: CaptureNames) -> Iterator[Finding]:
    role = facts.role
    if not role.exists:
        return
    for schema in dict.fromkeys(table.schema for table in facts.tables if not table.may_use_schema):
        grant = sql_text.grant_usage(schema, role.name)
        yield missing(f"role {role.name}", f"may not use schema {schema}", "allow it", grant)
    unreadable = [table for table in facts.tables if not table.may_select]
    if unreadable:
        text = f"may not read {', '.join(table.full_name for table in unreadable)}"
        grant = sql_text.grant_select(unreadable, role.name)
        yield missing(f"role {role.name}", text, "allow it to read, and nothing else", grant)


def _tables(facts: Facts, names: CaptureNames) -> Iterator[Finding]:
    for table in facts.tables:
        problem = kind_problem(table)
        if problem is None:
            yield from _table(table, facts, names)
        else:
            text, remedy, sql = problem
            yield missing(f"table {table.full_name}", text, remedy, *sql)


def _table(table: Table, facts: Facts, names: CaptureNames) -> Iterator[Finding]:
    subject = f"table {table.full_name}"
    bad = without_identity([table])
    for relation in bad:
        yield _identity_finding(subject, table, relation, facts)
    if not bad:
        key = f"key ({', '.join(table.key)})" if table.key else "no primary key"
        yield ok(subject, f"{key}, {identity_text(table)}")
    if not table.key and not bad:
        text = "has no primary key: equal rows are indistinguishable, and incremental snapshots are impossible"
        yield note(subject, text, "add a key, or keep its changes in a table of events only")
    if table.generated and not any(pub.generated and pub.covers(table) for pub in candidates(facts, names)):
        text = f"changes do not hold the generated columns {', '.join(table.generated)}"
        yield note(subject, text, "compute them in a transform")
    if table.row_security and not facts.role.superuser:
        remedy = f"ALTER ROLE {sql_text.name(facts.role.name)} BYPASSRLS, if it shall read all of them"
        yield note(subject, f"has row security: a snapshot by {facts.role.name} may not see all rows", remedy)


def _identity_finding(subject: str, table: Table, relation: Table, facts: Facts) -> Finding:
    where = "" if relation.oid == table.oid else f"partition {relation.full_name}: "
    published = [pub for pub in facts.publications.values() if pub.covers(relation) or pub.covers(table)]
    fails = [pub.name for pub in published if pub.operations & _NEED_IDENTITY]
    when = f"since {fails[0]} publishes it" if fails else "once published"
    text = f"{where}{identity_problem(relation)}: {when}, UPDATE and DELETE fail in your application"
    statements = remedies(relation)
    first = "give it a replica identity" if relation.key else "add a primary key"
    alternative = (
        f"run this, or: {' · '.join(statements[1:])}" if len(statements) > 1 else "identify rows by all columns"
    )
    return missing(subject, text, f"{first}, or {alternative}", statements[0])


def _publications(facts: Facts, names: CaptureNames) -> Iterator[Finding]:
    publishable = [table for table in facts.tables if kind_problem(table) is None]
    name = names.publication or DEFAULT_PUBLICATION
    if names.publication is not None and name not in facts.publications:
        sql = _create(name, publishable)
        yield missing(
            f"publication {name}", "this publication does not exist", "create it for exactly these tables", *sql
        )
        return
    existing = candidates(facts, names)
    unpublished = [table for table in publishable if not any(publication.covers(table) for publication in existing)]
    table_names = ", ".join(table.full_name for table in unpublished)
    if unpublished and name in facts.publications:
        sql_add = sql_text.add_to_publication(name, sql_text.names(unpublished))
        yield missing(f"publication {name}", f"does not publish {table_names}", "add them", sql_add)
    elif unpublished:
        yield missing(
            "publication", f"none publishes {table_names}", "create one for exactly these", *_create(name, unpublished)
        )
    for publication in existing:
        yield from _publication(publication, facts.tables)


def candidates(facts: Facts, names: CaptureNames) -> Sequence[Publication]:
    """The publications to judge: the requested one, or all that publish one of the tables."""
    if names.publication is not None:
        return [facts.publications[names.publication]] if names.publication in facts.publications else []
    return [pub for pub in facts.publications.values() if any(pub.covers(table) for table in facts.tables)]


def _create(name: str, tables: Sequence[Table]) -> tuple[str, ...]:
    via_root = any(table.kind == "partitioned table" for table in tables)
    return (sql_text.create_publication(name, sql_text.names(tables), via_root=via_root),) if tables else ()


def _publication(publication: Publication, tables: Sequence[Table]) -> Iterator[Finding]:
    subject = f"publication {publication.name}"
    if not publication.operations >= ROW_OPERATIONS:
        absent = ", ".join(sorted(ROW_OPERATIONS - publication.operations))
        yield missing(subject, f"leaves out {absent}", "publish them", sql_text.publish_operations(publication.name))
    elif "truncate" not in publication.operations:
        yield note(subject, "leaves out truncate: a truncated table stays full in the lake")
    elif publication.all_tables:
        text = "publishes all tables of the database, later ones included"
        yield note(subject, text, "a table without a replica identity then refuses UPDATE and DELETE")
    else:
        yield ok(subject, f"sends {', '.join(sorted(publication.operations))}")
    for table in tables:
        oids = {table.oid, *(leaf.oid for leaf in table.partitions)}
        if oids & publication.filtered:
            yield note(subject, f"sends only some rows of {table.full_name}")
        if oids & publication.column_lists:
            yield note(subject, f"sends only some columns of {table.full_name}")
        if table.kind == "partitioned table" and publication.covers(table) and table.oid not in publication.tables:
            text = f"sends changes of {table.full_name} under the names of its partitions"
            sql = sql_text.publish_via_root(publication.name, on=True)
            yield missing(subject, text, "send them under the table's own name", sql)


def _slots(facts: Facts, names: CaptureNames) -> Iterator[Finding]:
    for slot in facts.slots.values():
        if slot.name == names.slot:
            yield _own_slot(slot, facts.server.database)
        elif slot.database == facts.server.database:
            yield from _other_slot(slot)
    if names.slot is not None and names.slot not in facts.slots:
        yield note(f"slot {names.slot}", "does not exist yet: the first capture creates it")


def _own_slot(slot: Slot, database: str) -> Finding:
    subject = f"slot {slot.name}"
    if slot.database != database:
        return missing(subject, f"belongs to database {slot.database}", "use another name")
    if slot.plugin != "pgoutput":
        return missing(subject, f"decodes with {slot.plugin}, not with pgoutput", "use another name")
    if is_lost(slot):
        return missing(subject, _loss(slot), "drop it; the next run copies the tables again", _drop(slot))
    return ok(subject, _retention(slot))


def _other_slot(slot: Slot) -> Iterator[Finding]:
    subject = f"slot {slot.name}"
    if is_lost(slot):
        yield note(subject, _loss(slot), "its reader must start from scratch; drop it", _drop(slot))
    elif slot.wal_status == "unreserved":
        yield note(subject, f"is about to be lost: {_retention(slot)}", "start its reader now")
    elif not slot.active:
        yield note(subject, _retention(slot), "drop it if its reader is gone for good", _drop(slot))


def _loss(slot: Slot) -> str:
    why = f" ({slot.invalidated})" if slot.invalidated else ""
    return f"is lost{why}: the server has removed WAL that it still needs"


def _retention(slot: Slot) -> str:
    retained = f"retains {(slot.kept_bytes or 0) / _MEGABYTE:,.1f} MB of WAL"
    safe = "" if slot.safe_bytes is None else f", lost after {slot.safe_bytes / _MEGABYTE:,.1f} MB more"
    return f"{'has a reader' if slot.active else 'has no reader'}, {retained}{safe}"


def _drop(slot: Slot) -> str:
    return f"SELECT pg_drop_replication_slot({sql_text.literal(slot.name)})"


# Tables before publications: between the two, an UPDATE of a table without an identity would fail.
RULES: Sequence[Rule] = (
    _server,
    _standby,
    _wal_level,
    _free_slots,
    _free_senders,
    _wal_budget,
    _role,
    _grants,
    _tables,
    _publications,
    _slots,
)
