"""Cursors of every type on PostgreSQL, at their edges (W2), the start modes (W3) and NULLs."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid

import psycopg
import pytest

from headwater.model.errors import BadPosition, InputError, NullCursor, UnknownName, ValueNotKept
from tests.sources.sql.poller import Poller, column

UTC = dt.UTC
EDGES = {
    "smallint": [-32768, -1, 0, 32767],
    "bigint": [-(2**63), 2**63 - 1],
    "numeric(38,10)": [decimal.Decimal("-0.0000000001"), decimal.Decimal("9999999999999999999999999999.9999999999")],
    "numeric": [decimal.Decimal("1E-20"), decimal.Decimal("123456789012345678901234567890.5")],
    "date": [dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "timestamp": [
        dt.datetime(1, 1, 1),  # noqa: DTZ001
        dt.datetime(2026, 10, 25, 2, 30, 0, 1),  # noqa: DTZ001
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    ],
    "timestamptz": [
        dt.datetime(2026, 10, 25, 0, 30, tzinfo=UTC),  # 02:30 in Berlin, before clocks go back
        dt.datetime(2026, 10, 25, 1, 30, 0, 1, tzinfo=UTC),  # 02:30 in Berlin again, and a microsecond
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    "text": ["", "Zebra", "apple", "zebra", "Äpfel", "ß", "日本", "😀"],
    "char(5)": ["a", "b"],
    "uuid": [uuid.UUID(int=0), uuid.UUID(int=1 << 127), uuid.UUID(int=2**128 - 1)],
}


@pytest.mark.parametrize("declared", EDGES)
def test_each_value_is_read_once_in_its_turn(database, declared):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE t (n int, c {declared})")
        # Sessions of applications live in their own time zones.
        connection.execute("SET TimeZone = 'America/Los_Angeles'")
        poller = Poller(database, table="t", cursor="c", late="off")
        for number, value in enumerate(EDGES[declared]):
            connection.execute("INSERT INTO t VALUES (%s, %s)", [number, value])
            assert column(poller.poll(), "n") == [number]
            assert poller.poll() == []
        again = Poller(database, table="t", cursor="c", late="off", max_rows=1)
        assert [again.poll()[0]["n"] for _ in EDGES[declared]] == list(range(len(EDGES[declared])))
        poller.close()
        again.close()


@pytest.mark.parametrize("collation", ["en-US-x-icu", "en_US.utf8", "pg_unicode_fast", "ucs_basic"])
def test_strings_are_compared_by_bytes_whatever_the_collation(database, collation):
    words = ["Zebra", "apple", "zebra", "Äpfel", "éclair"]
    with psycopg.connect(database, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_collation WHERE collname = %s", [collation]).fetchone():
            pytest.skip(f"this build of PostgreSQL has no collation {collation}; the golden files show COLLATE")
        connection.execute(f'CREATE TABLE t (c text COLLATE "{collation}")')
        poller = Poller(database, table="t", cursor="c")
        for word in words:
            connection.execute("INSERT INTO t VALUES (%s)", [word])
            assert column(poller.poll(), "c") == [word]
        assert poller.mark.value == max(words)
        poller.close()


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("timestamptz", "infinity"),
        ("date", "infinity"),
        ("numeric(10,2)", "NaN"),
        ("numeric", "Infinity"),
        ("date", "10000-01-01"),
    ],
)
def test_a_cursor_value_that_no_mark_can_hold_is_refused_by_name(database, declared, value):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE t (c {declared}); INSERT INTO t VALUES ('{value}')")
    poller = Poller(database, table="t", cursor="c")
    with pytest.raises(ValueNotKept, match=rf"t: the cursor c has the value {value}"):
        poller.poll()
    poller.close()


def test_start_modes(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY); INSERT INTO t SELECT FROM generate_series(1, 5)"
        )
        everything = Poller(database, table="t", cursor="id")
        above = Poller(database, table="t", cursor="id", start=3)
        before_all = Poller(database, table="t", cursor="id", start=-1)
        latest = Poller(database, table="t", cursor="id", start="latest")
        assert column(everything.poll(), "id") == [1, 2, 3, 4, 5]
        assert column(above.poll(), "id") == [4, 5]
        assert column(before_all.poll(), "id") == [1, 2, 3, 4, 5]
        assert latest.poll() == []
        assert latest.mark.value == 5
        connection.execute("INSERT INTO t DEFAULT VALUES")
        for poller in (everything, above, before_all, latest):
            assert column(poller.poll(), "id") == [6]
            poller.close()


def test_what_is_in_flight_when_latest_is_placed_comes_from_now_on(database):
    with psycopg.connect(database) as other, psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY)")
        other.execute("INSERT INTO t DEFAULT VALUES")
        connection.execute("INSERT INTO t DEFAULT VALUES")
        poller = Poller(database, table="t", cursor="id", start="latest")
        assert poller.poll() == []
        other.commit()
        assert column(poller.poll(), "id") == [1]
        poller.close()


def test_rows_at_or_below_the_start_value_are_never_read_however_late(database):
    with psycopg.connect(database) as other, psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY)")
        other.execute("INSERT INTO t DEFAULT VALUES")
        connection.execute("INSERT INTO t SELECT FROM generate_series(1, 3)")
        poller = Poller(database, table="t", cursor="id", start=2)
        assert column(poller.poll(), "id") == [3, 4]
        other.commit()
        assert poller.poll() == []
        poller.close()


def test_null_cursors_are_ignored_with_their_number_or_fail_or_are_read_once(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (n int, c int); INSERT INTO t VALUES (1, 1), (2, NULL), (3, NULL)")
        ignore = Poller(database, table="t", cursor="c", late="scan")
        fail = Poller(database, table="t", cursor="c", late="scan", nulls="fail")
        read = Poller(database, table="t", cursor="c", late="scan", nulls="read")
        assert column(ignore.poll(), "n") == [1]
        assert "t: 2 rows without a value in the cursor c skipped (nulls: ignore)" in ignore.warnings
        with pytest.raises(NullCursor, match="2 rows without a value in the cursor c"):
            fail.poll()
        assert column(read.poll(), "n") == [1, 2, 3]
        assert read.poll() == []
        connection.execute("INSERT INTO t VALUES (4, NULL)")
        assert column(read.poll(), "n") == [4]
        assert ignore.poll() == []
        assert "t: 1 row without a value in the cursor c skipped (nulls: ignore)" in ignore.warnings
        for poller in (ignore, fail, read):
            poller.close()


def test_max_rows_keeps_rows_with_one_value_together(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (n int, c int); INSERT INTO t SELECT n, n / 3 FROM generate_series(0, 9) n")
    poller = Poller(database, table="t", cursor="c", max_rows=4)
    windows = []
    while rows := poller.poll():
        windows.append(column(rows, "n"))
        assert poller.plan.more == (rows[-1]["c"] < 3)
    assert windows == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]
    poller.close()


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"table": "ordrs"}, UnknownName, "did you mean public.orders"),
        ({"table": "orders", "cursor": "updatedat"}, UnknownName, "did you mean updated_at"),
        ({"table": "orders", "columns": ["nme"]}, UnknownName, "did you mean name"),
        ({"table": "orders", "cursor": "flag"}, InputError, "flag is of type boolean, which cannot be a cursor"),
        ({"table": "orders", "start": "soon"}, InputError, "start: expected timestamptz"),
        ({"table": "orders", "where": "nonsense ="}, InputError, "refused the SQL"),
        ({"table": "orders", "where": "nonsense = 1"}, UnknownName, "nonsense"),
        ({"query": "SELECT 1 AS updated_at FROM nowhere"}, UnknownName, "nowhere"),
        ({"table": "orders", "late": {"lookback": 5}}, InputError, "does not fit a cursor of type timestamptz"),
        ({"query": "SELECT * FROM orders", "late": "scan"}, InputError, "late: scan needs the transaction ids"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(database, settings, error, words):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (name text, flag bool, updated_at timestamptz DEFAULT now())")
        connection.execute("INSERT INTO orders DEFAULT VALUES")
    poller = Poller(database, **{"cursor": "updated_at", **settings})
    with pytest.raises(error) as caught:
        poller.poll()
    assert words in str(caught.value)
    poller.close()


def test_positions_of_a_rewind(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY); INSERT INTO t SELECT FROM generate_series(1, 5)"
        )
        poller = Poller(database, table="t", cursor="id")
        assert column(poller.poll(), "id") == [1, 2, 3, 4, 5]
        assert poller.source.position("start", poller.mark) is None
        done = poller.mark
        poller.mark = poller.source.position("3", done)
        assert column(poller.poll(), "id") == [4, 5]
        poller.mark = poller.source.position("7", done)
        connection.execute("INSERT INTO t SELECT FROM generate_series(6, 8)")
        assert column(poller.poll(), "id") == [8]
        poller.mark = poller.source.position("latest", done)
        assert poller.poll() == []
        poller.mark = poller.source.position("6", None)
        assert column(poller.poll(), "id") == [7, 8]
        with pytest.raises(BadPosition, match="expected integer"):
            poller.source.position("yesterday", done)
        poller.close()


def test_a_rewind_still_finds_what_commits_late_below_it(database):
    with psycopg.connect(database) as other, psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY)")
        poller = Poller(database, table="t", cursor="id")
        connection.execute("INSERT INTO t DEFAULT VALUES")
        poller.poll()
        other.execute("INSERT INTO t DEFAULT VALUES")
        connection.execute("INSERT INTO t SELECT FROM generate_series(1, 3)")
        assert column(poller.poll(), "id") == [3, 4, 5]
        poller.mark = poller.source.position("4", poller.mark)
        other.commit()
        assert column(poller.poll(), "id") == [2, 5]
        poller.close()
