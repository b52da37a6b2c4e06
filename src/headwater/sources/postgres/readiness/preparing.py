"""Plans the SQL that makes a server ready: a role that may only read, identities, a publication, a slot. Pure.

Only what is not there yet is planned, so that a second run has nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from headwater.model.errors import InputError
from headwater.sources.postgres.readiness import sql_text
from headwater.sources.postgres.readiness.facts import Facts, Publication, Table
from headwater.sources.postgres.readiness.identity import identity_problem, remedies, without_identity
from headwater.sources.postgres.readiness.preparation import Preparation, Request, Statement
from headwater.sources.postgres.readiness.preparing_role import prepare_role
from headwater.sources.postgres.readiness.slot_findings import is_lost
from headwater.sources.postgres.readiness.table_findings import kind_problem

_ROW_OPERATIONS = {"insert", "update", "delete"}


def prepare(facts: Facts, request: Request) -> Preparation:
    """Raises InputError, with all that is wrong at once, before anything of it is done."""
    _refuse_kinds(facts.tables)
    identities = list(_identity_changes(facts.tables, request))
    _refuse_without_identity(facts.tables, identities)
    _refuse_slot(facts, request)
    role, role_notices = prepare_role(facts, request)
    publication, publication_notices = _publication(facts, request)
    notices = [*role_notices, *publication_notices]
    if facts.server.wal_level != "logical":
        notices.append(f"wal_level is {facts.server.wal_level}: see headwater postgres check")
    slot = []
    if request.slot is not None and request.slot not in facts.slots:
        slot = [Statement(sql_text.create_slot(request.slot), alone=True)]
        notices.append(f"slot {request.slot} keeps the log from now on, until it is read or dropped")
    changes = [Statement(sql_text.replica_identity(table, way)) for table, way in identities]
    return Preparation((*role, *changes, *publication, *slot), tuple(notices))


def _refuse_kinds(tables: Sequence[Table]) -> None:
    problems = [(table, problem) for table in tables if (problem := kind_problem(table)) is not None]
    if problems:
        raise InputError(
            "; ".join(f"{table.full_name} {found}" for table, (found, _, _) in problems),
            hint=" · ".join(dict.fromkeys(remedy for _, (_, remedy, _) in problems)) + " · leave them out by --exclude",
        )


def _identity_changes(tables: Sequence[Table], request: Request) -> Iterator[tuple[Table, str]]:
    for table in tables:
        for row in table.partitions or (table,):
            way = request.identities.get(table.oid)
            if way is None and request.lacking is not None and identity_problem(row) is not None:
                way = request.lacking
            if way is not None and not _is(row, way):
                _refuse_index(row, way)
                yield row, way


def _is(table: Table, way: str) -> bool:
    return table.identity_index == way if table.identity == "index" else table.identity == way


def _refuse_index(table: Table, way: str) -> None:
    if way not in {"full", "default"} and way not in table.unique_indexes:
        known = ", ".join(table.unique_indexes)
        raise InputError(
            f"{table.full_name}: {way} is no index that can be a replica identity",
            hint=f"these can: {known}" if known else "it must be unique, immediate, whole, and over NOT NULL columns",
        )


def _refuse_without_identity(tables: Sequence[Table], changes: Sequence[tuple[Table, str]]) -> None:
    changed = {table.oid: _with_identity(table, way) for table, way in changes}
    rows = [row for table in tables for row in (table.partitions or (table,))]
    bad = without_identity([changed.get(row.oid, row) for row in rows])
    if bad:
        ways = "\n    ".join(f"{way};" for table in bad for way in remedies(table))
        raise InputError(
            "; ".join(f"{table.full_name}: {identity_problem(table)}" for table in bad)
            + ". Once published, UPDATE and DELETE would fail in your application; nothing was changed",
            hint=f"add a primary key, or say --replica-identity full (or TABLE=full, TABLE=INDEX), which runs\n    {ways}",
        )


def _with_identity(table: Table, way: str) -> Table:
    if way == "full":
        return replace(table, identity="full", identity_index=None)
    if way == "default":
        return replace(table, identity="default", identity_index=None)
    return replace(table, identity="index", identity_index=way)


def _refuse_slot(facts: Facts, request: Request) -> None:
    if request.slot is None:
        return
    slot = facts.slots.get(request.slot)
    if slot is None:
        if facts.server.wal_level != "logical":
            raise InputError(
                f"a slot needs wal_level = logical, and it is {facts.server.wal_level}",
                hint="see headwater postgres check",
            )
    elif slot.database != facts.server.database or slot.plugin != "pgoutput":
        raise InputError(
            f"slot {slot.name} is there, of database {slot.database} and with plugin {slot.plugin}",
            hint="choose another name for --slot",
        )
    elif is_lost(slot):
        raise InputError(
            f"slot {slot.name} is lost: the server no longer has the log that comes next",
            hint=f"drop it, and read the tables anew: SELECT pg_drop_replication_slot({sql_text.literal(slot.name)})",
        )


def _publication(facts: Facts, request: Request) -> tuple[list[Statement], list[str]]:
    name = request.publication
    partitioned = any(table.kind == "partitioned table" for table in facts.tables)
    via_root = partitioned if request.via_root is None else request.via_root
    there = facts.publications.get(name)
    if there is None:
        return [Statement(sql_text.create_publication(name, facts.tables, via_root=via_root))], []
    texts = []
    left = [table for table in facts.tables if not there.covers(table)]
    if left:
        texts.append(sql_text.add_to_publication(name, left))
    if there.via_root != via_root and (partitioned or request.via_root is not None):
        texts.append(sql_text.publish_via_root(name, on=via_root))
    if not there.operations >= _ROW_OPERATIONS:
        texts.append(sql_text.publish_operations(name))
    return [Statement(text) for text in texts], list(_about_others(there, facts.tables))


def _about_others(publication: Publication, tables: Sequence[Table]) -> Iterator[str]:
    ours = {oid for table in tables for oid in (table.oid, *(leaf.oid for leaf in table.partitions))}
    if publication.all_tables:
        yield f"publication {publication.name} publishes all tables of the database"
    elif others := len(publication.named - ours):
        yield f"publication {publication.name} also publishes {others} other table{'s' * (others > 1)}: left as it is"
    for table in tables:
        if table.oid in publication.filtered | publication.cut:
            yield f"publication {publication.name} sends only a part of {table.full_name}: left as it is"
