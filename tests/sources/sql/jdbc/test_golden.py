"""The SQL of MySQL (MariaDB's is the same), SQL Server and Oracle, against golden files.

To write them anew: HEADWATER_GOLDEN=1 pytest tests/sources/sql/jdbc/test_golden.py
"""

from __future__ import annotations

import datetime as dt
import decimal

import pytest

from headwater.model.position.marks import ColumnMark
from headwater.model.position.seen_rows import SeenDigests
from headwater.model.types import Column, CursorType
from headwater.sources.sql import statements
from headwater.sources.sql.database import Relation, Subject
from headwater.sources.sql.jdbc.rows import with_wire_names
from headwater.sources.sql.jdbc.types import ResultColumn, column_of, cursor_of
from tests.sources.sql.jdbc.scripted_session import poll
from tests.sources.sql.test_statements import check

DIALECTS = ["mysql", "tsql", "oracle"]
COLUMNS = (Column("id", "int64", nullable=False), Column("note", "string", nullable=True))
# The types that a cursor may have, in each database's words.
CURSORS = {
    "mysql": ["BIGINT", "BIGINT UNSIGNED", "DECIMAL", "DATE", "DATETIME", "TIMESTAMP", "VARCHAR"],
    "tsql": ["bigint", "decimal", "date", "datetime", "smalldatetime", "datetime2", "datetimeoffset", "nvarchar"],
    "oracle": ["NUMBER(18)", "NUMBER", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "VARCHAR2"],
}
OTHERS = {
    "mysql": [
        "TINYINT",
        "INT UNSIGNED",
        "FLOAT",
        "DOUBLE",
        "BIT",
        "TIME",
        "YEAR",
        "JSON",
        "CHAR",
        "ENUM",
        "BLOB",
        "LONGTEXT",
    ],
    "tsql": [
        "bit",
        "int identity",
        "real",
        "float",
        "money",
        "time",
        "uniqueidentifier",
        "xml",
        "timestamp",
        "ntext",
        "char",
    ],
    "oracle": [
        "FLOAT",
        "BINARY_FLOAT",
        "BINARY_DOUBLE",
        "CLOB",
        "RAW",
        "INTERVAL DAY TO SECOND",
        "NVARCHAR2",
        "CHAR",
        "NCHAR",
    ],
}
DAY = dt.datetime.fromisoformat("2026-03-29T01:30:00.123456")
VALUES = {
    CursorType.INTEGER: (-1, 18446744073709551615),
    CursorType.DECIMAL: (decimal.Decimal("-0.10"), decimal.Decimal("1E+3")),
    CursorType.DATE: (dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    CursorType.TIMESTAMP: (DAY, DAY.replace(microsecond=997000)),
    CursorType.TIMESTAMPTZ: (DAY.replace(tzinfo=dt.UTC), DAY.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))),
    CursorType.STRING: ("", "O'Brien\\ zürich 🚀"),
}
NUMBER = {"mysql": "BIGINT", "tsql": "bigint", "oracle": "NUMBER(18)"}
DIGITS = {
    "NUMBER(18)": (18, 0),
    "DECIMAL": (12, 2),
    "decimal": (38, 10),
    "NUMBER": (38, 2),
    "BIT": (8, 0),
    "datetime2": (26, 6),
    "datetimeoffset": (33, 6),
    "TIMESTAMP": (11, 6),
    "TIMESTAMP WITH TIME ZONE": (13, 6),
}


def described(name: str, declared: str) -> ResultColumn:
    precision, scale = DIGITS.get(declared, (0, -127 if declared == "FLOAT" else 0))
    return ResultColumn(name, declared, precision, scale, nullable=True, signed="UNSIGNED" not in declared)


def relation(dialect: str, declared: str, cursor: str = "the cursor", **more) -> Relation:
    about = described(cursor, declared)
    kind = cursor_of(dialect, about, "orders")
    subject = Subject(dialect, cursor, kind, **{"name": ("sales", "orders"), **more}, declared=about.word)
    columns = (*COLUMNS, column_of(dialect, about, "orders", text=False))
    return Relation("orders", subject, columns, ("id",), nullable_cursor=True, late="digest", why="")


def mark(about: Relation, value, since=None, known=("0123456789abcdef",)) -> ColumnMark:
    edge = SeenDigests(value if since is None else since, frozenset(known))
    return ColumnMark(about.subject.cursor, about.subject.cursor_type, value, edge=edge)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_range_of_every_cursor_type(dialect):
    sections = {}
    for declared in CURSORS[dialect]:
        about = relation(dialect, declared)
        low, high = VALUES[about.subject.cursor_type]
        window = statements.value_window(about.subject, low, high)
        sections[f"{declared}: rows"] = statements.read_rows(about.subject, about.columns[2:], window)
        sections[f"{declared}: greatest value"] = statements.top_value(about.subject, window)
        sections[f"{declared}: from a value on"] = statements.count_rows(
            about.subject, [statements.from_value(about.subject, low)]
        )
    check(f"{dialect}/ranges", sections)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_whole_polls(dialect):
    moment = {"mysql": "DATETIME", "tsql": "datetime2", "oracle": "TIMESTAMP"}[dialect]
    by_number, by_time = relation(dialect, NUMBER[dialect]), relation(dialect, moment)
    later = "2026-03-29 01:40:00.5"
    polls = {
        "first": poll(by_number, None, ["900"]),
        "first, above a value, in three parts": poll(by_number, None, ["900", "300", "600"], start=-1, splits=3),
        "first, cut by max_rows": poll(by_number, None, ["900", "100"], max_rows=100),
        "next": poll(by_number, mark(by_number, 900), ["950"], nulls="read"),
        "next, by time, with lookback": poll(
            by_time, mark(by_time, DAY, DAY - dt.timedelta(minutes=5)), [later], late={"lookback": "10m"}
        ),
        "late: off": poll(by_time, ColumnMark("the cursor", CursorType.TIMESTAMP, DAY), [later], late="off"),
    }
    check(
        f"{dialect}/polls", {f"{title}: {step}": sql for title, asked in polls.items() for step, sql in asked.items()}
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_type_is_read_exactly_or_as_text(dialect):
    about = relation(dialect, NUMBER[dialect])
    sections = {}
    for declared in [*CURSORS[dialect], *OTHERS[dialect]]:
        for text in (False, True):
            column = column_of(dialect, described("x", declared), "orders", text=text)
            title = f"{declared} as {column.type}{' (as_text)' if text else ''}"
            sections[title] = statements.read_rows(about.subject, [column], [])
    check(f"{dialect}/types", sections)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_hostile_names_stay_names(dialect):
    sections = {}
    for name in [
        'say "hi"',
        "back`tick",
        "brac]ket[",
        "with blank.and dot",
        "select",
        "größe-Δ",
        "semi;colon--",
        "qu'ote",
    ]:
        about = relation(
            dialect,
            NUMBER[dialect],
            cursor=name,
            name=(name, name),
            where=f"x <> '{name}' -- or so".replace("qu'ote", ""),
        )
        sql = statements.read_flagged(
            about.subject,
            about.columns[2:],
            [statements.above(about.subject, 5)],
            [statements.with_value(about.subject)],
        )
        sections[f"{name}: rows"] = sql
        sections[f"{name}: for Spark"] = with_wire_names(dialect, sql, about.columns[2:])
        sections[f"{name}: greatest"] = statements.top_value(about.subject, [])
    check(f"{dialect}/names", sections)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_query_goes_in_as_it_is(dialect):
    about = relation(dialect, NUMBER[dialect], name=(), query="SELECT a, '%;' AS b FROM t -- the end;").subject
    check(
        f"{dialect}/query",
        {
            "describe": statements.describe(about),
            "rows": statements.read_rows(about, COLUMNS, [statements.above(about, 5)]),
            "the thousandth value": statements.nth_value(about, [statements.with_value(about)], 1000),
            "for Spark": with_wire_names(dialect, statements.read_rows(about, COLUMNS, []), COLUMNS),
        },
    )
