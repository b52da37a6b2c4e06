"""G8 on SQLite, which stores any value in any column: a value that its declared type cannot hold is rejected."""

from __future__ import annotations

import sqlite3
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater.model.errors import ValueNotKept
from headwater.sources.sql.sqlite.types import column_type, converter
from tests.sources.sql.poller import Poller
from tests.sources.sql.rejects import locations, payloads, poll_with_rejects


@pytest.fixture
def shop(tmp_path):
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    yield connection
    connection.close()


def poller(folder, **settings: object) -> Poller:
    return Poller("sqlite:///shop.db", folder=folder, **{"table": "t", "cursor": "id", **settings})


def test_rows_stored_otherwise_than_declared_are_set_aside_as_they_are_stored(shop, tmp_path):
    shop.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT, price DECIMAL(6,2), at DATETIME, b BLOB, s TEXT)")
    shop.executemany(
        "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)",
        [
            (1, 1, "1.50", "2026-01-31 12:00:00", b"\0", "fine"),
            (2, "many", "1.50", "2026-01-31T12:00:00", b"\xff", None),
            (3, 3, 0.125, "yesterday", "text", b"blob"),
            (4, 2.5, "NaN", None, None, "ü"),
        ],
    )
    source = poller(tmp_path)
    rows, rejects = poll_with_rejects(source)
    assert [row["id"] for row in rows] == [1]
    assert locations(rejects) == [{"row": {"id": number}} for number in (2, 3, 4)]
    assert [tuple(row.values()) for row in payloads(rejects)] == [
        ("2", "many", "1.5", "2026-01-31T12:00:00", "X'FF'", None),
        ("3", "3", "0.125", "yesterday", "text", "X'626C6F62'"),
        ("4", "2.5", "NaN", None, None, "ü"),
    ]
    assert [reject.reason for reject in rejects] == [
        "column n (INT): stored as a text",
        "column price (DECIMAL(6,2)): stored as a real; column at (DATETIME): stored as a text; column b (BLOB): stored as a text; column s (TEXT): stored as a blob",
        "column n (INT): stored as a real; column price (DECIMAL(6,2)): stored as a text",
    ]
    assert poll_with_rejects(source) == ([], [])
    strict = poller(tmp_path)
    with pytest.raises(ValueNotKept, match="column n "):
        strict.poll()
    for each in (source, strict):
        each.close()


def test_a_table_that_ends_in_such_a_row_goes_on(shop, tmp_path):
    """The rows at the mark are read again by every plan, and known by their digests: these must have one, too."""
    shop.execute("CREATE TABLE t (id INTEGER, n INT)")
    shop.execute("INSERT INTO t VALUES (1, 1), (2, 'many')")
    source = poller(tmp_path)
    assert [len(part) for part in poll_with_rejects(source)] == [1, 1]
    assert poll_with_rejects(source) == ([], [])
    shop.execute("INSERT INTO t VALUES (2, 'many'), (2, 'more'), (2, 2)")
    rows, rejects = poll_with_rejects(source)
    assert (rows, payloads(rejects)) == ([{"id": 2, "n": 2}], [{"id": "2", "n": "many"}, {"id": "2", "n": "more"}])
    assert poll_with_rejects(source) == ([], [])
    again = source.in_another_process()
    assert poll_with_rejects(again) == ([], [])
    for each in (source, again):
        each.close()


def test_a_cursor_stored_otherwise_than_declared_stops_the_plan(shop, tmp_path):
    shop.execute("CREATE TABLE t (id INTEGER, n INT)")
    shop.execute("INSERT INTO t VALUES (1, 1), ('two', 2)")
    source = poller(tmp_path)
    with pytest.raises(ValueNotKept, match="the cursor id is declared INTEGER"):
        poll_with_rejects(source)
    source.close()


DECLARED = ["INT", "REAL", "TEXT", "BLOB", "BOOLEAN", "DECIMAL(5,2)", "DATE", "DATETIME", "no such type"]
STORED = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans().map(int),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=5),
    st.binary(max_size=3),
    st.dates().map(str),
    st.datetimes().map(str),
)
ROWS = st.lists(st.tuples(st.integers(1, 4), *(STORED for _ in DECLARED)), max_size=15)


@pytest.mark.slow
@settings(
    max_examples=100,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=ROWS)
def test_what_lands_and_what_is_set_aside_are_all_rows(shop, tmp_path, rows):
    """Row by row: it lands if every value as it is stored can be taken over, else it is written down as stored."""
    shop.execute("DROP TABLE IF EXISTS t")
    shop.execute(
        f"CREATE TABLE t (id INTEGER NOT NULL, {', '.join(f'c{n} {kind}' for n, kind in enumerate(DECLARED))})"
    )
    shop.executemany(f"INSERT INTO t VALUES (?{', ?' * len(DECLARED)})", rows)
    expected, rejected = Counter(), Counter()
    quoted = [f"CASE typeof(c{n}) WHEN 'blob' THEN quote(c{n}) ELSE c{n} END" for n in range(len(DECLARED))]
    for row in shop.execute("SELECT * FROM t"):
        (expected if fits(row) else rejected)[row[0]] += 1
    written = Counter()
    for row, texts in zip(
        shop.execute("SELECT * FROM t"), shop.execute(f"SELECT id, {', '.join(quoted)} FROM t"), strict=True
    ):
        if not fits(row):
            written[tuple(repr(value) if isinstance(value, int | float) else value for value in texts)] += 1
    source = poller(tmp_path)
    landed, rejects = poll_with_rejects(source)
    assert poll_with_rejects(source) == ([], [])
    source.close()
    assert Counter(row["id"] for row in landed) == expected
    assert Counter(location["row"]["id"] for location in locations(rejects)) == rejected
    assert Counter(tuple(payload.values()) for payload in payloads(rejects)) == written
    by_split = Counter(reject.id for reject in rejects)
    assert set(by_split.values()) <= {1, 2}  # the part below the mark's value and the part at it count on their own


def fits(row: tuple) -> bool:
    for declared, value in zip(DECLARED, row[1:], strict=True):
        try:
            converter(column_type(declared))(value)
        except ValueError:
            return False
    return True
