"""Differences of every kind between a PostgreSQL table and its copy in the lake: found exactly, repaired exactly."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.verify.sql_table import PostgresTable, differences

pytestmark = pytest.mark.spark


@pytest.fixture
def items(database, tmp_path, spark, namespace) -> PostgresTable:
    items = PostgresTable(
        database, tmp_path, spark, f"{namespace}.items", {"table": "public.items", "cursor": "changed_at"}
    )
    items.sql(
        """CREATE TABLE items (id bigint PRIMARY KEY, name text, price numeric(12,2), weight double precision,
           flag boolean, day date, changed_at timestamptz NOT NULL DEFAULT clock_timestamp(), raw bytea)""",
        """INSERT INTO items SELECT n, CASE WHEN n % 7 > 0 THEN 'item ' || n END, n / 4.0, CASE WHEN n % 5 > 0 THEN n / 3.0 END,
           CASE WHEN n % 3 > 0 THEN n % 2 = 0 END, DATE '2026-01-01' + n, clock_timestamp(),
           CASE WHEN n % 4 > 0 THEN decode(lpad(to_hex(n), 8, '0'), 'hex') END FROM generate_series(1, 3000) n""",
    )
    items.run()
    return items


def test_a_table_that_is_as_its_source_is_equal(items: PostgresTable):
    verified = items.verify()
    (one,) = verified.tables
    assert verified.is_equal
    assert (one.source_rows, one.table_rows, one.waiting, one.rejected) == (3000, 3000, 0, 0)
    assert one.ranges > 1


def test_every_kind_of_difference_is_found_and_repaired_exactly(items: PostgresTable):
    items.lake("DELETE FROM {t} WHERE id IN (5, 1700)")
    items.lake("UPDATE {t} SET name = NULL WHERE id = 9")
    items.lake("UPDATE {t} SET weight = weight + 1e-9 WHERE id = 1001")
    items.lake("INSERT INTO {t} SELECT 90001, name, price, weight, flag, day, changed_at, raw FROM {t} WHERE id = 8")
    items.lake("INSERT INTO {t} SELECT * FROM {t} WHERE id = 77")
    expected = {"missing": [(5,), (1700,)], "different": [(9,), (77,), (1001,)], "extra": [(90001,)]}
    assert differences(items.verify()) == expected
    assert differences(items.verify(ranges=1)) == expected
    repaired = items.repair()
    assert [(one.landed, one.removed, one.unrepaired) for one in repaired.repaired] == [(5, 0, 0)]
    assert differences(items.verify()) == {"extra": [(90001,)]}
    again = items.repair(delete_extra=True)
    assert [(one.landed, one.removed) for one in again.repaired] == [(0, 1)]
    assert items.verify().is_equal
    assert items.lake("SELECT count(*), sum(id) FROM {t}") == [(3000, 3000 * 3001 // 2)]
    newest = items.history()[0]
    assert (newest.kind, newest.why) == ("repaired", f"verify of {items.table}: 1 extra")


def test_a_change_without_a_move_of_the_cursor_and_a_delete_are_told_apart(items: PostgresTable):
    items.run()  # once more, so that nothing is in flight below the mark
    items.sql("UPDATE items SET price = price + 1 WHERE id = 11", "DELETE FROM items WHERE id = 12")
    shown = differences(items.verify())
    assert shown.pop("extra") == [(12,)]
    assert shown in ({"different": [(11,)]}, {})  # above the low watermark the next window has it
    items.run()
    assert "missing" not in differences(items.verify())


def test_rows_that_no_window_has_brought_yet_are_not_judged(items: PostgresTable):
    items.sql(
        "INSERT INTO items (id, name) VALUES (5001, 'new')",
        "UPDATE items SET name = 'moved', changed_at = clock_timestamp() WHERE id IN (3, 4)",
    )
    verified = items.verify()
    assert verified.is_equal, differences(verified)
    assert verified.tables[0].waiting == 3
    assert verified.tables[0].table_rows == 2998


def test_a_repair_does_not_turn_back_what_moved_on(items: PostgresTable):
    items.lake("UPDATE {t} SET name = 'wrong' WHERE id IN (1, 2, 3)")
    items.lake("DELETE FROM {t} WHERE id = 4")

    def meanwhile(_) -> bool:
        items.sql(
            "UPDATE items SET name = 'newest', changed_at = clock_timestamp() WHERE id = 1",
            "DELETE FROM items WHERE id = 2",
        )
        assert items.run().rows == 1
        items.sql("UPDATE items SET name = 'to come', changed_at = clock_timestamp() WHERE id = 3")
        return True

    items.repair(meanwhile)
    rows = dict(items.lake("SELECT id, name FROM {t} WHERE id <= 4"))
    assert rows == {1: "newest", 2: "wrong", 3: "wrong", 4: "item 4"}
    items.run()
    assert differences(items.verify()) == {"extra": [(2,)]}


def test_extra_rows_are_removed_only_if_the_source_still_does_not_have_them(items: PostgresTable):
    items.sql("DELETE FROM items WHERE id IN (20, 21)")

    def meanwhile(_) -> bool:
        items.sql("INSERT INTO items (id, name) VALUES (20, 'back')")
        return True

    verified = items.repair(meanwhile, delete_extra=True)
    assert differences(verified) == {"extra": [(20,), (21,)]}
    assert verified.repaired[0].removed == 1
    items.run()
    assert items.verify().is_equal
    assert items.lake("SELECT id, name FROM {t} WHERE id IN (20, 21)") == [(20, "back")]


def test_a_row_that_cannot_be_kept_is_no_difference_and_is_never_removed(items: PostgresTable):
    items.run()
    items.sql("UPDATE items SET price = 'NaN', changed_at = clock_timestamp() WHERE id IN (30, 31)")
    items.run()
    verified = items.verify()
    assert verified.is_equal, differences(verified)
    assert verified.tables[0].rejected == 2
    items.lake("DELETE FROM {t} WHERE id = 32")
    items.repair(delete_extra=True)
    assert items.lake("SELECT count(*) FROM {t} WHERE id IN (30, 31, 32)") == [(3,)]


def test_a_column_that_the_table_does_not_have_yet_differs_where_it_has_values(items: PostgresTable):
    items.run()
    items.sql("ALTER TABLE items ADD COLUMN note text", "UPDATE items SET note = 'n' WHERE id = 40")
    items.run()
    shown = differences(items.verify())
    assert shown in ({}, {"different": [(40,)]})
    items.repair()
    assert items.verify().is_equal
    if shown:
        assert items.lake("SELECT note FROM {t} WHERE id = 40") == [("n",)]


def test_nothing_can_be_compared_before_anything_has_landed(database, tmp_path, spark, namespace):
    items = PostgresTable(database, tmp_path, spark, f"{namespace}.t", {"table": "public.items", "cursor": "id"})
    items.sql("CREATE TABLE items (id bigint PRIMARY KEY)")
    with pytest.raises(Exception, match="nothing has landed yet"):
        items.verify()


KEYS: dict[str, tuple[str, Callable[[int], str]]] = {
    "bigint": ("k bigint", lambda n: f"{n} * 1000000007::bigint"),
    "smallint": ("k smallint", lambda n: f"{n}"),
    "date": ("k date", lambda n: f"DATE '1999-12-01' + {n}"),
    "timestamp": ("k timestamp", lambda n: f"TIMESTAMP '2026-01-01 00:00:00.000001' + {n} * interval '1 hour'"),
    "timestamptz": ("k timestamptz", lambda n: f"TIMESTAMPTZ '2026-01-01 00:00:00.5+02' + {n} * interval '1 day'"),
    "numeric(9,3)": ("k numeric(9,3)", lambda n: f"{n} / 8.0"),
    "numeric(30,5)": ("k numeric(30,5)", lambda n: f"{n} * 10000000000000000000.125"),
    "text": ("k text", lambda n: f"'ключ ''\"' || {n}"),
    "uuid": ("k uuid", lambda n: f"md5({n}::text)::uuid"),
    "bytea": ("k bytea", lambda n: f"decode(md5({n}::text), 'hex')"),
    "boolean": ("k boolean", lambda n: f"{n} % 2 = 1"),
    "two": ("k bigint, k2 text", lambda n: f"{n} / 3, 'b' || {n} % 3"),
    "three": (
        "k date, k2 timestamptz, k3 text",
        lambda n: f"DATE '2026-01-01' + {n} / 9, TIMESTAMPTZ '2026-01-01+00' + {n} / 3 * interval '1 s', {n}::text",
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_every_type(name, database, tmp_path, spark, namespace):
    columns, value = KEYS[name]
    key = [part.split()[0] for part in columns.split(", ")]
    rows = 2 if name == "boolean" else 60
    items = PostgresTable(database, tmp_path, spark, f"{namespace}.t", {"table": "public.t", "cursor": "seq"})
    items.sql(
        f"CREATE TABLE t ({columns}, seq bigint NOT NULL, v text, PRIMARY KEY ({', '.join(key)}))",
        *(f"INSERT INTO t VALUES ({value(n)}, {n}, 'v' || {n})" for n in range(1, rows + 1)),
    )
    items.run()
    assert items.verify().is_equal
    missing, other = (1, 2) if name == "boolean" else (17, 33)
    items.lake(f"DELETE FROM {{t}} WHERE seq = {missing}")
    items.lake(f"UPDATE {{t}} SET v = NULL WHERE seq = {other}")
    verified = items.verify(ranges=5)
    assert verified.tables[0].counts == {"missing": 1, "different": 1, "extra": 0}
    items.sql("DELETE FROM t WHERE seq = 1" if name != "boolean" else "SELECT 1")
    repaired = items.repair(delete_extra=True)
    assert repaired.repaired[0].landed == 2
    assert repaired.repaired[0].removed == (0 if name == "boolean" else 1)
    assert items.verify().is_equal
    assert items.lake("SELECT count(*) FROM {t}") == [(rows - (name != "boolean"),)]
