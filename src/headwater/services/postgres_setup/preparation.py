"""From a request to the statements that prepare a server for change capture, and their execution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headwater.model.errors import InputError
from headwater.model.secret import MASK, Secret
from headwater.pg import sql_text
from headwater.pg.catalog import Facts, Publication, Table
from headwater.pg.connection import Connection
from headwater.pg.names import split_name, split_setting
from headwater.pg.sql_text import identity_problem, kind_problem, remedies, without_identity
from headwater.services.postgres_setup.rules import ROW_OPERATIONS, is_lost

_LOCK_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Request:
    """What the server should have."""

    publication: str
    role: str | None = None
    role_password: Secret | None = None
    slot: str | None = None
    default_identity: str | None = None  # for every table without one: `full`
    identities: Mapping[int, str] = field(default_factory=dict)  # by oid: `full`, `default` or an index
    via_root: bool | None = None  # None: where a table is partitioned


@dataclass(frozen=True)
class Statement:
    """One statement. The text shown is the text that runs, except for a password."""

    text: str
    password_of: str | None = None  # the role whose password it sets; the text holds a mask (G11)
    alone: bool = False  # PostgreSQL refuses it in a transaction that has written


@dataclass(frozen=True)
class Preparation:
    """The statements to run, in this order, and notices about them."""

    statements: tuple[Statement, ...]
    notices: tuple[str, ...]


def prepare(facts: Facts, request: Request) -> Preparation:
    """Raises InputError with every problem at once, before anything is changed."""
    _refuse_relation_kinds(facts.tables)
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
        notices.append(f"slot {request.slot} retains WAL from now on, until it is read or dropped")
    changes = [Statement(sql_text.replica_identity(table, identity)) for table, identity in identities]
    return Preparation((*role, *changes, *publication, *slot), tuple(notices))


def _refuse_relation_kinds(tables: Sequence[Table]) -> None:
    problems = [(table, problem) for table in tables if (problem := kind_problem(table)) is not None]
    if problems:
        raise InputError(
            "; ".join(f"{table.full_name} {problem_text}" for table, (problem_text, _, _) in problems),
            hint=" · ".join(dict.fromkeys(remedy for _, (_, remedy, _) in problems)) + " · leave them out by --exclude",
        )


def _identity_changes(tables: Sequence[Table], request: Request) -> Iterator[tuple[Table, str]]:
    for table in tables:
        for row in table.partitions or (table,):
            identity = request.identities.get(table.oid)
            if identity is None and request.default_identity is not None and identity_problem(row) is not None:
                identity = request.default_identity
            if identity is not None and not _has_identity(row, identity):
                _refuse_index(row, identity)
                yield row, identity


def _has_identity(table: Table, identity: str) -> bool:
    return table.identity_index == identity if table.identity == "index" else table.identity == identity


def _refuse_index(table: Table, identity: str) -> None:
    if identity not in {"full", "default"} and identity not in table.unique_indexes:
        candidates = ", ".join(table.unique_indexes)
        raise InputError(
            f"{table.full_name}: index {identity} cannot be a replica identity",
            hint=f"these can: {candidates}"
            if candidates
            else "it must be unique, immediate, whole, and over NOT NULL columns",
        )


def _refuse_without_identity(tables: Sequence[Table], changes: Sequence[tuple[Table, str]]) -> None:
    changed = {table.oid: _with_identity(table, identity) for table, identity in changes}
    rows = [row for table in tables for row in (table.partitions or (table,))]
    bad = without_identity([changed.get(row.oid, row) for row in rows])
    if bad:
        statements = "\n    ".join(f"{statement};" for table in bad for statement in remedies(table))
        raise InputError(
            "; ".join(f"{table.full_name}: {identity_problem(table)}" for table in bad)
            + ". Once published, UPDATE and DELETE would fail in your application; nothing was changed",
            hint=f"add a primary key, or pass --replica-identity full (or TABLE=full, TABLE=INDEX), which runs\n    {statements}",
        )


def _with_identity(table: Table, identity: str) -> Table:
    if identity == "full":
        return replace(table, identity="full", identity_index=None)
    if identity == "default":
        return replace(table, identity="default", identity_index=None)
    return replace(table, identity="index", identity_index=identity)


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
            f"slot {slot.name} exists, in database {slot.database} and with plugin {slot.plugin}",
            hint="choose another name for --slot",
        )
    elif is_lost(slot):
        raise InputError(
            f"slot {slot.name} is lost: the server has removed WAL that it still needs",
            hint=f"drop it, and copy the tables again: SELECT pg_drop_replication_slot({sql_text.literal(slot.name)})",
        )


def _publication(facts: Facts, request: Request) -> tuple[list[Statement], list[str]]:
    name = request.publication
    partitioned = any(table.kind == "partitioned table" for table in facts.tables)
    via_root = partitioned if request.via_root is None else request.via_root
    current = facts.publications.get(name)
    if current is None:
        return [Statement(sql_text.create_publication(name, sql_text.names(facts.tables), via_root=via_root))], []
    texts = []
    unpublished = [table for table in facts.tables if not current.covers(table)]
    if unpublished:
        texts.append(sql_text.add_to_publication(name, sql_text.names(unpublished)))
    if current.via_root != via_root and (partitioned or request.via_root is not None):
        texts.append(sql_text.publish_via_root(name, on=via_root))
    if not current.operations >= ROW_OPERATIONS:
        texts.append(sql_text.publish_operations(name))
    return [Statement(text) for text in texts], list(_about_others(current, facts.tables))


def _about_others(publication: Publication, tables: Sequence[Table]) -> Iterator[str]:
    ours = {oid for table in tables for oid in (table.oid, *(leaf.oid for leaf in table.partitions))}
    if publication.all_tables:
        yield f"publication {publication.name} publishes all tables of the database"
    elif others := len(publication.entries.keys() - ours):
        yield f"publication {publication.name} also publishes {others} other table{'s' * (others > 1)}: unchanged"
    for table in tables:
        if table.oid in publication.filtered | publication.column_lists:
            yield f"publication {publication.name} sends only some rows or columns of {table.full_name}: unchanged"


def prepare_role(facts: Facts, request: Request) -> tuple[Sequence[Statement], Sequence[str]]:
    """The statements and notices for the role; none where no role is requested."""
    if request.role is None:
        return [], []
    role = _alter_role(facts) if facts.role.exists else _create_role(facts, request)
    return [*role, *_grants(facts, request)], list(_notices(facts, request))


def _create_role(facts: Facts, request: Request) -> Iterator[Statement]:
    name, rds = facts.role.name, facts.server.service == "rds"
    yield Statement(sql_text.create_role(name, rds=rds))
    if rds:
        yield Statement(sql_text.allow_replication(name, rds=True))
    if request.role_password is not None:
        yield Statement(f"ALTER ROLE {sql_text.name(name)} PASSWORD '{MASK}'", password_of=name)


def _alter_role(facts: Facts) -> Iterator[Statement]:
    role = facts.role
    if not role.login:
        yield Statement(f"ALTER ROLE {sql_text.name(role.name)} LOGIN")
    if not role.may_replicate:
        yield Statement(sql_text.allow_replication(role.name, rds=facts.server.service == "rds"))


def _grants(facts: Facts, request: Request) -> Iterator[Statement]:
    # Published under their own names, partitions are read as tables of their own.
    leaves = [leaf for table in facts.tables for leaf in table.partitions] if request.via_root is False else []
    tables = [*facts.tables, *leaves]
    for schema in dict.fromkeys(table.schema for table in tables if not table.may_use_schema):
        yield Statement(sql_text.grant_usage(schema, facts.role.name))
    unreadable = [table for table in tables if not table.may_select]
    if unreadable:
        yield Statement(sql_text.grant_select(unreadable, facts.role.name))


def _notices(facts: Facts, request: Request) -> Iterator[str]:
    role = facts.role
    if not role.exists and request.role_password is None:
        yield f"role {role.name} gets no password: --role-password-env NAME sets one"
    if role.exists and request.role_password is not None:
        yield f"role {role.name} exists: its password is unchanged"
    if role.superuser:
        yield f"role {role.name} is a superuser, which change capture does not need"


def parse_identities(flags: Sequence[str], tables: Sequence[Table]) -> tuple[str | None, Mapping[int, str]]:
    """`full`, `sales.orders=full`, `orders=orders_code_key` → the default identity, and identities by oid."""
    default = None
    by_table: dict[int, str] = {}
    for text in flags:
        name, identity = split_setting(text)
        if name is not None:
            by_table[_named_table(name, tables).oid] = identity
        elif identity == "full":
            default = identity
        else:
            raise InputError(
                f"--replica-identity {identity} names no table",
                hint="write TABLE=default or TABLE=INDEX; only `full` works without a table",
            )
    return default, by_table


def _named_table(name: str, tables: Sequence[Table]) -> Table:
    name_parts = split_name(name)
    matches = [table for table in tables if table.name == name_parts[-1] and name_parts[:-1] in ((), (table.schema,))]
    if len(matches) != 1:
        names = ", ".join(table.full_name for table in tables)
        raise InputError(f"--replica-identity {name}: matches none or several of the tables", hint=f"they are: {names}")
    return matches[0]


def apply(
    connection: Connection,
    preparation: Preparation,
    role_password: Secret | None,
    *,
    lock_timeout_seconds: float = _LOCK_TIMEOUT_SECONDS,
) -> None:
    """Run the statements in one transaction, then those that must run alone."""
    with connection.transaction():
        # ALTER TABLE waits for open transactions, and later statements on the table wait behind it.
        connection.execute("SELECT set_config('lock_timeout', %s, true)", [f"{lock_timeout_seconds * 1000:.0f}ms"])
        for statement in preparation.statements:
            if statement.password_of is not None and role_password is not None:
                _set_password(connection, statement.password_of, role_password)
            elif not statement.alone:
                connection.execute(statement.text.encode())
    for statement in preparation.statements:
        if statement.alone:
            connection.execute(statement.text.encode())


def _set_password(connection: Connection, role: str, password: Secret) -> None:
    # Hashed here: the server's log may hold the statement (G11).
    hashed = connection.pgconn.encrypt_password(password.reveal().encode(), role.encode()).decode()
    connection.execute(f"ALTER ROLE {sql_text.name(role)} PASSWORD {sql_text.literal(hashed)}".encode())
