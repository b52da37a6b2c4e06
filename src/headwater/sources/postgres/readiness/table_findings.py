"""What each table needs: a kind that is replicated, a replica identity, a publication that sends all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.sources.postgres.readiness import sql_text
from headwater.sources.postgres.readiness.facts import Facts, Publication, Table
from headwater.sources.postgres.readiness.findings import Finding, Wanted, missing, note, ok
from headwater.sources.postgres.readiness.identity import (
    identity_problem,
    identity_text,
    remedies,
    without_identity,
)

DEFAULT_PUBLICATION = "headwater"
_ROW_OPERATIONS = {"insert", "update", "delete"}
_CHANGING = {"update", "delete"}


def kind_problem(table: Table) -> tuple[str, str, tuple[str, ...]] | None:
    """Why no publication can hold the relation, what to do, and the SQL for it; None if one can."""
    if table.kind in {"view", "materialized view"}:
        return f"is a {table.kind}, which has no changes of its own", "name the tables that it reads", ()
    if table.kind == "foreign table":
        return "is a foreign table: its rows are in another server's log", "capture them there", ()
    if table.persistence == "temporary":
        return "is temporary, and in no log", "use a permanent table", ()
    if table.persistence == "unlogged":
        remedy = "make it a logged table (this writes it to the log once), or leave it out"
        return (
            "is unlogged: its changes are in no log",
            remedy,
            (f"ALTER TABLE {sql_text.table_name(table)} SET LOGGED",),
        )
    return None


def about_publication(facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    publishable = [table for table in facts.tables if kind_problem(table) is None]
    name = wanted.publication or DEFAULT_PUBLICATION
    if wanted.publication is not None and name not in facts.publications:
        sql = _created(name, publishable)
        yield missing(f"publication {name}", "there is none of that name", "create it for exactly these tables", *sql)
        return
    found = candidates(facts, wanted)
    left = [table for table in publishable if not any(one.covers(table) for one in found)]
    if left and (wanted.publication is not None or name in facts.publications):
        listed = ", ".join(table.full_name for table in left)
        sql_add = sql_text.add_to_publication(name, left)
        yield missing(f"publication {name}", f"does not publish {listed}", "add them", sql_add)
    elif left:
        listed = ", ".join(table.full_name for table in left)
        yield missing("publication", f"none publishes {listed}", "create one for exactly these", *_created(name, left))
    for publication in found:
        yield from _about_options(publication, facts.tables)


def candidates(facts: Facts, wanted: Wanted) -> Sequence[Publication]:
    """The publications that count: the one that is named, or all that send one of the tables."""
    if wanted.publication is not None:
        return [facts.publications[wanted.publication]] if wanted.publication in facts.publications else []
    return [one for one in facts.publications.values() if any(one.covers(table) for table in facts.tables)]


def _created(name: str, tables: Sequence[Table]) -> tuple[str, ...]:
    via_root = any(table.kind == "partitioned table" for table in tables)
    return (sql_text.create_publication(name, tables, via_root=via_root),) if tables else ()


def _about_options(publication: Publication, tables: Sequence[Table]) -> Iterator[Finding]:
    subject = f"publication {publication.name}"
    if not publication.operations >= _ROW_OPERATIONS:
        left_out = ", ".join(sorted(_ROW_OPERATIONS - publication.operations))
        sql = sql_text.publish_operations(publication.name)
        yield missing(subject, f"leaves out {left_out}", "publish them", sql)
    elif "truncate" not in publication.operations:
        yield note(subject, "leaves out truncate: a table that is emptied this way stays full in the lake")
    elif publication.all_tables:
        found = "publishes all tables of the database, those that are made later too"
        yield note(subject, found, "a table without a replica identity then refuses UPDATE and DELETE")
    else:
        yield ok(subject, f"sends {', '.join(sorted(publication.operations))}")
    for table in tables:
        oids = {table.oid, *(leaf.oid for leaf in table.partitions)}
        if oids & publication.filtered:
            yield note(subject, f"sends only some rows of {table.full_name}")
        if oids & publication.cut:
            yield note(subject, f"sends only some columns of {table.full_name}")
        if table.kind == "partitioned table" and publication.covers(table) and table.oid not in publication.tables:
            found = f"sends changes of {table.full_name} under the names of its partitions"
            sql = sql_text.publish_via_root(publication.name, on=True)
            yield missing(subject, found, "send them under the table's own name", sql)


def about_table(table: Table, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    subject = f"table {table.full_name}"
    problem = kind_problem(table)
    if problem is not None:
        found, remedy, sql = problem
        yield missing(subject, found, remedy, *sql)
        return
    bad = without_identity([table])
    for one in bad:
        yield _identity_finding(subject, table, one, facts)
    if not bad:
        key = f"key ({', '.join(table.key)})" if table.key else "no primary key"
        yield ok(subject, f"{key}, {identity_text(table)}")
    if not table.key and not bad:
        yield note(
            subject,
            "has no primary key: nothing tells two equal rows apart, and no incremental snapshot can be taken",
            "add a key, or keep its changes in a table of events only",
        )
    if table.generated and not any(one.generated and one.covers(table) for one in candidates(facts, wanted)):
        found = f"changes do not hold the generated columns {', '.join(table.generated)}"
        yield note(subject, found, "compute them in a transform")
    if table.row_security and not facts.role.superuser:
        remedy = f"ALTER ROLE {sql_text.name(facts.role.name)} BYPASSRLS, if it shall read all of them"
        yield note(subject, f"has row security: a snapshot by {facts.role.name} may not see all rows", remedy)


def _identity_finding(subject: str, table: Table, bad: Table, facts: Facts) -> Finding:
    where = "" if bad.oid == table.oid else f"partition {bad.full_name}: "
    published = [one for one in facts.publications.values() if one.covers(bad) or one.covers(table)]
    fails = [one.name for one in published if one.operations & _CHANGING]
    when = f"since {fails[0]} publishes it" if fails else "once published"
    found = f"{where}{identity_problem(bad)}: {when}, UPDATE and DELETE fail in your application"
    ways = remedies(bad)
    first = "give it a replica identity" if bad.key else "add a primary key"
    other = f"run this, or: {' · '.join(ways[1:])}" if len(ways) > 1 else "let the whole row tell which one it was"
    return missing(subject, found, f"{first}, or {other}", ways[0])
