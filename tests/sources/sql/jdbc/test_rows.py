"""The JDBC way on real databases: PostgreSQL and SQLite, whose drivers every session has, against their own readers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headwater.api import Project
from headwater.config.pipeline import PipelineSettings
from headwater.config.project import ProjectSettings
from headwater.model.errors import HeadwaterError, InputError, NullCursor, SourceUnreachable, UnknownName, ValueNotKept
from tests.sources.sql.jdbc.jdbc_poller import JdbcPoller
from tests.sources.sql.poller import Poller, column

pytestmark = pytest.mark.spark
_TYPES = """
CREATE TABLE things (
    id bigint PRIMARY KEY, small smallint NOT NULL, price numeric(38,10), bare numeric, r real, d double precision,
    yes boolean, day date, wall timestamp, at timestamptz NOT NULL, name text, code char(4), raw bytea, doc jsonb,
    who uuid, clock time, numbers int[])"""
_EDGES = """
INSERT INTO things VALUES
(1, -32768, 1234567890123456789012345678.0123456789, 1e40, 0.1, 0.1, true, '0001-01-01', '2026-03-29 02:30:00.000001',
 '2026-10-25 01:30:00.123456+02', E'O''Brien \\\\ "x" üñ🚀', 'ab', '\\x00ff', '{"a": [1, 2]}',
 '0190163d-8694-739b-aea5-966c26f8ad91', '23:59:59.999999', '{1,NULL}'),
(2, 32767, -0.0000000001, 0, 'NaN', 'Infinity', false, '9999-12-31', '9999-12-31 23:59:59.999999',
 '2026-10-25 02:30:00+00', '', '', '', '[]', NULL, '00:00', '{}'),
(3, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-10-25 02:30:00+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL)"""


@pytest.fixture
def pollers(spark) -> Iterator[Callable[..., JdbcPoller]]:
    pollers: list[JdbcPoller] = []

    def make(url: str, **settings: object) -> JdbcPoller:
        pollers.append(JdbcPoller(spark, url, **settings))
        return pollers[-1]

    yield make
    for poller in pollers:
        poller.close()


@pytest.fixture
def shop(tmp_path: Path) -> sqlite3.Connection:
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, price DECIMAL(10,2), at TIMESTAMP NOT NULL, code CHAR(4) DEFAULT 'ab')"
        )
        yield connection


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def test_every_type_of_postgres_reads_as_by_its_own_driver(database, pollers):
    execute(database, "SET TIME ZONE 'Europe/Vienna'", _TYPES, _EDGES)
    settings = {"table": "things", "cursor": "at"}
    native, jdbc = Poller(database, **settings), pollers(f"jdbc:{database}", **settings)
    expected, window = native.table(), jdbc.look()
    with jdbc.source.read(window) as (rows,):
        assert rows.schema == expected.schema
        assert (rows.key, rows.order) == (("id",), ("at",))
    by_id = {row["id"]: row for row in jdbc.read(window)["things"]}
    for row in expected.to_pylist():
        assert repr(by_id.pop(row["id"])) == repr(row)  # NaN is not equal to itself
    assert not by_id
    native.close()


def test_rows_that_share_the_marks_value_are_read_once(database, pollers):
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, n bigint, s text)",
        "INSERT INTO t VALUES (1, 7, 'a'), (2, 7, 'b')",
    )
    poller = pollers(f"jdbc:{database}", table="public.t", cursor="n")
    assert column(poller.poll(), "id") == [1, 2]
    assert "late: {lookback: …}" in poller.warnings[0]
    assert poller.poll() == []
    execute(database, "INSERT INTO t VALUES (3, 7, 'c'), (4, 9, 'd')", "UPDATE t SET s = 'changed' WHERE id = 2")
    assert column(poller.poll(), "id") == [2, 3, 4]
    assert poller.poll() == []


def test_a_window_in_parts_is_cut_by_max_rows_and_keeps_ties_together(shop, tmp_path, pollers):
    shop.executemany(
        "INSERT INTO orders (id, price, at) VALUES (?, ?, ?)",
        [(i, i / 4, f"2026-01-01 00:00:{i // 5:02d}") for i in range(100)],
    )
    poller = pollers("jdbc:sqlite:shop.db", folder=tmp_path, table="orders", cursor="at", max_rows=52, splits=3)
    first = poller.poll()
    assert column(first, "id") == list(range(55))
    assert poller.plan.more
    assert column(poller.poll(), "id") == list(range(55, 100))
    native = Poller("sqlite:///shop.db", folder=tmp_path, table="orders", cursor="at", max_rows=52)
    assert sorted(native.poll(), key=lambda row: row["id"]) == sorted(first, key=lambda row: row["id"])


def test_late_rows_within_the_lookback_are_found(database, pollers):
    execute(
        database,
        "CREATE TABLE t (id int, at timestamp)",
        "INSERT INTO t VALUES (1, '2026-01-01 12:00'), (2, '2026-01-01 12:30')",
    )
    poller = pollers(f"jdbc:{database}", table="t", cursor="at", late={"lookback": "10m"})
    assert column(poller.poll(), "id") == [1, 2]
    assert poller.warnings == []
    execute(database, "INSERT INTO t VALUES (3, '2026-01-01 12:25'), (4, '2026-01-01 12:10')")
    assert column(poller.poll(), "id") == [3]


def test_another_process_reads_exactly_the_window_that_was_begun(database, pollers):
    execute(database, "CREATE TABLE t (id int, n int)", "INSERT INTO t SELECT i, i / 10 FROM generate_series(0, 25) i")
    poller = pollers(f"jdbc:{database}", table="t", cursor="n")
    window = poller.look()
    execute(database, "INSERT INTO t VALUES (100, 2), (101, 3)")
    other = poller.in_another_process()
    assert column(other.read(window)["t"], "id") == list(range(26))
    other.mark = window.end
    assert column(other.poll(), "id") == [100, 101]
    other.close()


def test_strings_are_compared_by_bytes_and_uuids_as_numbers(database, pollers):
    words = ["a", "B", "a ", "ä", "🚀", "Z", ""]
    rows = ", ".join(
        f"('{word}', '0190163d-8694-739b-aea5-966c26f8ad{number:02x}')" for number, word in enumerate(words)
    )
    execute(database, "CREATE TABLE t (word text, id uuid)", f"INSERT INTO t VALUES {rows}")
    poller = pollers(f"jdbc:{database}", table="t", cursor="word", max_rows=3)
    assert [column(poller.poll(), "word") for _ in range(3)] == [["", "B", "Z"], ["a", "a ", "ä"], ["🚀"]]
    poller = pollers(f"jdbc:{database}", table="t", cursor="id", max_rows=4)
    assert [len(poller.poll()) for _ in range(3)] == [4, 3, 0]


def test_queries_several_tables_and_hostile_names(database, pollers):
    odd = """we"ird `t]able' 1"""
    quoted = odd.replace('"', '""')
    execute(
        database,
        "CREATE SCHEMA sales",
        f'CREATE TABLE sales."{quoted}" ("the "" cursor`" int, "select" text)',
        f"INSERT INTO sales.\"{quoted}\" VALUES (1, 'x'), (2, 'y')",
        'CREATE TABLE sales.b ("the "" cursor`" int)',
    )
    poller = pollers(f"jdbc:{database}", tables=["sales.*"], cursor='the " cursor`')
    assert {stream: len(rows) for stream, rows in poller.poll_streams().items()} == {f"sales.{odd}": 2}
    poller = pollers(
        f"jdbc:{database}",
        query="SELECT 1 AS id, CAST(NULL AS text) AS note UNION ALL SELECT 2, 'b' -- both;",
        cursor="ID",
        where="id > 1 -- only",
    )
    assert poller.poll() == [{"id": 2, "note": "b"}]


def test_nulls_in_the_cursor_are_told_refused_or_read(database, pollers):
    execute(database, "CREATE TABLE t (id int, n int)", "INSERT INTO t VALUES (1, 1), (2, NULL)")
    settings = {"url": f"jdbc:{database}", "table": "t", "cursor": "n"}
    poller = pollers(**settings)
    assert column(poller.poll(), "id") == [1]
    assert "1 row without a value" in poller.warnings[-1]
    with pytest.raises(NullCursor):
        pollers(**settings, nulls="fail").poll()
    poller = pollers(**settings, nulls="read")
    assert column(poller.poll(), "id") == [1, 2]
    assert poller.poll() == []


def test_a_value_without_an_exact_form_stops_the_read(database, pollers):
    execute(database, "CREATE TABLE t (id int, at timestamp)", "INSERT INTO t VALUES (1, 'infinity'), (2, now())")
    settings = {"url": f"jdbc:{database}", "table": "t", "cursor": "id"}
    with pytest.raises(Exception, match=r"t: column at \(TIMESTAMP\) has a value that timestamp cannot hold"):
        pollers(**settings).poll()
    with pytest.raises(ValueNotKept, match="as_text"):
        pollers(**settings, max_rows=1).poll()
    assert [row["at"][:8] for row in pollers(**settings, as_text=["at"], max_rows=1).poll()] == ["infinity"]


def test_mistakes_are_told_with_what_to_write(database, pollers, tmp_path):
    execute(database, "CREATE TABLE orders (id int, n float)")
    url = f"jdbc:{database}"
    cases: list[tuple[dict, type[HeadwaterError], str]] = [
        ({"table": "order"}, UnknownName, "public.orders"),
        ({"table": "orders", "as_text": ["x"]}, UnknownName, "has no column x"),
        ({"table": "orders", "cursor": "n"}, InputError, "cannot be a cursor"),
        ({"table": "orders", "where": "n >"}, InputError, "correct the names"),
        ({"table": "orders", "late": "scan"}, InputError, "lookback"),
        ({"table": "orders", "jdbc": {"jar": "no.jar"}}, InputError, "does not exist"),
        ({"table": "orders", "url": "mysql://ann:s3cret@localhost/x"}, InputError, "com.mysql:mysql-connector-j"),
    ]
    for settings, kind, said in cases:
        with pytest.raises(kind) as caught:
            pollers(**{"url": url, "cursor": "id", "folder": tmp_path, **settings}).look()
        assert said in str(caught.value)
        assert "s3cret" not in str(caught.value)


def test_secrets_show_in_no_plan_and_in_no_error(database, pollers, spark):
    execute(database, "CREATE TABLE t (id int)", "INSERT INTO t VALUES (1), (2)")
    address = f"jdbc:{database.replace('postgres@', 'postgres:s3cret@').split('?')[0]}?password=s3cret"
    poller = pollers(address, table="t", cursor="id")
    with poller.source.read(poller.look()) as (rows,):
        frame = rows.dataframe(spark)
        shown = frame._jdf.queryExecution().toString() + repr(rows) + poller.source.address  # noqa: SLF001 - PySpark's door to the plan
    assert "s3cret" not in shown
    nobody = pollers("jdbc:postgresql://ann:s3cret@127.0.0.1:1/x", table="t", cursor="id")
    with pytest.raises(SourceUnreachable) as caught:
        nobody.look()
    assert "s3cret" not in str(caught.value)


def test_a_pipeline_lands_in_an_iceberg_table(shop, tmp_path, spark, namespace):
    shop.execute(
        "INSERT INTO orders (id, price, at) VALUES (1, 1.5, '2026-01-01 00:00:00'), (2, 2.5, '2026-01-01 00:00:01')"
    )
    source = {"sql": {"url": "jdbc:sqlite:shop.db", "table": "orders", "cursor": "at"}}
    sinks = [{"iceberg": {"table": f"{namespace}.orders", "mode": "merge", "key": ["id"]}}]
    settings = PipelineSettings.model_validate({"pipeline": "shop", "source": source, "sinks": sinks})
    with Project(ProjectSettings(progress="memory:"), tmp_path, spark=spark) as project:
        pipeline = project.pipeline(settings)
        assert [pipeline.run_once().outcome for _ in range(2)] == ["landed", "nothing new"]
        shop.execute("INSERT INTO orders (id, price, at) VALUES (3, 3.5, '2026-01-01 00:00:01')")
        shop.execute("UPDATE orders SET price = 9, at = '2026-01-01 00:00:02' WHERE id = 1")
        assert pipeline.run_once().outcome == "landed"
    landed = spark.sql(f"SELECT id, CAST(price AS string) p FROM {namespace}.orders ORDER BY id").collect()
    assert [tuple(row) for row in landed] == [(1, "9.00"), (2, "2.50"), (3, "3.50")]
