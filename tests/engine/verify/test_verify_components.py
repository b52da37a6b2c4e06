"""Sources, sinks and transforms of every kind that verify knows, and what it refuses."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from headwater.model.errors import InputError, UnknownName
from tests.engine.verify.yard import Yard, found

pytestmark = pytest.mark.spark


class SqliteYard(Yard):
    """The same with a file."""

    def sql(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.folder / "yard.db")) as connection, connection:
            for statement in statements:
                connection.execute(statement)


@pytest.fixture
def sqlite(tmp_path, spark, namespace):
    def make(**settings) -> SqliteYard:
        source = {"table": "items", "cursor": "seq", **settings.pop("source", {})}
        return SqliteYard("sqlite:///yard.db", tmp_path, spark, f"{namespace}.items", source, **settings)

    return make


@pytest.fixture
def postgres(database, tmp_path, spark, namespace):
    def make(**settings) -> Yard:
        source = {"table": "public.items", "cursor": "seq", **settings.pop("source", {})}
        return Yard(settings.pop("url", database), tmp_path, spark, f"{namespace}.items", source, **settings)

    return make


def fill(yard: Yard, rows: int = 200) -> None:
    yard.sql(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, seq INTEGER, name TEXT, day DATE)",
        *(
            f"INSERT INTO items VALUES ({n}, {n // 3}, 'item {n}', '2026-01-{n % 28 + 1:02}')"
            for n in range(1, rows + 1)
        ),
    )


def damage(yard: Yard) -> None:
    yard.lake("DELETE FROM {t} WHERE id = 50")
    yard.lake("UPDATE {t} SET name = 'wrong' WHERE id IN (60, 200)")
    yard.lake("INSERT INTO {t} SELECT 900, seq, name, day FROM {t} WHERE id = 1")


DAMAGED = {"missing": [(50,)], "different": [(60,), (200,)], "extra": [(900,)]}


@pytest.mark.parametrize("late", ["auto", "off", {"lookback": 10}])
def test_sqlite_whatever_the_mark_remembers(sqlite, late):
    yard = sqlite(source={"late": late})
    fill(yard)
    yard.run()
    assert yard.verify().is_equal
    damage(yard)
    assert found(yard.verify()) == DAMAGED
    assert yard.repair(delete_extra=True).repaired[0].removed == 1
    assert yard.verify().is_equal


def test_a_row_that_was_lost_is_found(sqlite):
    """`late: off` does not see what comes below the mark; verify does."""
    yard = sqlite(source={"late": "off"})
    fill(yard)
    yard.run()
    yard.sql("INSERT INTO items VALUES (7000, 1, 'late', NULL)", "INSERT INTO items VALUES (7001, 700, 'newer', NULL)")
    verified = yard.verify()
    assert found(verified) == {"missing": [(7000,)]}
    assert verified.tables[0].waiting == 1
    yard.repair()
    yard.run()
    assert yard.verify().is_equal


@pytest.mark.parametrize("nulls", ["ignore", "read"])
def test_rows_without_a_cursor(sqlite, nulls):
    yard = sqlite(source={"nulls": nulls})
    fill(yard)
    yard.sql("INSERT INTO items VALUES (1000, NULL, 'no cursor', NULL)")
    yard.run()
    verified = yard.verify()
    assert verified.is_equal, found(verified)
    assert (verified.tables[0].waiting, verified.tables[0].table_rows) == ((1, 200) if nulls == "ignore" else (0, 201))


def test_keys_that_sqlite_cannot_be_asked_for_are_found_all_the_same(sqlite):
    yard = sqlite()
    yard.sql(
        "CREATE TABLE items (at TIMESTAMP, day DATE, seq INTEGER, name TEXT, PRIMARY KEY (at, day))",
        *(
            f"INSERT INTO items VALUES ('2026-01-01T10:00:{n:02}.5', '2026-02-0{n % 9 + 1}', {n}, 'n{n}')"
            for n in range(1, 50)
        ),
    )
    yard.run()
    yard.lake("DELETE FROM {t} WHERE seq = 5")
    yard.lake("UPDATE {t} SET name = 'wrong' WHERE seq = 6")
    yard.sql("DELETE FROM items WHERE seq = 7")
    assert yard.verify().tables[0].counts == {"missing": 1, "different": 1, "extra": 1}
    repaired = yard.repair(delete_extra=True).repaired[0]
    assert (repaired.landed, repaired.removed) == (2, 1)
    assert yard.verify().is_equal


def test_rows_from_before_the_start_are_nobodys(sqlite):
    yard = sqlite(source={"start": 20})
    fill(yard)
    yard.run()
    verified = yard.verify()
    assert verified.is_equal, found(verified)
    assert verified.tables[0].source_rows == 200 - 62


def test_start_latest_is_refused(sqlite):
    yard = sqlite(source={"start": "latest"})
    fill(yard)
    yard.run()
    with pytest.raises(InputError, match="start: latest"):
        yard.verify()


def test_a_table_that_is_appended_to_is_a_bag_of_rows(postgres):
    yard = postgres(sink={"mode": "append"})
    fill(yard)
    yard.run()
    assert yard.verify().is_equal
    yard.lake("DELETE FROM {t} WHERE id = 50")
    yard.lake("UPDATE {t} SET name = 'wrong' WHERE id = 60")
    yard.lake("INSERT INTO {t} SELECT * FROM {t} WHERE id = 70")
    assert found(yard.verify()) == {"missing": [(50,), (60,)], "extra": [(60,), (70,)]}
    yard.repair()
    assert found(yard.verify()) == {"extra": [(60,), (70,)]}
    with pytest.raises(InputError, match="has mode append"):
        yard.repair(delete_extra=True)


def test_rows_without_a_key_are_counted_and_not_repaired(postgres):
    yard = postgres(sink={"mode": "append"})
    yard.sql(
        "CREATE TABLE items (seq bigint NOT NULL, name text)",
        "INSERT INTO items SELECT n / 5, 'n' || n / 10 FROM generate_series(1, 100) n",
    )
    yard.run()
    assert yard.verify().is_equal
    yard.lake("INSERT INTO {t} SELECT * FROM {t} WHERE seq = 3")
    verified = yard.verify()
    assert verified.tables[0].counts["extra"] > 0
    with pytest.raises(InputError, match="no key"):
        yard.repair()


def test_a_transform_is_applied_to_the_sources_rows(postgres):
    yard = postgres(
        more={
            "transform": "SELECT *, upper(name) AS loud, named_struct('d', day, 'l', array(id, seq)) AS both FROM rows WHERE id % 2 = 0"
        }
    )
    fill(yard)
    yard.run()
    assert yard.verify().is_equal
    yard.lake("DELETE FROM {t} WHERE id = 50")
    yard.lake("UPDATE {t} SET loud = 'quiet' WHERE id = 60")
    yard.lake("UPDATE {t} SET both = named_struct('d', day, 'l', array(seq, id)) WHERE id = 62")
    assert found(yard.verify()) == {"missing": [(50,)], "different": [(60,), (62,)]}
    assert yard.repair().repaired[0].left == 0
    assert yard.verify().is_equal


def test_a_transform_that_makes_other_keys_is_compared_and_says_what_it_cannot_repair(postgres):
    yard = postgres(sink={"mode": "merge", "key": ["id"]}, more={"transform": "SELECT -id AS id, seq, name FROM rows"})
    fill(yard)
    yard.run()
    assert yard.verify().is_equal
    yard.lake("DELETE FROM {t} WHERE id = -50")
    assert found(yard.verify()) == {"missing": [(-50,)]}
    assert yard.repair().repaired[0].left == 1
    assert found(yard.verify()) == {"missing": [(-50,)]}


def test_a_table_with_position_deletes_is_read_by_spark(postgres):
    yard = postgres(sink={"mode": "merge", "properties": {"format-version": "2"}})
    fill(yard)
    yard.run()
    damage(yard)
    assert found(yard.verify()) == DAMAGED
    assert yard.repair(delete_extra=True).repaired[0].removed == 1
    assert yard.verify().is_equal


def test_several_tables_and_sinks_are_told_apart(database, tmp_path, spark, namespace):
    sinks = [
        {"iceberg": {"table": f"{namespace}.{{table}}", "mode": "merge"}},
        {"iceberg": {"table": f"{namespace}.{{table}}_last", "mode": "replace"}},
        {"console": {"limit": 0}},
        {"iceberg": {"table": f"{namespace}.{{table}}_all", "mode": "append"}},
    ]
    source = {"tables": ["public.a", "public.b", "public.empty"], "cursor": "id"}
    yard = Yard(database, tmp_path, spark, f"{namespace}.a", source, more={"sinks": sinks})
    yard.sql(
        *(f"CREATE TABLE {name} (id bigint PRIMARY KEY, v text)" for name in ("a", "b", "empty")),
        *(f"INSERT INTO {name} SELECT n, 'v' || n FROM generate_series(1, 20) n" for name in ("a", "b")),
    )
    yard.run()
    spark.sql(f"DELETE FROM {namespace}.b WHERE id = 3")
    spark.sql(f"DELETE FROM {namespace}.a_all WHERE id = 4")
    verified = yard.verify()
    assert {(one.sink, one.stream): one.counts["missing"] for one in verified.tables} == {
        ("1:iceberg", "public.a"): 0,
        ("1:iceberg", "public.b"): 1,
        ("4:iceberg", "public.a"): 1,
        ("4:iceberg", "public.b"): 0,
    }
    reasons = {(one.sink, one.stream): one.why for one in verified.skipped}
    assert "last window" in reasons["2:iceberg", "public.a"]
    assert "no row of it has landed yet" in reasons["1:iceberg", "public.empty"]
    assert len(yard.verify(streams=("public.b",), sink="1").tables) == 1
    with pytest.raises(UnknownName, match=r"public\.c"):
        yard.verify(streams=("public.c",))
    with pytest.raises(UnknownName, match="3"):
        yard.verify(sink="3")
    with pytest.raises(InputError, match="nothing can be compared"):
        yard.verify(sink="2")
    yard.repair()
    assert yard.verify().is_equal


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_databases_behind_jdbc_drivers(kind, request, tmp_path, database):
    if kind == "postgres":
        url = "jdbc:" + database.replace("postgres@", "").replace("postgresql://", "postgresql://") + "?user=postgres"
        yard = request.getfixturevalue("postgres")(url=url)
        plain = Yard.sql
        yard.sql = lambda *statements: (setattr(yard, "url", database), plain(yard, *statements))  # type: ignore[method-assign]
    else:
        yard = request.getfixturevalue("sqlite")()
        yard.url = f"jdbc:sqlite:{tmp_path / 'yard.db'}"
        yard.__post_init__()
    fill(yard)
    yard.run()
    assert yard.verify().is_equal
    damage(yard)
    assert found(yard.verify()) == DAMAGED
    assert yard.repair(delete_extra=True).repaired[0].removed == 1
    assert yard.verify().is_equal
