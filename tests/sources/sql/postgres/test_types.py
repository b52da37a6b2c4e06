"""PostgreSQL's types in Arrow: exact, or refused by name (G8)."""

from __future__ import annotations

import datetime as dt
import decimal

import psycopg
import pyarrow as pa
import pytest

from headwater.model.errors import ValueNotKept
from tests.sources.sql.poller import Poller

D = decimal.Decimal
# declared, written, Arrow type, read
ROUND_TRIPS = [
    ("bool", "true", pa.bool_(), True),
    ("int2", "-32768", pa.int32(), -32768),
    ("int4", "2147483647", pa.int32(), 2147483647),
    ("int8", "-9223372036854775808", pa.int64(), -(2**63)),
    ("real", "'NaN'", pa.float32(), None),
    ("float8", "0.1", pa.float64(), 0.1),
    ("float8", "'-Infinity'", pa.float64(), float("-inf")),
    ("numeric(12,2)", "1234567890.12", pa.decimal128(12, 2), D("1234567890.12")),
    ("numeric(38,38)", "-0.00000000000000000000000000000000000001", pa.decimal128(38, 38), D("-1E-38")),
    ("numeric(5)", "12345", pa.decimal128(5, 0), D(12345)),
    ("numeric(5,-2)", "1234500", pa.string(), "1234500"),
    ("numeric(40,2)", "1.50", pa.string(), "1.50"),
    ("numeric", "1.10", pa.string(), "1.10"),
    ("text", "'O''Brien 😀'", pa.string(), "O'Brien 😀"),
    ("varchar(3)", "'abc'", pa.string(), "abc"),
    ("char(5)", "'ab'", pa.string(), "ab   "),
    ("name", "'n'", pa.string(), "n"),
    ("bytea", "'\\x00ff'", pa.binary(), b"\x00\xff"),
    ("date", "'0001-01-01'", pa.date32(), dt.date(1, 1, 1)),
    ("timestamp", "'2026-03-29 02:30:00.000001'", pa.timestamp("us"), dt.datetime(2026, 3, 29, 2, 30, 0, 1)),  # noqa: DTZ001
    (
        "timestamptz",
        "'2026-03-29 02:30:00.000001+02'",
        pa.timestamp("us", "UTC"),
        dt.datetime(2026, 3, 29, 0, 30, 0, 1, dt.UTC),
    ),
    (
        "timestamptz",
        "'9999-12-31 23:59:59.999999+00'",
        pa.timestamp("us", "UTC"),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
    ),
    ("time", "'24:00:00'", pa.string(), "24:00:00"),
    ("timetz", "'12:00:00.5+05:30'", pa.string(), "12:00:00.5+05:30"),
    ("interval", "'1 mon 2 days 03:04:05.678901'", pa.string(), "1 mon 2 days 03:04:05.678901"),
    ("uuid", "'0190163d-8694-739b-aea5-966c26f8ad91'", pa.string(), "0190163d-8694-739b-aea5-966c26f8ad91"),
    ("json", '\'{"b":1, "a": 1.10}\'', pa.string(), '{"b":1, "a": 1.10}'),
    ("jsonb", '\'{"b":1,"a":1.10}\'', pa.string(), '{"a": 1.10, "b": 1}'),
    ("money", "'-1234.5'", pa.string(), "-$1,234.50"),
    ("inet", "'10.0.0.1/8'", pa.string(), "10.0.0.1/8"),
    ("int4[]", "'{{1,NULL},{3,4}}'", pa.string(), "{{1,NULL},{3,4}}"),
    ("text[]", "ARRAY['a,b', 'NULL', NULL]", pa.string(), '{"a,b","NULL",NULL}'),
    ("int4range", "'[1,5)'", pa.string(), "[1,5)"),
    ("bit(3)", "'101'", pa.string(), "101"),
    ("point", "'(1.5,2)'", pa.string(), "(1.5,2)"),
    ("oid", "4294967295", pa.string(), "4294967295"),
    ("mood", "'sad'", pa.string(), "sad"),
    ("pair", "ROW(1, 'x')", pa.string(), "(1,x)"),
    ("positive", "5", pa.int32(), 5),
    ("price", "5.25", pa.decimal128(8, 2), D("5.25")),
]


def test_every_type_comes_through_exactly(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("""
            CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair AS (a int, b text);
            CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE DOMAIN price AS numeric(8,2)""")
        declared = ", ".join(f"c{number} {row[0]}" for number, row in enumerate(ROUND_TRIPS))
        written = ", ".join(row[1] for row in ROUND_TRIPS)
        connection.execute(f"CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, {declared})")
        connection.execute(
            f"INSERT INTO t VALUES (DEFAULT, {written}), (DEFAULT, {', '.join(['NULL'] * len(ROUND_TRIPS))})"
        )
        # Defaults of the database must not show in what is read.
        own = f'ALTER DATABASE "{database.rpartition("/")[2]}" SET'
        connection.execute(
            f"{own} TimeZone = 'Asia/Tokyo'; {own} IntervalStyle = 'iso_8601'; {own} bytea_output = 'escape'"
        )
        poller = Poller(database, table="t", cursor="id")
        table = poller.table()
    first, second = sorted(table.to_pylist(), key=lambda row: row["id"])
    for number, (declared, _, kind, value) in enumerate(ROUND_TRIPS):
        assert table.schema.field(f"c{number}").type == kind, declared
        assert first[f"c{number}"] == value or (value is None and first[f"c{number}"] != first[f"c{number}"]), declared
        assert second[f"c{number}"] is None
    assert "read as text: c10 (numeric)" in poller.plan.streams[0].why
    poller.close()


OUTSIDE = "infinite, or outside the years 1 to 9999"


@pytest.mark.parametrize(
    ("declared", "value", "words", "text"),
    [
        ("numeric(10,2)", "NaN", "NaN or infinity", "NaN"),
        ("timestamp without time zone", "infinity", OUTSIDE, "infinity"),
        ("timestamp with time zone", "-infinity", OUTSIDE, "-infinity"),
        ("date", "infinity", OUTSIDE, "infinity"),
        ("date", "0044-03-15 BC", OUTSIDE, "0044-03-15 BC"),
        ("timestamp without time zone", "294276-12-31", OUTSIDE, "294276-12-31 00:00:00"),
    ],
)
def test_a_value_without_a_place_in_its_type_is_refused_and_can_be_read_as_text(database, declared, value, words, text):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, c {declared})")
        connection.execute("INSERT INTO t (c) VALUES (%s), (%s), (NULL)", [value, value])
    poller = Poller(database, table="t", cursor="id")
    with pytest.raises(ValueNotKept) as caught:
        poller.poll()
    assert f"t: column c ({declared.partition('(')[0]}" in str(caught.value)
    assert f"at least 2 values {words}" in str(caught.value)
    assert "as_text: [c]" in str(caught.value)
    as_text = Poller(database, table="t", cursor="id", as_text=["c"])
    assert [row["c"] for row in as_text.poll()] == [text, text, None]
    without = Poller(database, table="t", cursor="id", where="c IS NULL")
    assert [row["c"] for row in without.poll()] == [None]
    for each in (poller, as_text, without):
        each.close()


def test_nullability_key_and_order_are_those_of_the_table(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("""
            CREATE TABLE t (note text, b int, a int, at timestamptz NOT NULL DEFAULT now(),
                twice int GENERATED ALWAYS AS (a * 2) STORED, PRIMARY KEY (a, b) INCLUDE (note));
            INSERT INTO t VALUES ('x', 1, 2)""")
    poller = Poller(database, table="public.t", cursor="at", columns=["note", "a", "b", "twice"])
    with poller.source.read(poller.look()) as (rows,):
        assert rows.stream == "public.t"
        assert rows.key == ("a", "b")
        assert rows.order == ("at",)
        assert [(field.name, field.nullable) for field in rows.schema] == [
            ("note", True), ("b", False), ("a", False), ("at", False), ("twice", True),
        ]  # fmt: skip
        assert database.rsplit("@", 1)[0] not in repr(rows.splits)
    poller.close()
