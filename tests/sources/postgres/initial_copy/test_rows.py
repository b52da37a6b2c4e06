"""Tables at a snapshot as change rows: their shape, whatever the table looks like."""

from __future__ import annotations

import datetime as dt
import pickle

import psycopg
import pyarrow as pa
import pytest

from headwater.model.rows import CHANGE_COLUMNS, Changes, position
from headwater.model.secret import Secret
from headwater.sources.postgres.initial_copy.pages import cut_pages
from headwater.sources.postgres.initial_copy.windows import copied_rows
from tests.sources.postgres.initial_copy.copy_rows import catalog_table, order_for, read, rows_of, snapshot_of


@pytest.fixture
def connection(database):
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def ids(rows: list[dict]) -> list[int]:
    return [row["id"] for row in rows]


def test_a_row_is_read_at_the_place_of_the_snapshot_and_known_by_where_it_stood(database, connection):
    connection.execute("CREATE TABLE t (note text, id int PRIMARY KEY); INSERT INTO t VALUES ('a', 1), ('b', 2)")
    with snapshot_of(database) as snapshot:
        rows = copied_rows(Secret(database), order_for(database, snapshot, "t"))
        first, second = read(rows)
    assert rows.stream == "t"
    assert rows.key == ("id",)
    assert rows.changes == Changes(("note", "id"), ("_position", "_row"), "_source_time", is_copy=True)
    assert rows.schema.names == ["note", "id", *CHANGE_COLUMNS, "_row"]
    moment = dt.datetime.fromtimestamp(snapshot.moment / 1_000_000, dt.UTC)
    assert abs(dt.datetime.now(dt.UTC) - moment) < dt.timedelta(minutes=1)
    assert first == {
        "note": "a", "id": 1, "_op": "r", "_position": position(snapshot.lsn, 2), "_source_time": moment,
        "_transaction": None, "_missing": None, "_old_key": None, "_row": 1,
    }  # fmt: skip
    assert second["_row"] == 2


def test_a_copy_that_replaces_an_earlier_one_begins_with_a_truncate(database, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 2000)")
    with snapshot_of(database) as snapshot:
        rows = copied_rows(Secret(database), order_for(database, snapshot, "t", replaces=True, splits=3))
        copied = read(rows)
    assert len(rows.splits) == 3
    assert [row["_op"] for row in copied] == ["t"] + ["r"] * 2000
    assert (copied[0]["id"], copied[0]["_row"]) == (None, 0)
    assert copied[0]["_position"] == position(snapshot.lsn, 1) < copied[1]["_position"]


@pytest.mark.parametrize("replaces", [False, True])
def test_an_empty_table_is_no_rows_or_the_truncate_alone(database, connection, replaces):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
    copied = rows_of(database, "t", replaces=replaces, splits=4)
    assert [row["_op"] for row in copied] == ["t"] * replaces


def test_a_partitioned_table_without_partitions_is_empty(database, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    assert [row["_op"] for row in rows_of(database, "t", replaces=True, splits=4)] == ["t"]


def test_a_table_of_one_page_is_one_split(database, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)")
    with snapshot_of(database) as snapshot:
        rows = copied_rows(Secret(database), order_for(database, snapshot, "t", splits=8))
        assert len(rows.splits) == 1
        assert ids(read(rows)) == [1, 2]


def test_splits_are_of_similar_size_and_hold_every_row_once(database, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, note text)")
    connection.execute("INSERT INTO t SELECT n, repeat('x', n % 300) FROM generate_series(1, 20000) n; ANALYZE t")
    with snapshot_of(database) as snapshot:
        rows = copied_rows(Secret(database), order_for(database, snapshot, "t", splits=7))
        each = [[row for batch in split.read() for row in batch.to_pylist()] for split in rows.splits]
    assert len(each) == 7
    assert sorted(row["id"] for part in each for row in part) == list(range(1, 20001))
    assert max(map(len, each)) < 1.2 * min(map(len, each))
    assert all(abs(split.rows - len(part)) < 500 for split, part in zip(rows.splits, each, strict=True))


def test_rows_of_every_partition_come_and_are_told_apart(database, connection):
    connection.execute("""
        CREATE TABLE t (id int, kind text, PRIMARY KEY (kind, id)) PARTITION BY LIST (kind);
        CREATE TABLE t_other (extra int, id int NOT NULL, kind text NOT NULL);
        ALTER TABLE t_other DROP COLUMN extra;
        ALTER TABLE t ATTACH PARTITION t_other FOR VALUES IN ('b');
        CREATE TABLE t_a PARTITION OF t FOR VALUES IN ('a');
        CREATE TABLE t_rest PARTITION OF t DEFAULT PARTITION BY RANGE (id);
        CREATE TABLE t_low PARTITION OF t_rest FOR VALUES FROM (0) TO (100);
        CREATE TABLE t_empty PARTITION OF t_rest FOR VALUES FROM (100) TO (200);
        INSERT INTO t SELECT n, k FROM generate_series(1, 99) n, unnest(ARRAY['a', 'b', 'c']) k""")
    for splits in (1, 2, 9):
        copied = rows_of(database, "t", splits=splits)
        assert sorted((row["kind"], row["id"]) for row in copied) == [(k, n) for k in "abc" for n in range(1, 100)]
        assert len({row["_row"] for row in copied}) == 297
        heaps = {row["kind"]: row["_row"] >> 48 for row in copied}
        assert len(set(heaps.values())) == 3


def test_a_hundred_small_partitions_share_a_few_splits(database, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    for n in range(100):
        connection.execute(f"CREATE TABLE t_{n} PARTITION OF t FOR VALUES FROM ({n * 10}) TO ({n * 10 + 10})")
    connection.execute("INSERT INTO t SELECT generate_series(0, 999)")
    with snapshot_of(database) as snapshot:
        rows = copied_rows(Secret(database), order_for(database, snapshot, "t", splits=4))
        assert len(rows.splits) == 4
        assert sorted(ids(read(rows))) == list(range(1000))


def test_windows_of_a_few_pages_hold_every_row_once_while_the_table_grows_and_shrinks(database, connection):
    """The snapshot sees neither the rows that come nor that others go; pages of the plan stay what they were."""
    connection.execute("CREATE TABLE t (id int, part int, note text, PRIMARY KEY (id, part)) PARTITION BY LIST (part)")
    for part in range(3):
        connection.execute(f"CREATE TABLE t_{part} PARTITION OF t FOR VALUES IN ({part})")
    connection.execute("INSERT INTO t SELECT n, n % 3, repeat('x', 100) FROM generate_series(1, 3000) n")
    table = catalog_table(database, "t")
    copied, first, windows = [], 0, 0
    with snapshot_of(database) as snapshot:
        while first is not None:
            end, cost = cut_pages(table.leaves, first, 5 * 8192)
            assert 0 < cost <= 8 * 8192
            order = order_for(database, snapshot, "t", table=table, first=first, end=end, splits=2)
            copied += read(copied_rows(Secret(database), order))
            connection.execute("DELETE FROM t WHERE id > 1500 OR id % 5 = 0")
            connection.execute(
                "INSERT INTO t SELECT n + 10000 * %s, n %% 3, 'new' FROM generate_series(1, 500) n", [windows + 1]
            )
            connection.execute("UPDATE t SET note = 'changed' WHERE id <= 300")
            first, windows = end, windows + 1
    assert windows > 5
    assert sorted((row["id"], row["note"]) for row in copied) == [(n, "x" * 100) for n in range(1, 3001)]


def test_the_filter_and_the_list_of_columns_of_the_settings_apply(database, connection):
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, state text, secret text);
        INSERT INTO t SELECT n, CASE n % 2 WHEN 0 THEN 'draft' ELSE 'done' END, 's' FROM generate_series(1, 10) n""")
    table = catalog_table(database, "t").only(["id", "state"])
    copied = rows_of(database, "t", table=table, where="state <> 'draft' OR id = 2 -- a comment")
    assert ids(copied) == [1, 2, 3, 5, 7, 9]
    assert "secret" not in copied[0]


def test_rows_come_by_their_places_though_an_index_knows_the_filter(database, connection):
    """The order is what lets a broken read go on."""
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, note text); CREATE INDEX ON t (note, id DESC);
        INSERT INTO t SELECT n, (n % 7)::text FROM generate_series(1, 50000) n""")
    connection.execute("VACUUM ANALYZE t")
    copied = [row["_row"] for row in rows_of(database, "t", where="note = '3'")]
    assert len(copied) == 7143
    assert copied == sorted(copied)


def test_generated_columns_are_read_where_the_layout_has_them(database, connection):
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED,
            thrice int GENERATED ALWAYS AS (id * 3) VIRTUAL);
        INSERT INTO t VALUES (1)""")
    table = catalog_table(database, "t")
    with_them = rows_of(database, "t", table=table)
    without = rows_of(database, "t", table=table.only(["id"]))
    assert (with_them[0]["twice"], with_them[0]["thrice"]) == (2, 3)
    assert set(with_them[0]) - set(without[0]) == {"twice", "thrice"}


def test_values_live_where_their_column_does_and_columns_that_are_gone_are_null(database, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, a text, n int, f real, d numeric(6,2))")
    connection.execute("INSERT INTO t VALUES (1, 'x', 7, 0.5, 1.25), (2, NULL, NULL, NULL, NULL)")
    lake = {
        "gone": "date",
        "id": "int64",
        "a": "int32",
        "f": "float64",
        "d": "decimal(20,2)",
        "n": "int64",
        "a__string": "string",
    }
    homes = {"id": "id", "a": "a__string", "n": "n", "f": "f", "d": "d"}
    first, second = rows_of(database, "t", lake=lake, homes=homes)
    assert [first[name] for name in ("gone", "id", "a", "n", "a__string", "f")] == [None, 1, None, 7, "x", 0.5]
    assert str(first["d"]) == "1.25"
    assert [second[name] for name in ("id", "a__string", "n", "f", "d")] == [2, None, None, None, None]


HOSTILE = ["Capital Letters", 'with "quotes"', "it's", "100%", "%s %(x)s", "ünïcödé 😀", "semi;colon", "back\\slash",
           "new\nline", "select", "tab\t", "x" * 63, "{braces}", "$1", ".", "a.b"]  # fmt: skip


def test_names_are_only_names(database, connection):
    quoted = [psycopg.sql.Identifier(name) for name in HOSTILE]
    for name in HOSTILE:
        shown = psycopg.sql.Identifier(name)
        connection.execute(psycopg.sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(shown))
        columns = psycopg.sql.SQL(", ").join(psycopg.sql.SQL("{} jsonb").format(column) for column in quoted)
        table = psycopg.sql.SQL("{}.{}").format(shown, shown)
        connection.execute(psycopg.sql.SQL("CREATE TABLE {} ({}, id int PRIMARY KEY)").format(table, columns))
        connection.execute(psycopg.sql.SQL("INSERT INTO {} (id, {}) VALUES (1, '7')").format(table, shown))
        stream = ".".join('"' + name.replace('"', '""') + '"' for _ in range(2))
        (row,) = rows_of(database, stream)
        assert {column: value for column, value in row.items() if column in HOSTILE and value} == {name: "7"}


def test_a_table_of_1600_columns_comes_whole(database, connection):
    names = [f"c{n}" for n in range(1600)]
    kinds = ["int", "bool", "numeric(4,2)", "date"]
    connection.execute(f"CREATE TABLE t ({', '.join(f'{name} {kinds[n % 4]}' for n, name in enumerate(names))})")
    connection.execute("INSERT INTO t (c0, c1, c1599) VALUES (1, true, '2026-01-01'), (2, NULL, NULL)")
    first, second = rows_of(database, "t")
    assert (first["c0"], first["c1"], first["c2"], first["c1599"]) == (1, True, None, dt.date(2026, 1, 1))
    assert (second["c0"], second["c1599"]) == (2, None)


@pytest.mark.slow
def test_rows_of_50_megabytes_come_whole(database, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, big text, more bytea, made jsonb)")
    connection.execute("""
        INSERT INTO t SELECT n, repeat(n::text, 30000000), decode(repeat('ab', 20000000), 'hex'), to_jsonb(repeat('j', 1000000))
        FROM generate_series(1, 3) n UNION ALL SELECT 4, 'small', '', '{}'""")
    sizes = [
        (row["id"], len(row["big"]), len(row["more"]), len(row["made"])) for row in rows_of(database, "t", splits=2)
    ]
    assert sizes == [*((n, 30_000_000, 20_000_000, 1_000_002) for n in (1, 2, 3)), (4, 5, 0, 2)]


def test_children_by_inheritance_are_tables_of_their_own(database, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE child () INHERITS (t)")
    connection.execute("INSERT INTO t VALUES (1); INSERT INTO child VALUES (2)")
    assert ids(rows_of(database, "t")) == [1]


def test_a_split_is_small_and_shows_no_secret(database, connection):
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    url = database.replace("postgres@", "postgres:s3cret@")
    with snapshot_of(url) as snapshot:
        rows = copied_rows(Secret(url), order_for(url, snapshot, "t", where="id <> 424242"))
        (split,) = rows.splits
        assert ids(read(rows)) == [1]
    assert "s3cret" not in repr(rows)
    assert "424242" not in repr(rows)
    assert len(pickle.dumps(split)) < 3000
    assert pa.schema(rows.schema).field("_row").nullable is False


def test_a_table_without_columns_has_rows_all_the_same(database, connection):
    connection.execute("CREATE TABLE t (); INSERT INTO t SELECT FROM generate_series(1, 3)")
    assert [row["_row"] for row in rows_of(database, "t")] == [1, 2, 3]
