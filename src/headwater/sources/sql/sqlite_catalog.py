"""What a SQLite file says about the tables that a pipeline reads."""

from __future__ import annotations

from headwater.config.sql_source import Lookback, SqlSource
from headwater.model.errors import HeadwaterError, InputError, UnknownName
from headwater.sources.sql.names import did_you_mean, is_pattern, matching, split_name
from headwater.sources.sql.relation import Column, Relation, Subject
from headwater.sources.sql.sqlite_file import SqliteFile
from headwater.sources.sql.sqlite_types import cursor_type, kind_of

DIALECT = "sqlite"
_VIEW = "headwater_query"
_HIDDEN = 1  # columns of virtual tables that a star does not show


def relations_of(file: SqliteFile, settings: SqlSource) -> list[Relation]:
    """The streams as the file has them now."""
    if settings.query is not None:
        own = settings.query.strip().rstrip(";")
        file.fetch(f"DROP VIEW IF EXISTS temp.{_VIEW}")
        file.fetch(f"CREATE TEMP VIEW {_VIEW} AS SELECT * FROM (\n{own}\n)")  # noqa: S608 - the user's own SQL
        return [_relation(file, settings, "query", ("temp", _VIEW), query=own)]
    if settings.table is not None:
        return [_relation(file, settings, settings.table, _named(file, settings.table))]
    names = _names(file)
    streams: dict[str, tuple[str, ...]] = {}
    for written in settings.tables or []:
        if not is_pattern(written):
            streams[written] = _named(file, written)
            continue
        found = matching(written, [("main", name) for name in names], "main")
        if not found:
            raise UnknownName(
                f"sqlite file {file.path}: no table matches {written!r}", hint=did_you_mean(written, names)
            )
        streams |= {name: (schema, name) for schema, name in found}
    return [_relation(file, settings, stream, parts) for stream, parts in sorted(streams.items())]


def _names(file: SqliteFile) -> list[str]:
    sql = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite@_%' ESCAPE '@'"
    return sorted(name for (name,) in file.fetch(sql))


def _named(file: SqliteFile, written: str) -> tuple[str, ...]:
    parts = split_name(written)
    known = _names(file)
    exact = {name.lower(): name for name in known}.get(parts[-1].lower())  # SQLite's names ignore case
    if exact is None or (len(parts) > 1 and parts[0].lower() != "main"):
        raise UnknownName(f"sqlite file {file.path}: there is no table {written}", hint=did_you_mean(written, known))
    return ("main", exact)


def _relation(file: SqliteFile, settings: SqlSource, stream: str, parts: tuple[str, ...], query: str = "") -> Relation:
    found = file.fetch(
        'SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?, ?) WHERE hidden <> ?',
        [parts[1], parts[0], _HIDDEN],
    )
    declared = {name: str(kind or "") for name, kind, _, _ in found}
    for wanted in [settings.cursor, *(settings.columns or []), *settings.as_text, *(settings.key or [])]:
        if wanted not in declared:
            raise UnknownName(f"{stream} has no column {wanted}", hint=did_you_mean(wanted, list(declared)))
    keyed = [name for _, name in sorted((pk, name) for name, _, _, pk in found if pk)]
    row_numbers = _has_row_numbers(file, parts, declared) and not query
    alias = keyed[0] if row_numbers and len(keyed) == 1 and declared[keyed[0]].upper() == "INTEGER" else None
    kind = cursor_type(declared[settings.cursor])
    if kind is None:
        raise InputError(
            f"{stream}: column {settings.cursor} is declared {declared[settings.cursor] or 'without a type'}, which is no cursor",
            hint="a cursor is declared INTEGER, DECIMAL, DATE, TIMESTAMP, TEXT or UUID; in a query use CAST, or name the table",
        )
    wanted_names = {*settings.columns, settings.cursor, *(settings.key or [])} if settings.columns else set(declared)
    columns = tuple(
        Column(
            name,
            "string" if name in settings.as_text else kind_of(type_),
            nullable=not notnull and name != alias,
            declared=str(type_ or "no type"),
        )
        for name, type_, notnull, _ in found
        if name in wanted_names
    )
    subject = Subject(DIALECT, settings.cursor, kind, () if query else parts, query, settings.where or "")
    nullable = next(column.nullable for column in columns if column.name == settings.cursor)
    way, why = _late(settings, stream)
    return Relation(
        stream=stream,
        subject=subject,
        columns=columns,
        key=tuple(settings.key or keyed),
        nullable_cursor=nullable,
        late="off" if way == "off" else "edge",
        why=why,
        pages=0 if row_numbers else None,
        row_numbers=alias == settings.cursor,
    )


def _late(settings: SqlSource, stream: str) -> tuple[str, str]:
    if isinstance(settings.late, Lookback):
        return "edge", f"late rows: what lies up to {settings.late.lookback} below the mark is read again and compared"
    if settings.late == "scan":
        raise InputError(
            f"{stream}: late: scan needs transaction numbers, which SQLite does not have",
            hint="leave late out (SQLite's writers come one after the other), or write late: {lookback: …}",
        )
    if settings.late == "off":
        return "off", "late rows: not looked for (late: off)"
    return "edge", "late rows: those that share the mark's value; SQLite's writers come one after the other"


def _has_row_numbers(file: SqliteFile, parts: tuple[str, ...], declared: dict[str, str]) -> bool:
    """A table has them unless it is WITHOUT ROWID, or a column of its own took the name."""
    if any(name.lower() == "rowid" for name in declared) or parts[0] == "temp":
        return False
    if not file.fetch("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [parts[1]]):
        return False
    quoted = parts[1].replace('"', '""')
    try:
        file.fetch(f'SELECT rowid FROM "{quoted}" LIMIT 0')  # noqa: S608 - a quoted name
    except HeadwaterError:
        return False
    return True
