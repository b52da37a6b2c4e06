"""The SQL text, against golden files. To write them anew: HEADWATER_GOLDEN=1 pytest tests/sources/sql/test_statements.py"""

from __future__ import annotations

import datetime as dt
import decimal
import os
import uuid
from pathlib import Path

import pytest

from headwater.model.position.marks import ColumnMark
from headwater.model.position.seen_rows import SeenTransactions
from headwater.model.types import Column, CursorType
from headwater.sources.sql import statements
from headwater.sources.sql.database import Subject
from headwater.sources.sql.dialects import malformed_cursor, strays

GOLDEN = Path(__file__).parent / "golden"
DAY = dt.datetime(2026, 3, 29, 1, 30, 0, 123456)  # noqa: DTZ001
VALUES = {
    CursorType.INTEGER: (-1, 42),
    CursorType.DECIMAL: (decimal.Decimal("-0.10"), decimal.Decimal("1E+3")),
    CursorType.DATE: (dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    CursorType.TIMESTAMP: (DAY, DAY.max),
    CursorType.TIMESTAMPTZ: (DAY.replace(tzinfo=dt.UTC), dt.datetime(2026, 10, 25, 1, 30, tzinfo=dt.UTC)),
    CursorType.STRING: ("O'Brien\\", "zürich 'ß'"),
    CursorType.UUID: (uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)),
}
COLUMNS = (
    Column("id", "int64", nullable=False),
    Column('odd "name"', "string", nullable=True),
    Column("payload", "string", nullable=True, as_text=True),
    Column("tree", "string", nullable=True, as_text=True, is_jsonb=True),
)
SEEN = SeenTransactions("cluster", (3 << 32) + 900, ((3 << 32) + 890, (3 << 32) + 895))
EARLIER = SeenTransactions("cluster", (3 << 32) + 800, ((3 << 32) + 790,))


def check(name: str, sections: dict[str, str]) -> None:
    text = "".join(f"-- {title}\n{sql};\n\n" for title, sql in sections.items())
    path = GOLDEN / f"{name}.sql"
    if os.environ.get("HEADWATER_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def subject(dialect: str, kind: CursorType = CursorType.INTEGER, **more) -> Subject:
    more = {"name": ("sales", "order's"), **more}
    return Subject(dialect, "the cursor", kind, **more)


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_a_range_of_every_cursor_type(dialect):
    sections = {}
    for kind, (low, high) in VALUES.items():
        about = subject(dialect, kind)
        window = statements.value_window(about, low, high)
        sections[f"{kind.value}: rows"] = statements.read_rows(about, COLUMNS, window)
        sections[f"{kind.value}: greatest value"] = statements.top_value(about, window)
        sections[f"{kind.value}: from a value on"] = statements.count_rows(about, [statements.from_value(about, low)])
    check(f"{dialect}_ranges", sections)


def test_the_windows_of_transactions():
    about = subject("postgres")
    start = ColumnMark("the cursor", CursorType.INTEGER, 100, EARLIER)
    end = ColumnMark("the cursor", CursorType.INTEGER, 200, SEEN)
    cases = {
        "a first load": (None, end, None, 150, None),
        "a first load above a value": (None, end, None, None, 7),
        "bounded": (start, end, 90, 180, None),
        "bounded, nothing open before": (start, end, 100, 200, None),
        "scan": (start, end, None, None, None),
        "planning": (start, None, 90, 180, 7),
    }
    sections = {}
    for title, (begin, up_to, low_start, low_end, floor) in cases.items():
        window = statements.snapshot_window(
            about, begin, up_to, low_start=low_start, low_end=low_end, floor=floor, seen=SEEN
        )
        sections[title] = statements.read_rows(about, COLUMNS[:1], window)
    sections["NULL cursors, first"] = statements.count_rows(about, statements.snapshot_nulls(about, None, SEEN))
    sections["NULL cursors, later"] = statements.count_rows(about, statements.snapshot_nulls(about, start, SEEN))
    check("postgres_transactions", sections)


def test_the_parts_of_a_window():
    postgres, sqlite = subject("postgres", CursorType.STRING), subject("sqlite")
    everything = [statements.with_value(postgres)]
    check(
        "parts",
        {
            "pages": statements.read_rows(postgres, COLUMNS[:1], statements.page_range(0, 50)),
            "last pages": statements.read_rows(postgres, COLUMNS[:1], statements.page_range(50, None)),
            "quantiles": statements.quantiles(postgres, everything, 4),
            "the thousandth value": statements.nth_value(postgres, everything, 1000),
            "rowids": statements.read_rows(sqlite, COLUMNS[:1], statements.rowid_range(5, 9)),
            "span of rowids": statements.rowid_span(sqlite, [statements.with_value(sqlite)]),
        },
    )


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_what_the_user_wrote_goes_in_as_it_is(dialect):
    query = subject(dialect, name=(), query="SELECT a, '%;' AS b FROM t -- the end;", where="b <> 'x' -- or so")
    flags = [statements.above(query, 5), statements.with_value(query)]
    check(
        f"{dialect}_query",
        {
            "describe": statements.describe(query),
            "rows": statements.read_rows(query, COLUMNS[:1], [statements.above(query, 5)]),
            "flagged": statements.read_flagged(query, COLUMNS[:1], flags, [statements.either(*flags)]),
        },
    )


def test_the_checks_of_sqlite_cursors():
    sections = {}
    for kind in VALUES:
        about = subject("sqlite", kind)
        odd = malformed_cursor(about)
        for number, condition in enumerate([*strays(about), *([] if odd is None else [odd])]):
            sections[f"{kind.value} {number}"] = statements.storage_of_one(about, [condition])
    check("sqlite_checks", sections)
