"""G8 on PostgreSQL: a row with a value that its type cannot hold is rejected as the server writes it; the rest is read."""

from __future__ import annotations

import datetime as dt
import json

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater.model.errors import ValueNotKept
from headwater.pg.text import float_text
from tests.sources.sql.poller import Poller
from tests.sources.sql.rejects import locations, payloads, poll_with_rejects


@pytest.fixture
def connection(database):
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def test_rows_without_a_place_are_set_aside_in_the_words_of_the_server(url, connection):
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, price numeric(8,2), day date, local timestamp, instant timestamptz, note text);
        INSERT INTO t VALUES
            (1, 1.5, '2026-01-31', '2026-01-31 12:00:00.5', '2026-01-31 12:00+02', 'fine'),
            (2, 'NaN', '2026-01-31', NULL, '2026-01-31 12:00+02', 'O''Brien 😀'),
            (3, 1.5, 'infinity', '10000-01-01', '-infinity', NULL),
            (4, NULL, NULL, '0044-03-15 BC', '0044-03-15 00:00:00.25 BC', ''),
            (5, -0.05, '4714-11-24 BC', '294276-12-31 23:59:59.999999', '0001-01-01', '"')""")
    poller = Poller(url, table="t", cursor="id")
    rows, rejects = poll_with_rejects(poller)
    assert [row["id"] for row in rows] == [1]
    assert locations(rejects) == [{"row": {"id": number}} for number in (2, 3, 4, 5)]
    assert [json.dumps(payload) for payload in payloads(rejects)] == [
        json.dumps(dict(zip(("id", "price", "day", "local", "instant", "note"), row, strict=True)))
        for row in [
            ("2", "NaN", "2026-01-31", None, "2026-01-31 10:00:00+00", "O'Brien 😀"),
            ("3", "1.50", "infinity", "10000-01-01 00:00:00", "-infinity", None),
            ("4", None, None, "0044-03-15 00:00:00 BC", "0044-03-15 00:00:00.25+00 BC", ""),
            ("5", "-0.05", "4714-11-24 BC", "294276-12-31 23:59:59.999999", "0001-01-01 00:00:00+00", '"'),
        ]
    ]
    outside = "infinite, or outside the years 1 to 9999"
    assert rejects[0].reason == "column price (numeric): NaN or infinity"
    assert rejects[1].reason == "; ".join(
        [
            f"column day (date): {outside}",
            f"column local (timestamp without time zone): {outside}",
            f"column instant (timestamp with time zone): {outside}",
        ]
    )
    assert poll_with_rejects(poller) == ([], [])
    strict = Poller(url, table="t", cursor="id")
    with pytest.raises(ValueNotKept, match="column price"):
        strict.poll()
    for each in (poller, strict):
        each.close()


def test_numbers_of_many_digits_are_set_aside_too(url, connection):
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, wide numeric(38,10), narrow numeric(4,4));
        INSERT INTO t VALUES (1, 1, 0.5), (2, 'NaN', 0.5), (3, -12345678901234567890.5, 'NaN')""")
    poller = Poller(url, table="t", cursor="id")
    rows, rejects = poll_with_rejects(poller)
    assert [row["id"] for row in rows] == [1]
    assert payloads(rejects) == [
        {"id": "2", "wide": "NaN", "narrow": "0.5000"},
        {"id": "3", "wide": "-12345678901234567890.5000000000", "narrow": "NaN"},
    ]
    poller.close()


def test_a_cursor_without_a_place_stops_the_read(url, connection):
    """The mark stands on it: a row beyond all marks would never be passed, nor known again."""
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, at timestamptz NOT NULL);
        INSERT INTO t VALUES (1, '2026-01-01'), (2, '-infinity')""")
    poller = Poller(url, table="t", cursor="at")
    window = poller.look()
    with poller.source.read(window) as (rows,), pytest.raises(ValueNotKept, match=r"column at .*infinite"):
        [batch for split in rows.splits for batch in split.read(lambda _: None)]
    poller.close()


def test_a_key_without_a_place_names_its_row_all_the_same(url, connection):
    connection.execute("""
        CREATE TABLE t (id int NOT NULL, day date, kind text, PRIMARY KEY (kind, day));
        INSERT INTO t VALUES (1, '2026-01-01', 'a'), (2, 'infinity', 'a'), (3, '-infinity', 'b')""")
    poller = Poller(url, table="t", cursor="id")
    rows, rejects = poll_with_rejects(poller)
    assert [row["id"] for row in rows] == [1]
    assert locations(rejects) == [{"row": {"kind": "a", "day": "infinity"}}, {"row": {"kind": "b", "day": "-infinity"}}]
    poller.close()


def test_rows_that_are_alike_in_a_table_without_a_key_are_as_many_rejects(url, connection):
    connection.execute(
        "CREATE TABLE t (id int, price numeric(5,2)); INSERT INTO t SELECT 1, 'NaN' FROM generate_series(1, 3)"
    )
    connection.execute("INSERT INTO t VALUES (1, 2), (2, 'NaN')")
    poller = Poller(url, table="t", cursor="id")
    rows, rejects = poll_with_rejects(poller)
    assert [row["id"] for row in rows] == [1]
    assert locations(rejects) == [*({"row": {"id": 1}, "copy": n} for n in (1, 2, 3)), {"row": {"id": 2}, "copy": 1}]
    assert len({reject.id for reject in rejects}) == 4
    poller.close()


def test_a_row_whose_key_is_not_read_is_named_by_its_cursor(url, connection):
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, seq int, price numeric(5,2));
        INSERT INTO t VALUES (1, 5, 'NaN'), (2, 5, 'NaN'), (3, 5, 3)""")
    poller = Poller(url, table="t", cursor="seq", columns=["price"])
    rows, rejects = poll_with_rejects(poller)
    assert rows == [{"seq": 5, "price": 3}]
    assert locations(rejects) == [{"row": {"seq": 5}, "copy": n} for n in (1, 2)]
    poller.close()


@pytest.mark.parametrize("late", ["auto", "off", {"lookback": 10}])
def test_a_view_that_ends_in_such_a_row_goes_on(url, connection, late):
    """Where digests tell rows apart, the last row is read again by every plan: it must not stop there either."""
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, price numeric(5,2), day date);
        INSERT INTO t VALUES (1, 1, NULL), (2, 'NaN', 'infinity'); CREATE VIEW v AS SELECT * FROM t""")
    poller = Poller(url, table="v", cursor="id", late=late)
    rows, rejects = poll_with_rejects(poller)
    assert ([row["id"] for row in rows], len(rejects)) == ([1], 1)
    assert poll_with_rejects(poller) == ([], [])
    connection.execute("INSERT INTO t VALUES (3, 'NaN', NULL), (4, 4, NULL)")
    rows, rejects = poll_with_rejects(poller)
    assert ([row["id"] for row in rows], payloads(rejects)) == ([4], [{"id": "3", "price": "NaN", "day": None}])
    connection.execute("UPDATE t SET price = 2 WHERE id = 3")
    rows, rejects = poll_with_rejects(poller)
    assert ([row["id"] for row in rows], rejects) == (([3], []) if isinstance(late, dict) else ([], []))
    poller.close()


TIMES = st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**57), 2**57) | st.integers(-(10**15), 10**15)
FIRST, LAST = -211_813_488_000_000_000, 9_223_371_331_199_999_999  # of PostgreSQL's times, in microseconds from 2000


def time_sql(kind: str, zone: str = "") -> st.SearchStrategy[str]:
    """A time of any year that PostgreSQL has, or an infinity."""

    def finite(number: int) -> str:
        days, rest = divmod(max(FIRST, min(LAST, number)), 86_400_000_000)
        return f"'2000-01-01{zone}'::{kind} + make_interval(days => {days}) + {rest} * interval '1 microsecond'"

    return TIMES.map(finite) | st.sampled_from(["'infinity'", "'-infinity'"])


def date_sql() -> st.SearchStrategy[str]:
    days = st.integers(-2_451_545, 2_145_031_948) | st.integers(-800_000, 3_000_000)
    return days.map(lambda n: f"(date '2000-01-01' + {n})") | st.sampled_from(["'infinity'::date", "'-infinity'::date"])


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=8)
DECIMALS = st.integers(-(10**8) + 1, 10**8 - 1).map(lambda n: f"({n}::numeric / 100)::numeric(8,2)")
COLUMNS = {
    "price": ("numeric(8,2)", DECIMALS | st.just("'NaN'::numeric")),
    "share": ("numeric(4,4)", st.integers(-9999, 9999).map(lambda n: f"{n}::numeric / 10000") | st.just("'NaN'")),
    "day": ("date", date_sql()),
    "local": ("timestamp", time_sql("timestamp")),
    "instant": ("timestamptz", time_sql("timestamptz", " 00:00+00")),
    "half": ("float4", st.floats(width=32).map(lambda value: f"'{value!r}'")),
    "double": ("float8", st.floats().map(lambda value: f"'{value!r}'")),
    "flag": ("bool", st.sampled_from(["true", "false"])),
    "words": ("text", TEXTS.map(lambda text: "'" + text.replace("'", "''") + "'")),
    "padded": ("char(5)", st.text("ab ", max_size=5).map(lambda text: f"'{text}'")),
    "bytes": ("bytea", st.binary(max_size=5).map(lambda value: f"'\\x{value.hex()}'")),
    "big": ("int8", st.integers(-(2**63), 2**63 - 1).map(lambda n: f"'{n}'")),
    "uuid": ("uuid", st.uuids().map(lambda value: f"'{value}'")),
    "list": ("numeric[]", st.sampled_from(["'{1.50,NaN}'", "'{}'"])),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.just("NULL") | values for name, (_, values) in COLUMNS.items()}), max_size=12
)
EXACT = " AND ".join(
    [
        *(f"({name} IS NULL OR {name} <> 'NaN')" for name in ("price", "share")),
        *(
            f"({name} IS NULL OR (isfinite({name}) AND {name} >= '0001-01-01' AND {name} < '10000-01-01'))"
            for name in ("day", "local", "instant")
        ),
    ]
)


@pytest.mark.slow
@settings(
    max_examples=100,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=ROWS)
def test_what_lands_and_what_is_set_aside_are_all_rows_in_the_words_of_the_server(url, connection, rows):
    """The oracle is the server: which rows it says are fine, and its own text of every value."""
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET extra_float_digits = 3")
    connection.execute("DROP TABLE IF EXISTS t")
    declared = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    connection.execute(f"CREATE TABLE t (id int PRIMARY KEY, {declared})")
    for number, row in enumerate(rows):
        connection.execute(f"INSERT INTO t VALUES ({number}, {', '.join(row[name] for name in COLUMNS)})".encode())
    poller = Poller(url, table="t", cursor="id")
    landed, rejects = poll_with_rejects(poller)
    poller.close()
    assert [row["id"] for row in landed] == [
        n for (n,) in connection.execute(f"SELECT id FROM t WHERE {EXACT} ORDER BY id")
    ]
    shown = ", ".join(f"{name}::text" for name in ("id", *COLUMNS))
    texts = connection.execute(f"SELECT {shown} FROM t WHERE NOT ({EXACT}) ORDER BY t.id").fetchall()
    assert payloads(rejects) == [dict(zip(("id", *COLUMNS), row, strict=True)) for row in texts]


def test_a_rejected_row_costs_nothing_to_those_around_it(url, connection):
    """Several chunks, bad rows at their edges: every other row arrives once, as it is."""
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, price numeric(8,2), at timestamp, note text);
        INSERT INTO t SELECT n, CASE WHEN n % 10007 = 0 THEN 'NaN' ELSE (n % 1000)::numeric END,
            CASE WHEN n % 9001 = 0 THEN 'infinity' ELSE timestamp '2026-01-01' + n * interval '1 s' END, repeat('x', 60)
        FROM generate_series(1, 100000) n""")
    poller = Poller(url, table="t", cursor="id", splits=3)
    rows, rejects = poll_with_rejects(poller)
    bad = {n for n in range(1, 100_001) if n % 10007 == 0 or n % 9001 == 0}
    assert sorted(json.loads(reject.location["row"])["id"] for reject in rejects) == sorted(bad)
    first = dt.datetime(2026, 1, 1)  # noqa: DTZ001 - a column without a zone
    good = [n for n in range(1, 100_001) if n not in bad]
    assert sorted((row["id"], row["at"]) for row in rows) == [(n, first + dt.timedelta(seconds=n)) for n in good]
    poller.close()


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.floats(allow_nan=True), max_size=50), singles=st.lists(st.floats(width=32), max_size=50))
def test_floats_are_written_as_the_server_writes_them(connection, values, singles):
    """Powers of two have neighbours at two distances, and 1e23 lies exactly between two numbers."""
    connection.execute("SET extra_float_digits = 3")
    doubles = [*values, 1e23, -1e23, 2.0**70, 2.0**-1074, 1e15, 123456789012345.6, 1e-4, 1e-5, 9007199254740993.0]
    halves = [*singles, 1e6, 999999.0, 1e-4, 1e-5, 16777216.0, 2.0**-149, 8589973504.0]
    for kind, declared, some in (("float64", "float8", doubles), ("float32", "float4", halves)):
        sql = f"SELECT v::text FROM unnest(%s::{declared}[]) WITH ORDINALITY rows (v, n) ORDER BY n"
        theirs = [text for (text,) in connection.execute(sql, [some])]
        sent = [value for (value,) in connection.execute(sql.replace("v::text", "v::float8"), [some])]
        assert [float_text(value, kind) for value in sent] == theirs
