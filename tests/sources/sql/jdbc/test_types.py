"""Which types can be kept, which are cursors, and which values are refused; without a JVM."""

from __future__ import annotations

import datetime as dt
import decimal

import pytest

from headwater.model.errors import InputError, ValueNotKept
from headwater.model.types import Column, CursorType
from headwater.sources.sql.jdbc.rows import arrow_batch, wire_schema
from headwater.sources.sql.jdbc.types import ResultColumn, column_of, cursor_of


def described(declared: str, precision: int = 0, scale: int = 0, *, signed: bool = True) -> ResultColumn:
    return ResultColumn("x", declared, precision, scale, nullable=True, signed=signed)


@pytest.mark.parametrize(
    ("dialect", "column_type", "kind"),
    [
        ("mysql", described("TINYINT"), "int32"),
        ("mysql", described("INT UNSIGNED", signed=False), "int64"),
        ("mysql", described("BIGINT UNSIGNED", signed=False), "decimal(20,0)"),
        ("mysql", described("DECIMAL", 38, 30), "decimal(38,30)"),
        ("mysql", described("DECIMAL", 65, 30), "string"),
        ("mysql", described("BIT", 1), "bool"),
        ("mysql", described("BIT", 64), "decimal(20,0)"),
        ("mysql", described("YEAR"), "string"),
        ("tsql", described("int identity"), "int32"),
        ("tsql", described("smallmoney", 10, 4), "decimal(10,4)"),
        ("tsql", described("datetime2", 26, 6), "timestamp"),
        ("tsql", described("uniqueidentifier"), "string"),
        ("oracle", described("NUMBER", 0, -127), "string"),
        ("oracle", described("NUMBER", 10, 0), "int64"),
        ("oracle", described("NUMBER", 5, -2), "int64"),
        ("oracle", described("NUMBER", 2, 5), "decimal(5,5)"),
        ("oracle", described("NUMBER", 38, -2), "string"),
        ("oracle", described("FLOAT", 126, -127), "string"),
        ("oracle", described("DATE"), "timestamp"),
        ("oracle", described("TIMESTAMP(6) WITH LOCAL TIME ZONE", 0, 6), "timestamptz"),
        ("postgres", described("numeric", 0, 0), "string"),
        ("postgres", described("numeric", 12, 2), "decimal(12,2)"),
        ("sqlite", described("DECIMAL", 10, 2), "decimal(10,2)"),
    ],
)
def test_a_type_is_kept_exactly_or_becomes_text(dialect, column_type, kind):
    assert column_of(dialect, column_type, "orders", text=False).type == kind


@pytest.mark.parametrize(
    ("dialect", "declared"), [("tsql", "datetime2"), ("tsql", "datetimeoffset"), ("oracle", "TIMESTAMP")]
)
def test_times_finer_than_microseconds_are_refused_unless_read_as_text(dialect, declared):
    column = described(declared, 27, 7)
    with pytest.raises(InputError, match="finer than microseconds") as caught:
        column_of(dialect, column, "orders", text=False)
    assert "as_text: [x]" in caught.value.hint
    assert column_of(dialect, column, "orders", text=True).type == "string"
    with pytest.raises(InputError, match="finer than microseconds"):
        cursor_of(dialect, column, "orders")


@pytest.mark.parametrize(
    ("dialect", "column_type", "kind"),
    [
        ("mysql", described("BIGINT UNSIGNED", signed=False), CursorType.INTEGER),
        ("mysql", described("TIMESTAMP"), CursorType.TIMESTAMPTZ),
        ("oracle", described("NUMBER", 0, -127), CursorType.DECIMAL),
        ("oracle", described("DATE"), CursorType.TIMESTAMP),
        ("postgres", described("uuid"), CursorType.UUID),
        ("sqlite", described("UUID"), CursorType.UUID),
    ],
)
def test_a_cursor_has_the_type_of_its_column(dialect, column_type, kind):
    assert cursor_of(dialect, column_type, "orders") is kind


@pytest.mark.parametrize(
    ("dialect", "declared", "way_out"),
    [
        ("tsql", "uniqueidentifier", "its own order"),
        ("mysql", "UUID", "its own order"),
        ("oracle", "NVARCHAR2", "VARCHAR2"),
        ("mysql", "FLOAT", "a cursor is"),
        ("mysql", "BIT", "a cursor is"),
        ("tsql", "timestamp", "a cursor is"),
    ],
)
def test_a_column_without_a_reliable_order_is_no_cursor(dialect, declared, way_out):
    with pytest.raises(InputError, match="cannot be a cursor") as caught:
        cursor_of(dialect, described(declared), "orders")
    assert way_out in caught.value.hint


def column(kind: str) -> Column:
    return Column("x", kind, nullable=True, as_text=True, declared="THEIRS")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("timestamp", "2026-03-29 02:30:00.12", dt.datetime.fromisoformat("2026-03-29T02:30:00.120000")),
        ("timestamp", "2026-03-29T02:30:00", dt.datetime.fromisoformat("2026-03-29T02:30:00")),
        ("timestamptz", "2026-03-29 02:30:00+00", dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC)),
        ("timestamptz", "2026-03-29 02:30:00.000001", dt.datetime(2026, 3, 29, 2, 30, 0, 1, tzinfo=dt.UTC)),
        ("date", "9999-12-31", dt.date(9999, 12, 31)),
        ("decimal(10,2)", "-12345678.5", decimal.Decimal("-12345678.50")),
        ("int64", "-9223372036854775808", -(2**63)),
        ("bool", "1", True),
        ("string", "", ""),
    ],
)
def test_a_text_becomes_its_exact_value(kind, text, value):
    batch = arrow_batch([(text, 1), (None, 0)], [column(kind)], 1, "orders")
    assert batch.column(0).to_pylist() == [value, None]
    assert batch.column(1).to_pylist() == [1, 0]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("timestamp", "0000-00-00 00:00:00"),
        ("timestamp", "2026-02-30 00:00:00"),
        ("timestamp", "2026-01-01 00:00:00.1234567"),
        ("timestamp", "infinity"),
        ("timestamptz", "2026-01-01 00:00:00+02"),
        ("date", "2026-00-15"),
        ("date", "0044-03-15 BC"),
        ("decimal(10,2)", "1.005"),
        ("int64", "12 monkeys"),
        ("bool", "2"),
    ],
)
def test_a_text_that_is_no_exact_value_is_refused(kind, text):
    with pytest.raises(ValueNotKept, match=r"orders: column x \(THEIRS\)"):
        arrow_batch([(text,)], [column(kind)], 0, "orders")


def test_the_database_sends_times_as_text_and_numbers_as_they_are():
    columns = [column("timestamp"), Column("n", "decimal(20,0)", nullable=True), Column("f", "float32", nullable=True)]
    assert wire_schema(columns, 1) == "h0 STRING, h1 DECIMAL(20,0), h2 DOUBLE, h3 BIGINT"
