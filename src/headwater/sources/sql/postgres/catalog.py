"""PostgreSQL's catalog: the tables that a pipeline reads, and the strategy for late rows that its facts allow (G6)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from headwater.config.sources.sql import LookbackSettings, SqlSourceSettings
from headwater.model.errors import InputError, UnknownName
from headwater.model.types import Column, CursorType
from headwater.pg import types as postgres_types
from headwater.pg.connection import PostgresSession
from headwater.pg.names import did_you_mean, is_pattern, match_names, split_name
from headwater.sources.sql.database import Relation, Subject, Ticker
from headwater.sources.sql.statements import describe
from headwater.sources.sql.windows.late_rows import Choice, choice_of_setting

DIALECT = "postgres"
_OLDEST_VERSION = 130_000  # the first with 64-bit transaction ids in SQL
_KINDS_WITH_ROWS = "('r', 'p', 'v', 'm', 'f')"
_WITH_PAGES = ("r", "m")  # one heap of their own: can be split by pages
_ALL = f"""
SELECT n.nspname, c.relname, c.relispartition FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN {_KINDS_WITH_ROWS} AND n.nspname NOT IN ('pg_catalog', 'information_schema')
AND n.nspname NOT LIKE 'pg\\_toast%%' AND n.nspname NOT LIKE 'pg\\_temp\\_%%' ORDER BY 1, 2"""  # noqa: S608
_TABLE = f"""
WITH RECURSIVE family(oid, level) AS (
    SELECT c.oid, 0 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = %s AND c.relkind IN {_KINDS_WITH_ROWS}
    AND CASE WHEN %s::text IS NULL THEN pg_table_is_visible(c.oid) ELSE n.nspname = %s END
    UNION SELECT i.inhrelid, f.level + 1 FROM pg_inherits i JOIN family f ON i.inhparent = f.oid)
SELECT c.oid::bigint, n.nspname, c.relkind::text, c.reltuples::bigint,
    coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::int
FROM family f JOIN pg_class c ON c.oid = f.oid JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY f.level, c.oid"""  # noqa: S608
_COLUMNS = """
SELECT a.attname, a.attnotnull, array_position(i.indkey::int2[], a.attnum)
FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE a.attrelid = %s::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped"""
_CURSOR = """
SELECT coalesce(pg_get_expr(d.adbin, d.adrelid), ''), a.attidentity <> '', s.seqrelid::bigint, s.seqrelid::regclass::text,
    s.seqincrement, s.seqcycle, s.seqcache, has_sequence_privilege(s.seqrelid, 'SELECT'), coalesce(pg_relation_filenode(s.seqrelid), 0)::bigint
FROM pg_attribute a
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_depend own ON own.classid = 'pg_class'::regclass AND own.refclassid = 'pg_class'::regclass
    AND own.refobjid = a.attrelid AND own.refobjsubid = a.attnum AND own.deptype = 'i' AND a.attidentity <> ''
LEFT JOIN pg_depend used ON used.classid = 'pg_attrdef'::regclass AND used.objid = d.oid
    AND used.refclassid = 'pg_class'::regclass AND used.refobjid IN (SELECT seqrelid FROM pg_sequence)
LEFT JOIN pg_sequence s ON s.seqrelid = coalesce(own.objid, used.refobjid)
WHERE a.attrelid = %s::bigint::oid AND a.attname = %s LIMIT 1"""
_TYPE_NAMES = "SELECT t.oid::bigint, format_type(t.oid, NULL) FROM pg_type t WHERE t.oid = ANY(%s::bigint[]::oid[])"


@dataclass(frozen=True)
class Server:
    """The server and the role, as far as every table depends on them."""

    cluster: str
    role: str
    sees_sessions: bool
    standby: bool


_SERVER = """
SELECT (SELECT system_identifier FROM pg_control_system())::text || '/' || d.oid, current_user::text,
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), pg_is_in_recovery()
FROM pg_database d WHERE d.datname = current_database()"""


def server_of(session: PostgresSession) -> Server:
    if session.server_version < _OLDEST_VERSION:
        raise InputError(
            f"{session.address}: the server is PostgreSQL {session.server_version // 10000}; Headwater needs 13 or newer",
            hint="upgrade the server, or read it through its JDBC driver (url: jdbc:postgresql://…)",
        )
    ((cluster, role, sees_sessions, standby),) = session.fetch(_SERVER)
    return Server(cluster, role, sees_sessions, standby)


def relations_of(session: PostgresSession, settings: SqlSourceSettings, server: Server) -> list[Relation]:
    """The streams as the catalog has them now: new tables that a pattern matches appear on their own."""
    if settings.query is not None:
        return [_query(session, settings, server)]
    if settings.table is not None:
        return [_table(session, settings, server, settings.table, split_name(settings.table))]
    relations = [
        _table(session, settings, server, stream, name)
        for stream, name in expand_patterns(session, settings.tables or [])
    ]
    return sorted(relations, key=lambda relation: relation.stream)


def expand_patterns(session: PostgresSession, patterns: list[str]) -> list[tuple[str, tuple[str, ...]]]:
    names = [text for text in patterns if not is_pattern(text)]
    streams = {text: split_name(text) for text in names}
    if len(names) < len(patterns):
        rows = session.fetch(_ALL, [])
        tables = [(schema, table) for schema, table, partition in rows if not partition]
        named = set(streams.values())
        for pattern in patterns:
            matches = match_names(pattern, tables, "public") if is_pattern(pattern) else []
            streams |= {
                f"{schema}.{table}": (schema, table) for schema, table in matches if (schema, table) not in named
            }
            if is_pattern(pattern) and not matches:
                schemas = sorted({f"{schema}.*" for schema, _ in tables})
                raise UnknownName(
                    f"{session.address}: no table matches {pattern!r}", hint=did_you_mean(pattern, schemas)
                )
    return list(streams.items())


def _table(
    session: PostgresSession, settings: SqlSourceSettings, server: Server, stream: str, identifiers: tuple[str, ...]
) -> Relation:
    schema = identifiers[0] if len(identifiers) > 1 else None
    family = session.fetch(_TABLE, [identifiers[-1], schema, schema])
    if not family:
        names = [f"{other_schema}.{table}" for other_schema, table, _ in session.fetch(_ALL, [])]
        raise UnknownName(f"{session.address}: table {stream} does not exist", hint=did_you_mean(stream, names))
    oid, schema, relkind, rows, pages = family[0]
    subject = Subject(
        DIALECT, settings.cursor, CursorType.INTEGER, (schema, identifiers[-1]), where=settings.where or ""
    )
    catalog = {name: (notnull, position) for name, notnull, position in session.fetch(_COLUMNS, [oid])}
    relation = _describe_columns(session, settings, subject, stream)
    columns = tuple(replace(column, nullable=not catalog[column.name][0]) for column in relation.columns)
    key = sorted((position, name) for name, (_, position) in catalog.items() if position is not None)
    default, identity, sequence, sequence_storage = _cursor_default(session, oid, settings.cursor)
    facts = CursorFacts(
        stream=stream,
        cursor_type=relation.subject.cursor_type,
        has_transaction_ids=all(child_relkind in ("r", "p", "m") for _, _, child_relkind, *_ in family),
        default=default,
        identity=identity,
        sequence=sequence,
        role=server.role,
        sees_sessions=server.sees_sessions,
        standby=server.standby,
    )
    choice = choose_late(settings.late, facts)
    return replace(
        relation,
        columns=columns,
        key=tuple(settings.key or (name for _, name in key)),
        nullable_cursor=not catalog[settings.cursor][0],
        late=choice.strategy,
        why=_why(choice.why, columns),
        ticker=choice.ticker,
        rows=_estimate(rows, pages) if len(family) == 1 and relkind in _WITH_PAGES else None,
        pages=pages if len(family) == 1 and relkind in _WITH_PAGES else None,
        storage=str(sequence_storage) if sequence else "",
        warnings=choice.warnings,
    )


def _query(session: PostgresSession, settings: SqlSourceSettings, server: Server) -> Relation:
    subject = Subject(
        DIALECT, settings.cursor, CursorType.INTEGER, query=settings.query or "", where=settings.where or ""
    )
    relation = _describe_columns(session, settings, subject, "query")
    facts = CursorFacts("query", relation.subject.cursor_type, has_transaction_ids=False, role=server.role)
    choice = choose_late(settings.late, facts)
    return replace(relation, late=choice.strategy, why=_why(choice.why, relation.columns), warnings=choice.warnings)


def _describe_columns(session: PostgresSession, settings: SqlSourceSettings, subject: Subject, stream: str) -> Relation:
    """The columns of a result without rows: so domains are resolved, and queries and tables are alike."""
    types = {name: (oid, modifier) for name, oid, modifier in session.describe(describe(subject))}
    type_names = dict(session.fetch(_TYPE_NAMES, [[oid for oid, _ in types.values()]]))
    if settings.cursor not in types:
        raise UnknownName(
            f"{stream} has no column {settings.cursor} (cursor)", hint=did_you_mean(settings.cursor, list(types))
        )
    for name in [*(settings.columns or []), *settings.as_text, *(settings.key or [])]:
        if name not in types:
            raise UnknownName(f"{stream} has no column {name}", hint=did_you_mean(name, list(types)))
    cursor_oid = types[settings.cursor][0]
    cursor_type = postgres_types.cursor_type(cursor_oid)
    if cursor_type is None:
        raise InputError(
            f"{stream}: column {settings.cursor} is of type {type_names.get(cursor_oid, cursor_oid)}, which cannot be a cursor",
            hint="a cursor is an integer, numeric, date, timestamp with or without time zone, text, varchar or uuid",
        )
    wanted_names = {*settings.columns, settings.cursor, *(settings.key or [])} if settings.columns else set(types)
    columns = tuple(
        _column(name, oid, modifier, type_names.get(oid, str(oid)), as_text=name in settings.as_text)
        for name, (oid, modifier) in types.items()
        if name in wanted_names
    )
    return Relation(
        stream=stream,
        subject=replace(subject, cursor_type=cursor_type, padded=cursor_oid == postgres_types.PADDED),
        columns=columns,
        key=tuple(settings.key or ()),
        nullable_cursor=True,
        late="digest",
        why="",
    )


def _column(name: str, oid: int, modifier: int, declared: str, *, as_text: bool) -> Column:
    type_ = None if as_text else postgres_types.column_type(oid, modifier)
    if type_ is None:
        is_jsonb = oid == postgres_types.JSONB
        return Column(name, "string", nullable=True, as_text=True, is_jsonb=is_jsonb, declared=declared)
    return Column(name, type_, nullable=True, declared=declared)


def _cursor_default(session: PostgresSession, oid: int, cursor: str) -> tuple[str, bool, NumberSequence | None, int]:
    ((default, identity, sequence, name, increment, cycles, cache, readable, storage),) = session.fetch(
        _CURSOR, [oid, cursor]
    )
    if sequence is None:
        return default, identity, None, 0
    return default, identity, NumberSequence(sequence, name, increment, cycles, cache, readable), storage


def _why(late: str, columns: tuple[Column, ...]) -> str:
    texts = [f"{column.name} ({column.declared})" for column in columns if column.as_text]
    return f"{late}; read as text: {', '.join(texts)}" if texts else late


def _estimate(rows: int, pages: int) -> int:
    return rows if rows >= 0 else pages * 60  # never analysed: a guess from the size


_NOW = r"(?:now\(\)|CURRENT_TIMESTAMP(?:\(\d\))?|(?:transaction|statement|clock)_timestamp\(\))"
_INSTANT = re.compile(rf"\(*{_NOW}\)*")
_UTC_WALL = re.compile(
    rf"\(?{_NOW} AT TIME ZONE '(?:utc|UTC|Etc/UTC)'::text\)?|timezone\('(?:utc|UTC|Etc/UTC)'::text, {_NOW}\)"
)
_ANY_WALL = re.compile(rf"\(*(?:{_NOW}|LOCALTIMESTAMP(?:\(\d\))?)\)*(?:::timestamp(?:\(\d\))? without time zone)?\)*")
_DATE = re.compile(rf"\(*(?:{_NOW}|CURRENT_DATE)\)*(?:::date)?\)*")
_CLOCKS = (
    (CursorType.TIMESTAMPTZ, _INSTANT, Ticker("instant")),
    (CursorType.TIMESTAMP, _UTC_WALL, Ticker("wall clock")),
    (CursorType.TIMESTAMP, _ANY_WALL, Ticker("any wall clock")),
    (CursorType.DATE, _DATE, Ticker("date")),
)
_NEXTVAL = re.compile(r"nextval\('.*'::regclass\)")


@dataclass(frozen=True)
class NumberSequence:
    """A sequence that assigns a column's values."""

    oid: int
    name: str
    increment: int
    cycles: bool
    cache: int
    readable: bool


@dataclass(frozen=True)
class CursorFacts:
    """What the catalog and the server know about a cursor and the role's rights."""

    stream: str
    cursor_type: CursorType
    has_transaction_ids: bool  # its rows carry them: a table, no view, query or foreign table
    default: str = ""
    identity: bool = False
    sequence: NumberSequence | None = None
    role: str = ""
    sees_sessions: bool = True
    standby: bool = False


def choose_late(late: str | LookbackSettings, facts: CursorFacts) -> Choice:
    """`auto` bounds the search only where that is sound; else the choice says why not."""
    if choice := choice_of_setting(late):
        return choice
    if not facts.has_transaction_ids:
        if late == "scan":
            raise InputError(
                f"{facts.stream}: late: scan needs the transaction ids of a table; views, queries and foreign "
                "tables have none",
                hint="write late: {lookback: …}, or name the table",
            )
        warning = (
            f"{facts.stream} is not a plain table, so rows that commit late below the mark are not found; "
            "write late: {lookback: …} to read rows shortly below it again"
        )
        return Choice(
            "digest",
            "late rows: only those that share the mark's value (rows without transaction ids)",
            warnings=(warning,),
        )
    if late == "scan":
        return Choice("xid", "late rows: by transaction id over the whole table (late: scan)")
    ticker, obstacle = _ticker(facts)
    if ticker is not None:
        why = f"late rows: by transaction id above the low watermark ({_describe(ticker, facts)})"
        return Choice("xid", why, ticker)
    warning = (
        f"{facts.stream}: every poll with new rows searches the whole table for late rows, because {obstacle}; "
        "write late: scan to accept this, or late: {lookback: …} to search only shortly below the mark"
    )
    return Choice("xid", f"late rows: by transaction id over the whole table, because {obstacle}", warnings=(warning,))


def _ticker(facts: CursorFacts) -> tuple[Ticker | None, str]:
    """What assigns the cursor's values, or the reason why the search cannot be bounded."""
    if facts.standby:
        return None, "this is a standby, where the open transactions of the primary cannot be listed"
    if not facts.sees_sessions:
        return None, f"the role may not see other sessions' transactions (GRANT pg_read_all_stats TO {facts.role})"
    if facts.cursor_type is CursorType.INTEGER:
        return _sequence_ticker(facts)
    for cursor_type, default, ticker in _CLOCKS:
        if facts.cursor_type is cursor_type and default.fullmatch(facts.default):
            return ticker, ""
    return None, "the catalog does not show that the cursor's values follow the order of transactions"


def _sequence_ticker(facts: CursorFacts) -> tuple[Ticker | None, str]:
    sequence = facts.sequence
    if sequence is None or not (facts.identity or _NEXTVAL.fullmatch(facts.default)):
        return None, "no sequence assigns the cursor's values"
    if sequence.cache != 1:
        return (
            None,
            f"sequence {sequence.name} has CACHE {sequence.cache}: sessions use numbers long after they took them",
        )
    if sequence.increment != 1 or sequence.cycles:
        return None, f"sequence {sequence.name} does not count up one by one"
    if not sequence.readable:
        return None, f"the sequence's state may not be read (GRANT SELECT ON SEQUENCE {sequence.name} TO {facts.role})"
    return Ticker("sequence", sequence.oid), ""


def _describe(ticker: Ticker, facts: CursorFacts) -> str:
    if ticker.kind == "sequence" and facts.sequence:
        return f"sequence {facts.sequence.name}"
    return {"instant": "server clock", "wall clock": "server clock", "date": "server clock, two days"}.get(
        ticker.kind, "server clock in any time zone, twelve hours"
    )
