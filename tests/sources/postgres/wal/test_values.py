"""Values of every type, at their edges: as PostgreSQL writes them, and as a copy of the table reads them (G8)."""

from __future__ import annotations

import datetime as dt
import decimal
import json

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.model.rows import RowIdentity
from headwater.model.secret import Secret
from headwater.model.types import Column
from headwater.pg.connection import session_sql
from headwater.pg.text import text_of
from headwater.sources.postgres.wal.messages import typed
from headwater.sources.sql.postgres.split import PostgresSplit
from tests.sources.postgres.wal.slot_wal import slot_wal

OUTSIDE, NOT_FINITE = "infinite, or outside the years 1 to 9999", "NaN or infinity"
EDGES = {
    "bool": ["true", "false"],
    "int2": ["-32768", "32767"],
    "int4": ["-2147483648", "2147483647"],
    "int8": ["-9223372036854775808", "9223372036854775807", "0"],
    "real": ["NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e38", "1.1754944e-38", "0.1", "16777217"],
    "float8": ["NaN", "Infinity", "-Infinity", "-0", "5e-324", "1.7976931348623157e308", "0.1", "1e23", "9007199254740993"],
    "numeric(12,2)": ["9999999999.99", "-9999999999.99", "0", "-0.01", "NaN"],
    "numeric(38,10)": ["9999999999999999999999999999.9999999999", "-0.0000000001"],
    "numeric(38,38)": ["0.99999999999999999999999999999999999999", "-0.00000000000000000000000000000000000001"],
    "numeric(38,0)": ["99999999999999999999999999999999999999", "-99999999999999999999999999999999999999"],
    "numeric": ["1.10", "-1e500", "NaN", "Infinity", "1e-500"],
    "numeric(40,2)": ["99999999999999999999999999999999999999.99"],
    "numeric(5,-2)": ["1234500"],
    "numeric(3,5)": ["0.00999"],
    "date": ["0001-01-01", "9999-12-31", "10000-01-01", "0001-12-31 BC", "infinity", "-infinity", "4713-01-01 BC", "5874897-12-31", "2024-02-29"],
    "timestamp": ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "0044-03-15 12:00 BC", "294276-12-31", "infinity", "1969-12-31 23:59:59.999999", "2026-01-01 00:00:00.5"],
    "timestamptz": ["0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00", "9999-12-31 23:59:59.999999-01", "0044-03-15 12:00+00 BC", "-infinity", "2026-03-29 02:30:00.000001+02", "1600-01-01 00:00:00+00"],
    "text": ["", "NULL", "null", "é😀\u0301", " padded ", "\\x00", "a\tb\nc\rd\x01", '{"a"}'],
    "varchar(5)": ["abcde", ""],
    "char(5)": ["ab", "     ", ""],
    '"char"': ["a", ""],
    "name": ["n", "x" * 63],
    "bytea": ["", "\\x00", "\\x00ff7f80", "\\x5c78"],
    "uuid": ["0190163d-8694-739b-aea5-966c26f8ad91"],
    "json": ['{"b":1, "a": 1.10}', "null"],
    "jsonb": ['{"b":1,"a":1.10}', "null", '"\\u00e9"'],
    "time": ["24:00:00", "00:00:00.000001"],
    "timetz": ["12:00:00.5+05:30"],
    "interval": ["1 mon 2 days 03:04:05.678901", "-178000000 years", "infinity"],
    "money": ["-1234.5", "92233720368547758.07"],
    "inet": ["10.0.0.1", "10.0.0.1/8", "::1"],
    "cidr": ["10.0.0.0/8", "10.0.0.1/32"],
    "macaddr": ["08:00:2b:01:02:03"],
    "bit(3)": ["101"],
    "varbit": ["", "10110"],
    "point": ["(1.5,-0)"],
    "int4[]": ["{{1,NULL},{3,4}}", "{}", "[0:1]={1,2}"],
    "text[]": ['{"a,b","NULL",NULL,""}'],
    "bool[]": ["{t,f}"],
    "int4range": ["[1,5)", "empty", "(,)"],
    "tsvector": ["'a':1 'b':2A"],
    "oid": ["4294967295"],
    "pg_lsn": ["FFFFFFFF/FFFFFFFF"],
    "mood": ["sad", "it's ok"],
    "pair": ['(1,"x,y")', "(,)"],
}  # fmt: skip
MORE = "CREATE TYPE mood AS ENUM ('sad', 'it''s ok'); CREATE TYPE pair AS (a int, b text);"


def own_texts(url: str, query: str) -> list[list[str | None]]:
    """What the types' own output functions write, in a session of ours."""
    with psycopg.connect(url, autocommit=True, client_encoding="UTF8") as connection:
        connection.execute(session_sql())
        result = connection.execute(query).pgresult
        cells = [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]
    return [[None if cell is None else cell.decode() for cell in row] for row in cells]


def test_every_value_is_kept_as_it_is_written_or_set_aside_with_its_text(database):
    tables = {f"t{number}": declared for number, declared in enumerate(EDGES)}
    ddl = "".join(f"CREATE TABLE {name} (id int PRIMARY KEY, v {declared});" for name, declared in tables.items())
    with slot_wal(database, MORE + ddl) as log:
        # Defaults of the database must not show in what is read.
        own = f'ALTER DATABASE "{database.rpartition("/")[2]}" SET'
        log.sql(f"{own} TimeZone = 'Asia/Tokyo'; {own} DateStyle = 'German'; {own} IntervalStyle = 'iso_8601'")
        log.sql(f"{own} bytea_output = 'escape'; {own} extra_float_digits = 0; {own} client_encoding = 'LATIN1'")
        for name, declared in tables.items():
            for number, text in enumerate([*EDGES[declared], None]):
                literal = "NULL" if text is None else "'" + text.replace("'", "''") + "'"
                log.sql(f"INSERT INTO {name} VALUES ({number}, {literal})")
        read = log.read(dict.fromkeys(tables, ("id",)))
    column_types = {segment.stream: segment.column_types[1] for segment in read.wal.segments}
    for name, declared in tables.items():
        own = dict(enumerate(row[0] for row in own_texts(database, f"SELECT v FROM {name} ORDER BY id")))
        texts, rejected = texts_of(read.tables[name][0], column_types[name]), {}
        for reject in (reject for reject in read.rejects if reject.stream == name):
            row = json.loads(reject.payload)
            rejected[int(row["id"])] = row["v"]
            what = NOT_FINITE if column_types[name].startswith("decimal") else OUTSIDE
            assert reject.reason == f"column v ({column_types[name]}): {what}"
        assert texts | rejected == own, declared
        assert not texts.keys() & rejected.keys()


def texts_of(table: pa.Table, kind: str) -> dict[int, str | None]:
    """Values as their output function writes them, made anew from what was kept."""
    column, values = Column("v", kind, nullable=True), table["v"].combine_chunks()
    texts = [text_of(values, row, column) for row in range(len(values))]
    if kind == "bool":
        texts = [text and text[0] for text in texts]
    return dict(zip(table["id"].to_pylist(), texts, strict=True))


COLUMNS = {
    "id": ("int8", "int64"),
    "small": ("int2", "int32"),
    "flag": ("bool", "bool"),
    "half": ("float4", "float32"),
    "whole": ("float8", "float64"),
    "price": ("numeric(12,2)", "decimal(12,2)"),
    "share": ("numeric(18,18)", "decimal(18,18)"),
    "long": ("numeric(38,9)", "decimal(38,9)"),
    "day": ("date", "date"),
    "local": ("timestamp", "timestamp"),
    "instant": ("timestamptz", "timestamptz"),
    "words": ("text", "string"),
    "padded": ("char(8)", "string"),
    "bytes": ("bytea", "binary"),
}
_TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)
_MOMENTS = ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "0001-01-01", "9999-12-31"]


def _decimals(digits: int, places: int) -> st.SearchStrategy:
    numbers = st.integers(-(10**digits) + 1, 10**digits - 1).map(
        lambda n: decimal.Decimal(n).scaleb(-places, decimal.Context(prec=60))
    )
    return st.one_of(numbers, numbers, st.just(decimal.Decimal("NaN")))


VALUES = {
    "small": st.integers(-(2**15), 2**15 - 1),
    "flag": st.booleans(),
    "half": st.floats(width=32),
    "whole": st.floats(),
    "price": _decimals(12, 2),
    "share": _decimals(18, 18),
    "long": _decimals(38, 9),
    "day": st.dates().map(str) | st.sampled_from(_MOMENTS),
    "local": st.datetimes().map(str) | st.sampled_from(_MOMENTS),
    "instant": st.datetimes(timezones=st.just(dt.UTC)).map(str) | st.sampled_from(_MOMENTS),
    "words": _TEXTS,
    "padded": st.text("aé ", max_size=8),
    "bytes": st.binary(max_size=40),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), max_size=30)


@pytest.fixture
def log(database):
    declared = ", ".join(f"{name} {column_types[0]}" for name, column_types in COLUMNS.items())
    with slot_wal(database, f"CREATE TABLE t ({declared}, PRIMARY KEY (id))") as slot:
        yield slot


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_the_log_and_a_copy_agree_on_every_value_and_every_reject(log, database, rows):
    log.sql("TRUNCATE t")
    log.sql("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [log.slot])
    names = list(COLUMNS)
    with psycopg.connect(database) as connection:
        connection.cursor().executemany(
            f"INSERT INTO t ({', '.join(names)}) VALUES ({', '.join(f'%({name})s' for name in names)})",
            [{"id": number, **row} for number, row in enumerate(rows)],
        )
    read = log.read({"t": ("id",)})
    columns = tuple(Column(name, column_types[1], nullable=True) for name, column_types in COLUMNS.items())
    rejects = []
    with psycopg.connect(database) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        (snapshot,) = holder.execute("SELECT pg_export_snapshot()").fetchone()
        query = f"SELECT {', '.join(names)} FROM t ORDER BY id"
        split = PostgresSplit(RowIdentity("t", columns, ("id",), "none"), Secret(database), snapshot, query)
        copied = list(split.read(rejects.append))
    if rows:
        ours = read.tables["t"][0].select(range(len(names)))
        assert same(pa.Table.from_batches(copied, ours.schema), ours)
    assert [reject.reason for reject in read.rejects] == [reject.reason for reject in rejects]
    assert [without_flags(reject.payload) for reject in read.rejects] == [
        without_flags(reject.payload) for reject in rejects
    ]


def same(one: pa.Table, other: pa.Table) -> bool:
    """NaN is NaN here, and -0 is not 0."""
    return [list(map(repr, column.to_pylist())) for column in one.columns] == [
        list(map(repr, column.to_pylist())) for column in other.columns
    ]


def without_flags(payload: bytes) -> dict:
    """A bool is written t by its output function, and true as a text."""
    row = json.loads(payload)
    return {**row, "flag": row["flag"] and row["flag"][0]}


def test_texts_that_are_not_utf8_are_set_aside():
    """Of a database without an encoding (SQL_ASCII)."""
    texts = typed(pa.array([b"a", b"\xff", None, "é".encode(), b"\xc3"]), "string")
    assert texts.array.to_pylist() == ["a", None, None, "é", None]
    assert texts.misfits == {1: "that are not UTF-8", 4: "that are not UTF-8"}


@pytest.mark.parametrize(
    ("kind", "text"),
    [("bool", b"true"), ("bool", b""), ("binary", b"ff"), ("binary", b"\\xf"), ("binary", b"\\xgg"), ("int32", b"2147483648"),
     ("int64", b"1.0"), ("float64", b"one"), ("decimal(4,2)", b"100.00"), ("decimal(4,2)", b"1.234"),
     ("timestamptz", b"2026-01-01 00:00:00"), ("timestamp", b"2026-01-01 00:00:00+00")],
)  # fmt: skip
def test_what_is_not_of_the_kind_is_never_made_to_fit(kind, text):
    column_ = typed(pa.array([text, None, text], pa.binary()), kind)
    assert column_.array.to_pylist() == [None, None, None]
    assert column_.misfits.keys() == {0, 2}


@pytest.mark.parametrize(
    "kind", ["bool", "binary", "int64", "string", "date", "decimal(5,2)", "float32", "timestamptz"]
)
def test_columns_of_nothing_but_nulls_and_slices_of_columns(kind):
    assert typed(pa.nulls(3, pa.binary()), kind).array.to_pylist() == [None] * 3
    texts = {
        "bool": b"t",
        "binary": b"\\x00ff",
        "int64": b"7",
        "date": b"2026-01-01",
        "timestamptz": b"2026-01-01 00:00:00+00",
    }
    text = texts.get(kind, b"1.50")
    column = pa.array([text, None, text, text, None], pa.binary())
    expected = typed(column, kind).array.to_pylist()
    assert typed(column[1:4], kind).array.to_pylist() == expected[1:4]
