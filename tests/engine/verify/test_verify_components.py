"""Sources, sinks and transforms of every kind that verify knows, and what it refuses."""

from __future__ import annotations

import pytest

from headwater.model.errors import InputError, UnknownName
from tests.engine.verify.sql_table import PostgresTable, SqliteTable, differences

pytestmark = pytest.mark.spark


@pytest.fixture
def sqlite(tmp_path, spark, namespace):
    def make(**settings) -> SqliteTable:
        source = {"table": "items", "cursor": "seq", **settings.pop("source", {})}
        return SqliteTable("sqlite:///items.db", tmp_path, spark, f"{namespace}.items", source, **settings)

    return make


@pytest.fixture
def postgres(database, tmp_path, spark, namespace):
    def make(**settings) -> PostgresTable:
        source = {"table": "public.items", "cursor": "seq", **settings.pop("source", {})}
        return PostgresTable(database, tmp_path, spark, f"{namespace}.items", source, **settings)

    return make


def fill(items: PostgresTable) -> None:
    items.sql(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, seq INTEGER, name TEXT, day DATE)",
        *(f"INSERT INTO items VALUES ({n}, {n // 3}, 'item {n}', '2026-01-{n % 28 + 1:02}')" for n in range(1, 201)),
    )


def damage(items: PostgresTable) -> None:
    items.lake("DELETE FROM {t} WHERE id = 50")
    items.lake("UPDATE {t} SET name = 'wrong' WHERE id IN (60, 200)")
    items.lake("INSERT INTO {t} SELECT 900, seq, name, day FROM {t} WHERE id = 1")


DAMAGED = {"missing": [(50,)], "different": [(60,), (200,)], "extra": [(900,)]}


@pytest.mark.parametrize("late", ["auto", "off", {"lookback": 10}])
def test_sqlite_whatever_the_mark_remembers(sqlite, late):
    items = sqlite(source={"late": late})
    fill(items)
    items.run()
    assert items.verify().is_equal
    damage(items)
    assert differences(items.verify()) == DAMAGED
    assert items.repair(delete_extra=True).repaired[0].removed == 1
    assert items.verify().is_equal


def test_a_row_that_was_lost_is_found(sqlite):
    """`late: off` does not see what comes below the mark; verify does."""
    items = sqlite(source={"late": "off"})
    fill(items)
    items.run()
    items.sql("INSERT INTO items VALUES (7000, 1, 'late', NULL)", "INSERT INTO items VALUES (7001, 700, 'newer', NULL)")
    verified = items.verify()
    assert differences(verified) == {"missing": [(7000,)]}
    assert verified.tables[0].waiting == 1
    items.repair()
    items.run()
    assert items.verify().is_equal


@pytest.mark.parametrize("nulls", ["ignore", "read"])
def test_rows_without_a_cursor(sqlite, nulls):
    items = sqlite(source={"nulls": nulls})
    fill(items)
    items.sql("INSERT INTO items VALUES (1000, NULL, 'no cursor', NULL)")
    items.run()
    verified = items.verify()
    assert verified.is_equal, differences(verified)
    assert (verified.tables[0].waiting, verified.tables[0].table_rows) == ((1, 200) if nulls == "ignore" else (0, 201))


def test_keys_that_sqlite_cannot_be_asked_for_are_found_all_the_same(sqlite):
    items = sqlite()
    items.sql(
        "CREATE TABLE items (at TIMESTAMP, day DATE, seq INTEGER, name TEXT, PRIMARY KEY (at, day))",
        *(
            f"INSERT INTO items VALUES ('2026-01-01T10:00:{n:02}.5', '2026-02-0{n % 9 + 1}', {n}, 'n{n}')"
            for n in range(1, 50)
        ),
    )
    items.run()
    items.lake("DELETE FROM {t} WHERE seq = 5")
    items.lake("UPDATE {t} SET name = 'wrong' WHERE seq = 6")
    items.sql("DELETE FROM items WHERE seq = 7")
    assert items.verify().tables[0].counts == {"missing": 1, "different": 1, "extra": 1}
    repaired = items.repair(delete_extra=True).repaired[0]
    assert (repaired.landed, repaired.removed) == (2, 1)
    assert items.verify().is_equal


def test_rows_from_before_the_start_are_nobodys(sqlite):
    items = sqlite(source={"start": 20})
    fill(items)
    items.run()
    verified = items.verify()
    assert verified.is_equal, differences(verified)
    assert verified.tables[0].source_rows == 200 - 62


def test_start_latest_is_refused(sqlite):
    items = sqlite(source={"start": "latest"})
    fill(items)
    items.run()
    with pytest.raises(InputError, match="start: latest"):
        items.verify()


def test_a_table_that_is_appended_to_is_a_bag_of_rows(postgres):
    items = postgres(sink={"mode": "append"})
    fill(items)
    items.run()
    assert items.verify().is_equal
    items.lake("DELETE FROM {t} WHERE id = 50")
    items.lake("UPDATE {t} SET name = 'wrong' WHERE id = 60")
    items.lake("INSERT INTO {t} SELECT * FROM {t} WHERE id = 70")
    assert differences(items.verify()) == {"missing": [(50,), (60,)], "extra": [(60,), (70,)]}
    items.repair()
    assert differences(items.verify()) == {"extra": [(60,), (70,)]}
    with pytest.raises(InputError, match="has mode append"):
        items.repair(delete_extra=True)


def test_rows_without_a_key_are_counted_and_not_repaired(postgres):
    items = postgres(sink={"mode": "append"})
    items.sql(
        "CREATE TABLE items (seq bigint NOT NULL, name text)",
        "INSERT INTO items SELECT n / 5, 'n' || n / 10 FROM generate_series(1, 100) n",
    )
    items.run()
    assert items.verify().is_equal
    items.lake("INSERT INTO {t} SELECT * FROM {t} WHERE seq = 3")
    verified = items.verify()
    assert verified.tables[0].counts["extra"] > 0
    with pytest.raises(InputError, match="no key"):
        items.repair()


def test_a_transform_is_applied_to_the_sources_rows(postgres):
    items = postgres(
        transform="SELECT *, upper(name) AS loud, named_struct('d', day, 'l', array(id, seq)) AS both FROM rows WHERE id % 2 = 0"
    )
    fill(items)
    items.run()
    assert items.verify().is_equal
    items.lake("DELETE FROM {t} WHERE id = 50")
    items.lake("UPDATE {t} SET loud = 'quiet' WHERE id = 60")
    items.lake("UPDATE {t} SET both = named_struct('d', day, 'l', array(seq, id)) WHERE id = 62")
    assert differences(items.verify()) == {"missing": [(50,)], "different": [(60,), (62,)]}
    assert items.repair().repaired[0].unrepaired == 0
    assert items.verify().is_equal


def test_a_transform_that_makes_other_keys_is_compared_and_says_what_it_cannot_repair(postgres):
    items = postgres(sink={"mode": "merge", "key": ["id"]}, transform="SELECT -id AS id, seq, name FROM rows")
    fill(items)
    items.run()
    assert items.verify().is_equal
    items.lake("DELETE FROM {t} WHERE id = -50")
    assert differences(items.verify()) == {"missing": [(-50,)]}
    assert items.repair().repaired[0].unrepaired == 1
    assert differences(items.verify()) == {"missing": [(-50,)]}


def test_a_table_with_position_deletes_is_read_by_spark(postgres):
    items = postgres(sink={"mode": "merge", "properties": {"format-version": "2"}})
    fill(items)
    items.run()
    damage(items)
    assert differences(items.verify()) == DAMAGED
    assert items.repair(delete_extra=True).repaired[0].removed == 1
    assert items.verify().is_equal


def test_several_tables_and_sinks_are_told_apart(database, tmp_path, spark, namespace):
    sinks = [
        {"iceberg": {"table": f"{namespace}.{{table}}", "mode": "merge"}},
        {"iceberg": {"table": f"{namespace}.{{table}}_last", "mode": "replace"}},
        {"console": {"limit": 0}},
        {"iceberg": {"table": f"{namespace}.{{table}}_all", "mode": "append"}},
    ]
    source = {"tables": ["public.a", "public.b", "public.empty"], "cursor": "id"}
    items = PostgresTable(
        database,
        tmp_path,
        spark,
        f"{namespace}.a",
        source,
    )
    items.configure(sinks=sinks)
    items.sql(
        *(f"CREATE TABLE {name} (id bigint PRIMARY KEY, v text)" for name in ("a", "b", "empty")),
        *(f"INSERT INTO {name} SELECT n, 'v' || n FROM generate_series(1, 20) n" for name in ("a", "b")),
    )
    items.run()
    spark.sql(f"DELETE FROM {namespace}.b WHERE id = 3")
    spark.sql(f"DELETE FROM {namespace}.a_all WHERE id = 4")
    verified = items.verify()
    assert {(one.sink, one.stream): one.counts["missing"] for one in verified.tables} == {
        ("1:iceberg", "public.a"): 0,
        ("1:iceberg", "public.b"): 1,
        ("4:iceberg", "public.a"): 1,
        ("4:iceberg", "public.b"): 0,
    }
    reasons = {(one.sink, one.stream): one.why for one in verified.skipped}
    assert "last window" in reasons["2:iceberg", "public.a"]
    assert "no row of it has landed yet" in reasons["1:iceberg", "public.empty"]
    assert len(items.verify(streams=("public.b",), sink="1").tables) == 1
    with pytest.raises(UnknownName, match=r"public\.c"):
        items.verify(streams=("public.c",))
    with pytest.raises(UnknownName, match="3"):
        items.verify(sink="3")
    with pytest.raises(InputError, match="nothing can be compared"):
        items.verify(sink="2")
    items.repair()
    assert items.verify().is_equal


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_databases_behind_jdbc_drivers(kind, request, tmp_path, database):
    if kind == "postgres":
        url = "jdbc:" + database.replace("postgres@", "").replace("postgresql://", "postgresql://") + "?user=postgres"
        items = request.getfixturevalue("postgres")(url=url)
    else:
        items = request.getfixturevalue("sqlite")(url=f"jdbc:sqlite:{tmp_path / 'items.db'}")
    fill(items)
    items.run()
    assert items.verify().is_equal
    damage(items)
    assert differences(items.verify()) == DAMAGED
    assert items.repair(delete_extra=True).repaired[0].removed == 1
    assert items.verify().is_equal
