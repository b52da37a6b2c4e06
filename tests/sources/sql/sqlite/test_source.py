"""SQLite as a source: exact values, times as texts, ties, and a file that is never touched."""

from __future__ import annotations

import datetime as dt
import decimal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.config.sources.sql import SqlSourceSettings
from headwater.model.errors import InputError, NullCursor, RunError, SourceUnreachable, UnknownName, ValueNotKept
from headwater.sources.sql.database import Tuning
from headwater.sources.sql.sqlite.connection import SqliteFile, SqliteSplit
from headwater.sources.sql.sqlite.database import relations_of
from headwater.sources.sql.windows.digests import flagged_digests
from tests.sources.sql.poller import Poller, column

D = decimal.Decimal


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        yield connection


def poll(folder: Path, **settings) -> Poller:
    return Poller("sqlite:///shop.db", folder=folder, **settings)


def test_every_declared_type_comes_through_exactly(shop, tmp_path):
    shop.execute("""CREATE TABLE t (id INTEGER PRIMARY KEY, n BIGINT, r DOUBLE, s VARCHAR(9) NOT NULL, b BLOB, ok BOOLEAN,
        price DECIMAL(10,2), free NUMERIC, d DATE, at DATETIME, z TIMESTAMP WITH TIME ZONE, j JSON, untyped)""")
    shop.execute(
        "INSERT INTO t VALUES (1, ?, 0.1, 'ü', x'00ff', 1, 19.99, '1.10', '2026-03-29', '2026-03-29T02:30:00.000001', "
        "'2026-03-29 02:30:00Z', '{\"a\": 1.10}', 7)",
        [2**63 - 1],
    )
    shop.execute("INSERT INTO t (id, s) VALUES (2, '')")
    first, second = poll(tmp_path, table="t", cursor="id").poll()
    assert first == {
        "id": 1, "n": 2**63 - 1, "r": 0.1, "s": "ü", "b": b"\x00\xff", "ok": True, "price": D("19.99"), "free": "1.1",
        "d": dt.date(2026, 3, 29), "at": dt.datetime(2026, 3, 29, 2, 30, 0, 1),  # noqa: DTZ001
        "z": dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC), "j": '{"a": 1.10}', "untyped": "7",
    }  # fmt: skip
    assert {value for name, value in second.items() if name not in ("id", "s")} == {None}


@pytest.mark.parametrize(
    ("declared", "stored"),
    [
        ("INTEGER", "'abc'"),
        ("REAL", "'abc'"),
        ("TEXT", "x'00'"),
        ("BOOLEAN", "2"),
        ("DECIMAL(10,2)", "0.1 + 0.2"),
        ("DECIMAL(4,2)", "123.45"),
        ("DATE", "'29.03.2026'"),
        ("DATE", "1774742400"),
        ("DATETIME", "'2026-03-29'"),
        ("DATETIME", "'2026-03-29 02:30:00+02:00'"),
        ("DATETIME", "'2026-03-29 02:30:00.123456789'"),
    ],
)
def test_a_value_that_its_declared_type_cannot_hold_is_refused(shop, tmp_path, declared, stored):
    shop.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, c {declared})")
    shop.execute(f"INSERT INTO t (c) VALUES ({stored})")
    with pytest.raises(ValueNotKept, match=r"(?s)t: column c .* stored as .*as_text: \[c\]"):
        poll(tmp_path, table="t", cursor="id").poll()


EDGES = {
    "INTEGER": [-(2**63), 0, 2**63 - 1],
    "DECIMAL(10,2)": [-1.5, 0, 19.99, 20],
    "DATE": ["0001-01-01", "2024-02-29", "9999-12-31"],
    "DATETIME": [
        "2026-03-29 01:59:59",
        "2026-03-29T01:59:59.5",
        "2026-03-29 01:59:59.500001",
        "9999-12-31 23:59:59.999999",
    ],
    "TIMESTAMP WITH TIME ZONE": ["2026-03-29T01:00:00Z", "2026-03-29 01:00:00.000001+00:00", "2026-03-29 01:00:01"],
    "TEXT COLLATE NOCASE": ["Zebra", "apple", "zebra", "Äpfel", "😀"],
    "UUID": [str(uuid.UUID(int=1)), str(uuid.UUID(int=2**128 - 1))],
}


@pytest.mark.parametrize("declared", EDGES)
def test_each_cursor_value_is_read_once_in_its_turn(shop, tmp_path, declared):
    shop.execute(f"CREATE TABLE t (n INTEGER, c {declared}); ".rstrip("; "))
    shop.execute("CREATE INDEX i ON t (c)")
    poller = poll(tmp_path, table="t", cursor="c")
    for number, value in enumerate(EDGES[declared]):
        shop.execute("INSERT INTO t VALUES (?, ?)", [number, value])
        assert column(poller.poll(), "n") == [number]
        assert poller.poll() == []
    few = poll(tmp_path, table="t", cursor="c", max_rows=1)
    assert [few.poll()[0]["n"] for _ in EDGES[declared]] == list(range(len(EDGES[declared])))


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("INTEGER", "abc"),
        ("INTEGER", 1.5),
        ("DATE", 20260101),
        ("DATETIME", "2026-01-01"),
        ("TEXT", b"x"),
        ("UUID", "ABC"),
        ("DECIMAL(5,2)", "x"),
    ],
)
def test_a_cursor_value_of_another_shape_is_an_error_and_never_skipped(shop, tmp_path, declared, value):
    shop.execute(f"CREATE TABLE t (c {declared})")
    shop.execute("INSERT INTO t VALUES (?)", [value])
    with pytest.raises(ValueNotKept, match="the cursor c is declared"):
        poll(tmp_path, table="t", cursor="c").poll()


def test_rows_that_share_the_greatest_value_are_read_even_if_they_come_later_and_are_alike(shop, tmp_path):
    shop.execute("CREATE TABLE t (at DATETIME, note TEXT)")
    shop.execute("INSERT INTO t VALUES ('2026-01-01 10:00:00', 'same'), ('2026-01-01 10:00:00', 'same')")
    poller = poll(tmp_path, table="t", cursor="at")
    assert column(poller.poll(), "note") == ["same", "same"]
    shop.execute("INSERT INTO t VALUES ('2026-01-01 10:00:00', 'same'), ('2026-01-01 10:00:00', 'other')")
    window = poller.look()
    shop.execute("INSERT INTO t VALUES ('2026-01-01 10:00:00', 'same'), ('2026-01-01 10:00:00', 'late')")
    assert column(poller.in_another_process().read(window)["t"], "note") == ["other", "same"]  # G5
    poller.mark = window.end
    assert column(poller.poll(), "note") == ["late", "same"]
    assert poller.poll() == []


def test_a_lookback_finds_what_comes_late_within_it(shop, tmp_path):
    shop.execute("CREATE TABLE t (at DATETIME, n INTEGER)")
    poller = poll(tmp_path, table="t", cursor="at", late={"lookback": "10m"})
    read = []
    for n, at in enumerate(["10:00:00", "10:20:00", "10:12:00", "10:05:00", "10:30:00", "10:20:00", "10:21:00"]):
        shop.execute("INSERT INTO t VALUES (?, ?)", [f"2026-01-01 {at}", n])
        read += column(poller.poll(), "n")
    assert read == [0, 1, 2, 4, 5, 6]  # 10:05 came fifteen minutes late


def test_a_row_that_changes_at_the_mark_is_read_again(shop, tmp_path):
    shop.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, at DATETIME, state TEXT)")
    shop.execute("INSERT INTO t VALUES (1, '2026-01-01 10:00:00', 'new'), (2, '2026-01-01 09:00:00', 'old')")
    poller = poll(tmp_path, table="t", cursor="at")
    poller.poll()
    shop.execute("UPDATE t SET state = 'paid'")  # within the same second
    assert [(row["id"], row["state"]) for row in poller.poll()] == [(1, "paid")]


def test_null_cursors(shop, tmp_path):
    shop.execute("CREATE TABLE t (n INTEGER, c INTEGER)")
    shop.execute("INSERT INTO t VALUES (1, 1), (2, NULL), (2, NULL)")
    ignore = poll(tmp_path, table="t", cursor="c")
    assert column(ignore.poll(), "n") == [1]
    assert ignore.warnings == ["t: 2 rows without a value in the cursor c skipped (nulls: ignore)"]
    with pytest.raises(NullCursor, match="2 rows"):
        poll(tmp_path, table="t", cursor="c", nulls="fail").poll()
    read = poll(tmp_path, table="t", cursor="c", nulls="read")
    assert column(read.poll(), "n") == [1, 2, 2]
    shop.execute("INSERT INTO t VALUES (2, NULL), (3, NULL)")
    assert column(read.poll(), "n") == [2, 3]
    assert read.poll() == []


def test_start_modes(shop, tmp_path):
    shop.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    shop.executemany("INSERT INTO t VALUES (?)", [[n] for n in range(1, 6)])
    above, latest = (
        poll(tmp_path, table="t", cursor="id", start=3),
        poll(tmp_path, table="t", cursor="id", start="latest"),
    )
    assert column(above.poll(), "id") == [4, 5]
    assert latest.poll() == []
    shop.execute("INSERT INTO t VALUES (6)")
    assert column(above.poll(), "id") == column(latest.poll(), "id") == [6]
    latest.mark = latest.source.position("2", latest.mark)
    assert column(latest.poll(), "id") == [3, 4, 5, 6]


def test_large_windows_are_read_in_parts_that_together_are_the_window(shop, tmp_path):
    shop.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, note TEXT)")
    shop.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) INSERT INTO t SELECT i * 3, 'x' FROM n"
    )
    poller = poll(tmp_path, table="t", cursor="id", splits=4)
    with poller.source.read(poller.look()) as (rows,):
        parts = [sum(batch.num_rows for batch in split.read()) for split in rows.splits]
    assert len(parts) == 5  # four and the edge
    assert sum(parts) == 5000
    assert max(parts) <= 1251


def test_queries_views_and_patterns(shop, tmp_path):
    shop.execute("CREATE TABLE a (id INTEGER PRIMARY KEY)")
    shop.execute("CREATE TABLE b (id INTEGER PRIMARY KEY)")
    shop.execute("CREATE VIEW v AS SELECT id FROM a")
    for table in "ab":
        shop.execute(f"INSERT INTO {table} VALUES (1)")
    assert column(poll(tmp_path, query="SELECT id FROM a -- all of them;", cursor="id").poll(), "id") == [1]
    assert column(poll(tmp_path, table="v", cursor="id").poll(), "id") == [1]
    several = poll(tmp_path, tables=["[ab]"], cursor="id")
    assert sorted(several.poll_streams()) == ["a", "b"]
    shop.execute("INSERT INTO b VALUES (2)")
    assert several.poll_streams() == {"b": [{"id": 2}]}


def test_a_missing_file_is_unreachable_and_is_not_created(tmp_path):
    with pytest.raises(SourceUnreachable, match="there is no such file"):
        poll(tmp_path, table="t", cursor="id").poll()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_replaced_is_opened_anew(shop, tmp_path):
    shop.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    shop.execute("INSERT INTO t VALUES (1)")
    poller = poll(tmp_path, table="t", cursor="id")
    poller.poll()
    with closing(sqlite3.connect(tmp_path / "new.db")) as other:
        other.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        other.execute("INSERT INTO t VALUES (1), (2)")
        other.commit()
    (tmp_path / "new.db").replace(tmp_path / "shop.db")
    assert column(poller.poll(), "id") == [2]


def test_more_ties_than_a_mark_can_keep_are_an_error_with_a_remedy(shop, tmp_path):
    shop.execute("CREATE TABLE t (d DATE)")
    shop.executemany("INSERT INTO t VALUES (?)", [["2026-01-01"]] * 11)
    with pytest.raises(RunError, match="more than 10 rows share the greatest value of d"):
        poll(tmp_path, table="t", cursor="d", tuning=Tuning(max_digests=10)).poll()


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"table": "ordrs"}, UnknownName, "did you mean orders"),
        ({"table": "orders", "cursor": "idd"}, UnknownName, "did you mean id"),
        ({"table": "orders", "late": "scan"}, InputError, "SQLite does not have"),
        ({"table": "orders", "where": "("}, InputError, "correct where or query"),
        ({"table": "orders", "cursor": "photo"}, InputError, "cannot be a cursor"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(shop, tmp_path, settings, error, words):
    shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, photo BLOB)")
    with pytest.raises(error) as caught:
        poll(tmp_path, **{"cursor": "id", **settings}).poll()
    assert words in str(caught.value)


class OnlyArrow:
    """A split that hides its other way of being read."""

    def __init__(self, split: SqliteSplit) -> None:
        self.read, self.rows = split.read, split.rows


def test_rows_have_the_same_names_whether_arrow_read_them_or_not(shop, tmp_path):
    """A plan names rows without Arrow, a task with it, and what the plan kept must be found again (G5)."""
    shop.execute("""CREATE TABLE t (id INTEGER PRIMARY KEY, n BIGINT, r DOUBLE, s TEXT, b BLOB, ok BOOLEAN,
        price DECIMAL(10,2), tiny DECIMAL(20,12), d DATE, at DATETIME, z TIMESTAMP WITH TIME ZONE, untyped)""")
    shop.executemany(
        "INSERT INTO t (n, r, s, b, ok, price, tiny, d, at, z, untyped) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
        [
            (None,) * 11,
            (-(2**63), -0.0, "", b"", 0, "-0.00", "0", "0001-01-01", "0001-01-01 00:00:00", "1969-12-31 23:59:59.999999Z", 0.1),
            (2**63 - 1, 1e-310, "ü\n", b"\x00", 1, "-12345678.90", "0.000000000001", "9999-12-31", "9999-12-31T23:59:59.999999", "2026-03-29 02:30:00", "x"),
        ],
    )  # fmt: skip
    with closing(SqliteFile(str(tmp_path / "shop.db"))) as file:
        (relation,) = relations_of(file, SqlSourceSettings(url="sqlite:///shop.db", table="t", cursor="id"))
    split = SqliteSplit(relation.row_identity, file.path, "SELECT *, 1, id = 2 FROM t ORDER BY id", 2)
    ((names, before, after),) = flagged_digests(split)
    assert len(set(names)) == 3
    assert (before, after) == ([1, 1, 1], [0, 1, 0])
    assert [(names, before, after)] == list(flagged_digests(OnlyArrow(split)))


IDLE = """
import sys
from headwater.cli.main import main
sys.argv = ["headwater", "run", "shop.yaml", "--once"]
try:
    main()
finally:
    heavy = {"pandas", "pyarrow", "numpy", "pyspark"} & {name.partition(".")[0] for name in sys.modules}
    print("imported", sorted(heavy))
"""


def test_an_idle_run_imports_neither_arrow_nor_pandas(shop, tmp_path):
    shop.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, price DECIMAL(10,2), at DATETIME)")
    shop.execute("INSERT INTO t VALUES (1, 2.5, '2026-03-29 02:30:00')")
    (tmp_path / "shop.yaml").write_text(
        "pipeline: shop\nsource: {sql: {url: 'sqlite:///shop.db', table: t, cursor: id}}\nsinks: [console: {}]\n"
    )

    def run() -> str:
        command = [sys.executable, "-c", IDLE]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert "1 row landed" in run()
    assert run() == "shop: nothing new\nimported []\n"
