"""What a JDBC driver says about the tables that a pipeline reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.config.sql_source import Lookback, SqlSource
from headwater.model.cursor import CursorType
from headwater.model.errors import InputError, UnknownName
from headwater.sources.sql.jdbc_kinds import JdbcKind
from headwater.sources.sql.jdbc_session import JdbcSession, TableName
from headwater.sources.sql.jdbc_types import Described, column_of, cursor_of
from headwater.sources.sql.names import did_you_mean, is_pattern, matching, split_name
from headwater.sources.sql.relation import LateWay, Relation, Subject
from headwater.sources.sql.statements import describe


def relations_of(session: JdbcSession, settings: SqlSource) -> list[Relation]:
    """The streams as the catalog has them now: new tables that a pattern matches appear on their own."""
    if settings.query is not None:
        subject = _subject(session, settings, query=settings.query)
        return [_relation(session, settings, "query", subject, None)]
    if settings.table is not None:
        return [_of_table(session, settings, settings.table, _named(session, settings.table))]
    streams: dict[str, TableName] = {}
    for written in settings.tables or []:
        if is_pattern(written):
            found = _matching(session, written)
            streams |= {f"{table.schema}.{table.name}": table for table in found if table not in streams.values()}
        else:
            streams[written] = _named(session, written)
    return [_of_table(session, settings, stream, table) for stream, table in sorted(streams.items())]


def _named(session: JdbcSession, written: str) -> TableName:
    """The table of that name: exactly so, or else the only one that differs in case alone."""
    parts = split_name(written)
    schema = parts[0] if len(parts) > 1 else session.default_schema
    exact = session.tables(schema, parts[-1])
    exact = [table for table in exact if table.name == parts[-1] and (not schema or table.schema in ("", schema))]
    if exact:
        return exact[0]
    known = session.tables(None if len(parts) > 1 else schema, None)
    folded = [
        table
        for table in known
        if table.name.lower() == parts[-1].lower() and (len(parts) == 1 or table.schema.lower() == schema.lower())
    ]
    if len(folded) == 1:
        return folded[0]
    names = [f"{table.schema}.{table.name}" if table.schema else table.name for table in known]
    raise UnknownName(f"{session.address.shown}: there is no table {written}", hint=did_you_mean(written, names))


def _matching(session: JdbcSession, pattern: str) -> list[TableName]:
    default = session.default_schema
    known = {(table.schema, table.name): table for table in session.tables(None, None)}
    found = matching(pattern, known, default)
    if not found:
        schemas = sorted({f"{schema}.*" for schema, _ in known})
        raise UnknownName(f"{session.address.shown}: no table matches {pattern!r}", hint=did_you_mean(pattern, schemas))
    return [known[name] for name in found]


def _of_table(session: JdbcSession, settings: SqlSource, stream: str, table: TableName) -> Relation:
    name = (table.schema, table.name) if table.schema else (table.name,)
    return _relation(session, settings, stream, _subject(session, settings, name=name), table)


def _subject(session: JdbcSession, settings: SqlSource, name: tuple[str, ...] = (), query: str = "") -> Subject:
    own = query.strip().rstrip(";")
    return Subject(
        session.address.kind.dialect, settings.cursor, CursorType.INTEGER, name, own, where=settings.where or ""
    )


def _relation(
    session: JdbcSession, settings: SqlSource, stream: str, subject: Subject, table: TableName | None
) -> Relation:
    kind, dialect = session.address.kind, subject.dialect
    found = session.describe(describe(subject))
    names = _Names(stream, {column.name: column for column in found})
    cursor = names.exactly(settings.cursor)
    as_text = {names.exactly(name) for name in settings.as_text}
    key = tuple(names.exactly(name) for name in settings.key or ())
    wanted = (
        {names.exactly(name) for name in settings.columns} | {cursor, *key} if settings.columns else set(names.known)
    )
    # Only of a table is it certain: an outer join makes NULLs in columns that a driver calls NOT NULL.
    certain = table is not None and "VIEW" not in table.type.upper()
    columns = tuple(
        column_of(dialect, column if certain else replace(column, nullable=True), stream, text=column.name in as_text)
        for column in found
        if column.name in wanted
    )
    about = names.known[cursor]
    way, why, warnings = _late(settings, stream, kind)
    return Relation(
        stream=stream,
        subject=replace(
            subject,
            cursor=cursor,
            kind=cursor_of(dialect, about, stream),
            padded=dialect == "postgres" and about.word == "BPCHAR",
            declared=about.word,
        ),
        columns=columns,
        key=key or (session.primary_key(table) if table is not None else ()),
        nullable_cursor=next(column.nullable for column in columns if column.name == cursor),
        late=way,
        why=why,
        warnings=warnings,
    )


@dataclass(frozen=True)
class _Names:
    """The columns of a stream: named exactly, or in another case where that is no question."""

    stream: str
    known: dict[str, Described]

    def exactly(self, written: str) -> str:
        if written in self.known:
            return written
        folded = [name for name in self.known if name.lower() == written.lower()]
        if len(folded) == 1:
            return folded[0]
        raise UnknownName(f"{self.stream} has no column {written}", hint=did_you_mean(written, list(self.known)))


def _late(settings: SqlSource, stream: str, kind: JdbcKind) -> tuple[LateWay, str, tuple[str, ...]]:
    if isinstance(settings.late, Lookback):
        why = f"late rows: what lies up to {settings.late.lookback} below the mark is read again and compared"
        return "edge", why, ()
    if settings.late == "off":
        return "off", "late rows: not looked for (late: off)", ()
    if settings.late == "scan":
        raise InputError(
            f"{stream}: late: scan needs transaction numbers, which are not known through JDBC",
            hint="write late: {lookback: …} to read again what lies shortly below the mark",
        )
    if kind.one_writer:
        return (
            "edge",
            f"late rows: those that share the mark's value; {kind.name}'s writers come one after the other",
            (),
        )
    other = ", or a postgresql:// address, which finds all of them" if kind.dialect == "postgres" else ""
    warning = (
        f"{stream}: rows that commit late below the mark are only found with late: {{lookback: …}}{other}; "
        f"{kind.name} has writers at the same time, and no transaction numbers to tell"
    )
    return "edge", "late rows: only those that share the mark's value", (warning,)
