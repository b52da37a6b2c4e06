"""Our reader of COPY's binary format against ADBC's, plain and encrypted, and where the stream is awkward."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import string
import struct

import adbc_driver_postgresql.dbapi as adbc
import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.model.errors import SourceUnreachable, ValueNotKept
from headwater.model.rows import RowIdentity
from headwater.model.secret import Secret
from headwater.model.types import Column, arrow_schema
from headwater.pg.copy.reader import DEFAULT, Tuning
from headwater.pg.copy.stream import PADDING, row_chain
from headwater.sources.sql.postgres.split import PostgresSplit

COLUMNS = {
    "id": ("int8", "int64"),
    "small": ("int2", "int32"),
    "middle": ("int4", "int32"),
    "flag": ("bool", "bool"),
    "half": ("float4", "float32"),
    "whole": ("float8", "float64"),
    "price": ("numeric(12,2)", "decimal(12,2)"),
    "count": ("numeric(18,0)", "decimal(18,0)"),
    "share": ("numeric(5,5)", "decimal(5,5)"),
    "vast": ("numeric(38,0)", "decimal(38,0)"),
    "fine": ("numeric(38,17)", "decimal(38,17)"),
    "tiny": ("numeric(19,19)", "decimal(19,19)"),
    "day": ("date", "date"),
    "local": ("timestamp", "timestamp"),
    "instant": ("timestamptz", "timestamptz"),
    "words": ("text", "string"),
    "bytes": ("bytea", "binary"),
}
EXACT = decimal.Context(prec=60)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30)
# Bytes that look like the head of a row of this table, so that a careless search for rows would take them for one.
LOOKALIKE = b"d\0\0\0\x10" + len(COLUMNS).to_bytes(2, "big") + b"\0\0\0\x08"


def decimals(digits: int, places: int) -> st.SearchStrategy[decimal.Decimal]:
    unscaled = st.integers(-(10**digits) + 1, 10**digits - 1)
    return unscaled.map(lambda number: decimal.Decimal(number).scaleb(-places, EXACT))


VALUES = {
    "small": st.integers(-(2**15), 2**15 - 1),
    "middle": st.integers(-(2**31), 2**31 - 1),
    "flag": st.booleans(),
    "half": st.floats(width=32, allow_nan=False),
    "whole": st.floats(allow_nan=False),
    "price": decimals(12, 2),
    "count": decimals(18, 0),
    "share": decimals(5, 5),
    "vast": decimals(38, 0),
    "fine": decimals(38, 17) | decimals(20, 17),
    "tiny": decimals(19, 19),
    "day": st.dates(),
    "local": st.datetimes(),
    "instant": st.datetimes(timezones=st.just(dt.UTC)),
    "words": TEXTS,
    "tree": st.dictionaries(TEXTS, st.none() | TEXTS | st.integers(), max_size=3).map(json.dumps),
    "bytes": st.one_of(st.binary(max_size=40), st.sampled_from([LOOKALIKE, b"d" + LOOKALIKE * 3, b"Z\0\0\0\5I"])),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), max_size=60)


@pytest.fixture
def table(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE t ({', '.join(f'{name} {kinds[0]}' for name, kinds in COLUMNS.items())})")
    return url


def split(url: str, sql: str, columns: dict[str, tuple[str, str]] = COLUMNS, tuning: Tuning = DEFAULT) -> PostgresSplit:
    expected = tuple(
        Column(name, kind, nullable=True, as_text=declared == "jsonb", is_jsonb=declared == "jsonb", declared=declared)
        for name, (declared, kind) in columns.items()
    )
    return PostgresSplit(RowIdentity("t", expected, (), "id"), Secret(url), snapshot(url), sql, tuning=tuning)


_HOLDERS: dict[str, psycopg.Connection] = {}


def snapshot(url: str) -> str:
    """An exported snapshot of now, kept alive by a connection that is kept."""
    if url in _HOLDERS:
        _HOLDERS.pop(url).close()
    holder = _HOLDERS[url] = psycopg.connect(url)
    holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    return holder.execute("SELECT pg_export_snapshot()").fetchone()[0]


def rows_of(part: PostgresSplit) -> list[dict]:
    return [row for batch in part.read() for row in batch.to_pylist()]


def adbc_rows(part: PostgresSplit) -> list[dict]:
    schema = arrow_schema(part.identity.columns)
    with adbc.connect(part.url.reveal()) as connection, connection.cursor() as cursor:
        cursor.execute("SET TimeZone = 'UTC'")
        cursor.execute(part.sql)
        table = cursor.fetch_arrow_table()
    storages = [column.cast(field.type) for column, field in zip(map(plain, table.columns), schema, strict=True)]
    return pa.table(storages, schema=schema).to_pylist()


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Of numbers, which ADBC brings as texts under a name of its own."""
    return column.cast(column.type.storage_type) if isinstance(column.type, pa.BaseExtensionType) else column


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, chunk=st.sampled_from([64, 301, 4 << 20]))
def test_every_row_is_read_as_adbc_reads_it(table, rows, chunk):
    names = list(COLUMNS)
    with psycopg.connect(table) as connection:
        connection.execute("TRUNCATE t")
        connection.cursor().executemany(
            f"INSERT INTO t ({', '.join(names)}) VALUES ({', '.join(f'%({name})s' for name in names)})",
            [{"id": number, **row} for number, row in enumerate(rows)],
        )
    part = split(table, f"SELECT {', '.join(names)} FROM t ORDER BY id", tuning=Tuning(chunk))
    ours = rows_of(part)
    assert len(ours) == len(rows)
    assert ours == adbc_rows(part)


def test_rows_larger_than_a_chunk_and_than_the_quick_search_knows(table):
    """Lengths of 16 MB and more begin with another byte than zero."""
    sizes = [10, 5 << 20, 17 << 20, 3, 17 << 20, 4 << 20]
    query = " UNION ALL ".join(f"SELECT {n}::int8, repeat('d', {size})" for n, size in enumerate(sizes))
    columns = {"id": ("int8", "int64"), "words": ("text", "string")}
    ours = pa.Table.from_batches(split(table, query, columns).read())
    assert [len(words) for words in ours.column("words").to_pylist()] == sizes


def test_a_row_larger_than_the_first_read_keeps_the_rows_behind_it(table):
    tuning = Tuning(chunk_bytes=64)
    columns = {"words": ("text", "string")}
    query = "SELECT repeat('x', n * 97 % 400) FROM generate_series(0, 999) n"
    read = [len(row["words"]) for batch in split(table, query, columns, tuning).read() for row in batch.to_pylist()]
    assert read == [n * 97 % 400 for n in range(1000)]


def test_values_are_never_taken_for_rows(table):
    """Every value ends or begins like the head of a row: the chain of lengths decides, not the looks."""
    columns = {"bytes": ("bytea", "binary")}
    head = b"d\0\0\0\x10\0\1\0\0\0\x08"
    query = f"SELECT '\\x{(head * 5).hex()}'::bytea || int4send(n) FROM generate_series(1, 5000) n"
    read = [row["bytes"] for batch in split(table, query, columns).read() for row in batch.to_pylist()]
    assert read == [head * 5 + number.to_bytes(4, "big") for number in range(1, 5001)]


def test_rows_are_found_at_once_though_every_one_holds_a_value_that_looks_like_a_row(database):
    """A page's number, an item's and the width of the next field are enough for that. One by one takes far longer."""
    looks = b"d\0\1\0\0\0\2"  # a length, and two fields
    rows = [struct.pack(">cihiii", b"d", 25, 2, 4, n, 7) + looks for n in range(50_000)]
    data = np.frombuffer(b"".join(rows) + bytes(PADDING), np.uint8)
    starts, ends = row_chain(data, sum(map(len, rows)), b"\0\2")
    assert len(starts) > 49_000
    assert starts.tolist() == list(range(0, 26 * len(starts), 26))
    assert ends.tolist() == list(range(26, 26 * len(starts) + 1, 26))
    query = f"SELECT n, '\\x{looks.hex()}'::bytea FROM generate_series(1, 50000) n"
    read = split(database, query, {"n": ("int4", "int32"), "bytes": ("bytea", "binary")}).read()
    assert [number for batch in read for number in batch.column("n").to_pylist()] == list(range(1, 50_001))


def test_no_rows_are_no_batches(table):
    assert list(split(table, f"SELECT {', '.join(COLUMNS)} FROM t").read()) == []


@pytest.mark.parametrize("after", [0, 200_000])
def test_an_error_of_the_server_is_told_in_its_words(table, after):
    query = f"SELECT 1 / (n - {after}) FROM generate_series(0, {after + 5}) n"
    with pytest.raises(SourceUnreachable, match=r"broke off: ERROR: division by zero \(22012\)"):
        list(split(table, query, {"n": ("int4", "int32")}).read())


def test_a_server_that_goes_away_is_told(table):
    query = "SELECT CASE WHEN n = 100000 THEN pg_terminate_backend(pg_backend_pid()) ELSE true END FROM generate_series(0, 200000) n"
    with pytest.raises(SourceUnreachable, match=r"broke off: .*(57P01|terminating connection|closed)"):
        list(split(table, query, {"flag": ("bool", "bool")}).read())


@pytest.mark.parametrize(
    ("declared", "kind", "value", "what"),
    [
        ("numeric(12,2)", "decimal(12,2)", "NaN", "NaN or infinity"),
        ("numeric", "decimal(12,2)", "12345678901234567890", "more digits"),
        ("numeric", "decimal(12,2)", "0.125", "more digits"),
        ("numeric", "decimal(12,2)", "0.00001", "more digits"),
        ("numeric", "decimal(38,10)", "-Infinity", "NaN or infinity"),
        ("numeric", "decimal(38,10)", "1e28", "more digits"),
        ("numeric", "decimal(38,10)", "1e200", "more digits"),
        ("numeric", "decimal(38,10)", "0.00000000001", "more digits"),
        ("numeric", "decimal(38,10)", "1e-200", "more digits"),
        ("numeric", "decimal(19,19)", "1.5", "more digits"),
        ("date", "date", "infinity", "outside the years"),
        ("date", "date", "-infinity", "outside the years"),
        ("timestamp", "timestamp", "infinity", "outside the years"),
        ("timestamptz", "timestamptz", "-infinity", "outside the years"),
        ("timestamp", "timestamp", "294276-12-31", "outside the years"),
        ("timestamp", "timestamp", "4713-01-01 BC", "outside the years"),
    ],
)
def test_values_without_a_place_are_refused(table, declared, kind, value, what):
    query = f"SELECT v FROM (VALUES (NULL), ('{value}'::{declared})) rows (v)"
    with pytest.raises(ValueNotKept, match=f"column v .*{what}"):
        list(split(table, query, {"v": (declared, kind)}).read())


def test_rows_of_another_shape_are_refused(table):
    """The plan's columns and the statement's must agree; a silent shift would be the worst of errors."""
    columns = {"a": ("int4", "int32"), "b": ("int4", "int32")}
    with pytest.raises(Exception, match="where a row of 0002 begins"):
        list(split(table, "SELECT 1, 2, 3", columns).read())
    with pytest.raises(Exception, match=r"another width than 8 bytes|another shape"):
        list(split(table, "SELECT 'long enough'::text, 1", {"a": ("int8", "int64"), "b": ("int4", "int32")}).read())


@pytest.mark.parametrize("scale", [0, 1, 2, 3, 4, 17, 18, 19, 20, 21, 22, 37, 38])
def test_numbers_of_38_digits_are_exact_wherever_their_point_is(table, scale):
    """Their halves meet behind the 19th digit, in the middle of a group of four, or between two of them."""
    numbers = [
        sign * (number + odd) for number in (10**n for n in range(38)) for sign in (1, -1) for odd in (0, -1)
    ] + [10**38 - 1, 1 - 10**38, 12345678901234567890123456789012345678]
    values = [decimal.Decimal(number).scaleb(-scale, EXACT) for number in numbers]
    rows = ", ".join(f"({place}, {value:f})" for place, value in enumerate(values))
    query = f"SELECT v::numeric(38,{scale}) FROM (VALUES {rows}) rows (place, v) ORDER BY place"
    column = {"v": (f"numeric(38,{scale})", f"decimal(38,{scale})")}
    assert [row["v"] for batch in split(table, query, column).read() for row in batch.to_pylist()] == values


def test_texts_of_every_letter_come_through(table):
    query = "SELECT chr(n) FROM generate_series(1, 55295) n"
    read = [row["c"] for batch in split(table, query, {"c": ("text", "string")}).read() for row in batch.to_pylist()]
    assert read == [chr(n) for n in range(1, 55296)]
    assert set(string.printable) - {"\0"} <= set(read)
