"""The `postgres` source from end to end without Spark: copies, the log behind them, DDL, restarts, rewinds."""

import psycopg
import pytest

from headwater.model.errors import BadPosition, InputError, SourceChanged, UnknownName
from headwater.model.protocols.source import Claim
from headwater.sources.postgres.wal.windows import WalWindows
from tests.sources.postgres.follower import LEASE, following, source_table


@pytest.fixture
def sql(database):
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection.execute


ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, state text, amount numeric(12, 2))"


def test_a_table_is_copied_and_then_followed(sql, database):
    sql(ORDERS)
    sql("INSERT INTO orders SELECT n, 'new', n * 0.5 FROM generate_series(1, 100) AS n")
    with following(database, tables=["public.orders"]) as follower:
        follower.catch_up()
        assert follower.table("public.orders") == source_table(database, "orders", "id")
        assert [op for _, row in follower.events if (op := row["_op"]) != "r"] == ["t"]
        sql("UPDATE orders SET state = 'paid' WHERE id <= 10")
        sql("DELETE FROM orders WHERE id = 11")
        sql("UPDATE orders SET id = 1000 WHERE id = 12")
        sql("INSERT INTO orders VALUES (101, 'new', 1)")
        follower.catch_up()
        assert follower.table("public.orders") == source_table(database, "orders", "id")
        sql("TRUNCATE orders")
        sql("INSERT INTO orders VALUES (1, 'again', NULL)")
        follower.catch_up()
        assert follower.table("public.orders") == source_table(database, "orders", "id")
        assert not follower.cycle()


def test_the_slot_is_moved_to_the_mark_and_no_further(sql, database):
    sql(ORDERS)
    with following(database, tables=["public.orders"]) as follower:
        follower.catch_up()
        sql("INSERT INTO orders VALUES (1, 'a', 1)")
        follower.cycle(acknowledge=False)
        slot = follower.settings.slot
        at = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = %s"
        assert sql(at, [slot]).fetchone()[0] < follower.mark.lsn
        follower.source.acknowledge(follower.mark)
        assert sql(at, [slot]).fetchone()[0] == follower.mark.lsn


def test_a_process_that_comes_later_reads_the_very_same_window(sql, database):
    sql(ORDERS)
    sql("CREATE TABLE other (id int PRIMARY KEY, t text)")
    with following(database, tables=["public.*"]) as follower, following(database, tables=["public.*"]) as again:
        follower.catch_up()
        before = follower.mark
        sql("INSERT INTO orders SELECT n, 'x', n FROM generate_series(1, 50) AS n")
        sql("INSERT INTO other VALUES (1, 'y'); UPDATE other SET id = 2")
        follower.cycle(acknowledge=False)
        sql("DELETE FROM orders WHERE id < 10")
        window = follower.windows[-1]
        again.settings = follower.settings
        again.restart()
        again.mark = before
        again.land(window)
        changes = [event for event in follower.events if event[1]["_op"] not in "rt"]
        assert again.events == changes
        assert len(changes) == 53


def test_what_commits_while_tables_are_copied_comes_behind_the_copy(sql, database):
    sql(ORDERS)
    sql("INSERT INTO orders SELECT n, 'new', n FROM generate_series(1, 1000) AS n")
    with following(database, tables=["public.orders"]) as follower:
        plan = follower.source.plan(None, claim=Claim(LEASE, "run"))
        sql("UPDATE orders SET state = 'changed' WHERE id % 2 = 0")
        sql("DELETE FROM orders WHERE id % 10 = 0")
        follower.land(plan.window)
        assert {row["state"] for row in follower.table("public.orders")} == {"new"}
        follower.source.acknowledge(follower.mark)
        follower.catch_up()
        assert follower.table("public.orders") == source_table(database, "orders", "id")


def test_a_copy_that_ended_with_its_process_is_begun_anew(sql, database):
    sql(ORDERS)
    sql("INSERT INTO orders SELECT n, 'new', n FROM generate_series(1, 1000) AS n")
    with following(database, tables=["public.orders"]) as follower:
        window = follower.source.plan(None, claim=Claim(LEASE, "run")).window
        assert follower.source.abandoned(window) == ""
        follower.land(window)  # it landed, and the process died before the mark moved
        follower.mark = None
        follower.restart()
        sql("DELETE FROM orders WHERE id <= 500")
        assert "snapshot" in follower.source.abandoned(window)
        follower.catch_up()
        assert follower.table("public.orders") == source_table(database, "orders", "id")


def test_a_large_table_is_copied_in_several_windows_while_others_go_on(sql, database):
    sql(ORDERS)
    sql("CREATE TABLE big (id bigint PRIMARY KEY, pad text)")
    sql("INSERT INTO big SELECT n, repeat('x', 1000) FROM generate_series(1, 2000) AS n")
    with following(database, tables=["public.orders"], copy_bytes=300_000) as follower:
        follower.catch_up()
        follower.settings = follower.settings.model_copy(update={"tables": ["public.orders", "public.big"]})
        follower.restart()
        kinds = []
        for number in range(40):
            sql("INSERT INTO orders VALUES (%s, 'x', 1)", [number])
            sql("UPDATE big SET pad = 'changed' WHERE id = %s", [number * 50])
            before = follower.mark.lsn
            if not follower.cycle():
                break
            kinds.append(follower.mark.lsn > before)
            if all(seen.copied_to is None and seen.landed is None for seen in follower.mark.streams.values()):
                break
        assert kinds[:6] == [False, True, False, True, False, True]
        follower.catch_up()
        assert follower.table("public.big") == source_table(database, "big", "id")
        assert follower.table("public.orders") == source_table(database, "orders", "id")


def test_a_table_that_matches_later_is_copied_and_caught_up(sql, database):
    sql(ORDERS)
    with following(database, tables=["public.*"]) as follower:
        follower.catch_up()
        sql("CREATE TABLE late (id int PRIMARY KEY, t text)")
        sql("INSERT INTO late SELECT n, 'x' FROM generate_series(1, 10) AS n")
        follower.restart()
        sql("INSERT INTO orders VALUES (1, 'a', 1)")
        follower.catch_up()
        sql("UPDATE late SET t = 'y' WHERE id = 1")
        follower.catch_up()
        assert follower.table("public.late") == source_table(database, "late", "id")
        assert follower.table("public.orders") == source_table(database, "orders", "id")


@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        ("ALTER TABLE orders ADD tier text", ""),
        ("ALTER TABLE orders ADD tier text DEFAULT 'gold'", "added with a value"),
        ("ALTER TABLE orders RENAME state TO phase", "state is now called phase"),
        ("ALTER TABLE orders ALTER amount TYPE text USING 'a' || amount", "amount got another type"),
        ("ALTER TABLE orders DROP state", ""),
        ("ALTER TABLE orders DROP state, ADD state text DEFAULT 'back'", "dropped and added again"),
        ("ALTER TABLE orders ALTER amount TYPE numeric(14, 2)", "amount got another type"),
    ],
)
@pytest.mark.parametrize("rows_follow", [True, False], ids=["with rows behind it", "alone"])
def test_ddl_is_followed(sql, database, ddl, why, rows_follow):
    sql(ORDERS)
    sql("INSERT INTO orders SELECT n, 'new', n FROM generate_series(1, 20) AS n")
    with following(database, tables=["public.orders"], catalog_seconds=0) as follower:
        follower.catch_up()
        with_row = "INSERT INTO orders (id) VALUES (100); " if rows_follow else ""
        sql(f"BEGIN; INSERT INTO orders (id) VALUES (99); {ddl}; {with_row} COMMIT")
        follower.catch_up()
        expected = source_table(database, "orders", "id")
        home = (
            {"amount": "amount__string"} if "TYPE text" in ddl else {}
        )  # values of another kind live beside the old ones
        rows = follower.table("public.orders")
        assert [{name: row.get(home.get(name, name)) for name in expected[0]} for row in rows] == expected
        assert any(why in warning for warning in follower.warnings) if why else not follower.warnings


def test_a_renamed_table_keeps_its_stream(sql, database):
    sql(ORDERS)
    with following(database, tables=["public.orders"]) as follower:
        follower.catch_up()
        sql("ALTER TABLE orders RENAME TO purchases")
        sql("INSERT INTO purchases VALUES (1, 'a', 1)")
        follower.catch_up()
        assert follower.table("public.orders") == source_table(database, "purchases", "id")
        assert any("purchases" in warning for warning in follower.warnings)


@pytest.mark.parametrize("together", [True, False], ids=["in one transaction", "apart"])
def test_a_key_that_changes_is_followed(sql, database, together):
    sql("CREATE TABLE orders (id bigint, code int NOT NULL, state text, CONSTRAINT pk PRIMARY KEY (id))")
    sql("INSERT INTO orders SELECT n, n + 1000, 'new' FROM generate_series(1, 20) AS n")
    with following(database, tables=["public.orders"]) as follower:
        follower.catch_up()
        steps = [
            "UPDATE orders SET state = 'a' WHERE id = 1",
            "DELETE FROM orders WHERE id = 2",
            "ALTER TABLE orders DROP CONSTRAINT pk, ADD CONSTRAINT pk2 PRIMARY KEY (code)",
            "UPDATE orders SET state = 'b' WHERE code = 1003",
            "DELETE FROM orders WHERE code = 1004",
        ]
        for step in ["; ".join(["BEGIN", *steps, "COMMIT"])] if together else steps:
            sql(step)
        follower.catch_up()
        sql("UPDATE orders SET state = 'c' WHERE code = 1005")
        follower.catch_up()
        assert follower.mark.streams["public.orders"].key == ("code",)
        alive = {row["code"]: row["state"] for row in follower.table("public.orders") if row["state"]}
        expected = {row["code"]: row["state"] for row in source_table(database, "orders", "id")}
        assert expected.items() <= alive.items()


def test_partitions_attached_and_detached_with_rows_are_followed(sql, database):
    sql("CREATE TABLE orders (id bigint, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)")
    sql("CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')")
    sql("INSERT INTO orders VALUES (1, '2026-01-05')")
    with following(database, tables=["public.orders"], catalog_seconds=0) as follower:
        follower.catch_up()
        sql("CREATE TABLE orders_2 PARTITION OF orders FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')")
        sql("INSERT INTO orders VALUES (2, '2026-02-05')")
        sql("UPDATE orders SET day = '2026-02-06' WHERE id = 1")
        follower.catch_up()
        assert follower.table("public.orders") == source_table(database, "orders", "id,day")
        assert not any("copying the table again" in warning for warning in follower.warnings)
        sql("CREATE TABLE orders_3 (LIKE orders INCLUDING ALL)")
        sql("INSERT INTO orders_3 VALUES (3, '2026-03-05')")
        sql("ALTER TABLE orders ATTACH PARTITION orders_3 FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')")
        sql("ALTER TABLE orders DETACH PARTITION orders_1")
        follower.catch_up()
        assert follower.table("public.orders") == source_table(database, "orders", "id,day")


def test_tables_that_cannot_work_are_refused_by_name_before_anything_is_published(sql, database):
    sql("CREATE TABLE keyless (a int)")
    sql(ORDERS)
    with following(database, tables=["public.*"]) as follower:
        with pytest.raises(InputError, match=r"public\.keyless: it has no primary key"):
            follower.cycle()
        assert sql("SELECT count(*) FROM pg_publication").fetchone() == (0,)
        assert sql(
            "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", [follower.settings.slot]
        ).fetchone() == (0,)
    sql("CREATE UNLOGGED TABLE quick (id int PRIMARY KEY)")
    sql("ALTER TABLE keyless REPLICA IDENTITY FULL")
    with following(database, tables=["public.*"]) as follower, pytest.raises(InputError, match=r"public\.quick"):
        follower.cycle()


def test_columns_and_rows_can_be_left_out(sql, database):
    sql("CREATE TABLE orders (id bigint PRIMARY KEY, state text, secret text)")
    sql(
        "INSERT INTO orders SELECT n, CASE WHEN n % 2 = 0 THEN 'draft' ELSE 'done' END, 's' FROM generate_series(1, 10) AS n"
    )
    settings = {"columns": {"public.orders": ["id", "state"]}, "where": {"public.orders": "state <> 'draft'"}}
    with following(database, tables=["public.orders"], **settings) as follower:
        with pytest.raises(InputError, match=r"where uses 'state'"):
            follower.cycle()
        sql("ALTER TABLE orders REPLICA IDENTITY FULL")
        with pytest.raises(InputError, match=r"leaves out 'secret'"):
            follower.cycle()
        assert sql("SELECT count(*) FROM pg_publication").fetchone() == (0,)
    sql("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, state), REPLICA IDENTITY DEFAULT")
    with following(database, tables=["public.orders"], **settings) as follower:
        follower.catch_up()
        sql("INSERT INTO orders VALUES (11, 'done', 's'), (12, 'draft', 's')")
        sql("UPDATE orders SET state = 'done' WHERE id = 2")
        follower.catch_up()
        assert follower.table("public.orders") == [
            {"id": n, "state": "done"} for n in sorted([1, 2, 3, 5, 7, 9, 11], key=lambda n: str((n, "done")))
        ]


def test_a_rewind_to_snapshot_copies_again_and_removes_what_was_deleted(sql, database):
    sql(ORDERS)
    sql("CREATE TABLE other (id int PRIMARY KEY, t text)")
    sql("INSERT INTO orders SELECT n, 'new', n FROM generate_series(1, 20) AS n")
    with following(database, tables=["public.*"]) as follower:
        follower.catch_up()
        follower.rows["public.orders"][(77,)] = (1, {"id": 77, "state": "never was", "amount": None})
        follower.mark = follower.source.position("snapshot public.orders", follower.mark)
        follower.catch_up()
        assert follower.table("public.orders") == source_table(database, "orders", "id")
        assert sum(row["_op"] == "t" for stream, row in follower.events if stream == "public.other") == 1
        with pytest.raises(UnknownName, match=r"public\.ordres"):
            follower.source.position("snapshot public.ordres", follower.mark)
        with pytest.raises(BadPosition, match="16B3748"):
            follower.source.position("yesterday", follower.mark)


def test_a_slot_that_was_dropped_is_noticed_and_a_new_copy_is_the_way_out(sql, database):
    sql(ORDERS)
    sql("INSERT INTO orders SELECT n, 'new', n FROM generate_series(1, 20) AS n")
    with following(database, tables=["public.orders"]) as follower:
        follower.catch_up()
        sql("SELECT pg_drop_replication_slot(%s)", [follower.settings.slot])
        sql("DELETE FROM orders WHERE id = 1")
        landed = len(follower.events)
        with pytest.raises(SourceChanged, match=r"gone.*\n.*rewind NAME --to snapshot"):
            follower.cycle()
        assert len(follower.events) == landed
        follower.mark = follower.source.position("snapshot", follower.mark)
        follower.catch_up()
        assert follower.table("public.orders") == source_table(database, "orders", "id")
        sql("DELETE FROM orders WHERE id = 2")
        follower.catch_up()
        assert follower.table("public.orders") == source_table(database, "orders", "id")


def test_a_label_ends_its_window(sql, database):
    sql(ORDERS)
    with following(database, tables=["public.orders"]) as follower:
        follower.catch_up()
        sql("INSERT INTO orders VALUES (1, 'before', 1)")
        follower.source.label("month-end")
        sql("INSERT INTO orders VALUES (2, 'after', 1)")
        assert follower.cycle()
        assert follower.mark.labels == ("month-end",)
        assert [row["id"] for row in follower.table("public.orders")] == [1]
        follower.catch_up()
        assert follower.mark.labels == ()
        assert [row["id"] for row in follower.table("public.orders")] == [1, 2]


def test_ddl_that_slips_in_before_a_label_is_seen(sql, database, monkeypatch):
    """Between the look at the catalog and the peek at the log."""
    sql(ORDERS)
    sql("INSERT INTO orders VALUES (1, 'a', 1)")
    with following(database, tables=["public.orders"]) as follower:
        follower.catch_up()
        sql("INSERT INTO orders VALUES (2, 'b', 1)")
        peek, slips = WalWindows.following, iter(["ALTER TABLE orders ADD tier text DEFAULT 'gold'"])

        def late(*values):
            for ddl in slips:
                sql(ddl)
                follower.source.label("month-end")
            return peek(*values)

        monkeypatch.setattr(WalWindows, "following", late)
        assert follower.cycle()
        assert follower.mark.labels == ("month-end",)
        assert "added with a value" in follower.mark.streams["public.orders"].stale
        follower.catch_up()
        assert follower.table("public.orders") == source_table(database, "orders", "id")


@pytest.mark.parametrize("changed", [True, False], ids=["with a changed row", "unseen in the WAL"])
@pytest.mark.parametrize("window", ["1 GB", "1 kB"])
def test_a_column_that_came_and_went_around_a_label_is_copied_again(sql, database, changed, window):
    """Its rows may have had a value when the label was written, and nothing shows it any more."""
    sql(ORDERS)
    sql("INSERT INTO orders VALUES (1, 'a', 1)")
    with following(database, tables=["public.orders"], window=window) as follower:
        follower.catch_up()
        sql("ALTER TABLE orders ADD tier text DEFAULT 'gold'")
        if changed:
            sql("INSERT INTO orders SELECT n, repeat('b', 100) FROM generate_series(2, 100) AS n")
        follower.source.label("month-end")
        sql("ALTER TABLE orders DROP tier")
        while not follower.mark.labels:
            assert follower.cycle()
        assert "added and dropped again" in follower.mark.streams["public.orders"].stale
        follower.catch_up()
        assert not follower.mark.streams["public.orders"].stale


def test_a_column_that_is_dropped_after_a_label_is_no_reason_to_copy(sql, database):
    sql(ORDERS)
    with following(database, tables=["public.orders"]) as follower:
        follower.catch_up()
        sql("ALTER TABLE orders ADD tier text")
        sql("INSERT INTO orders (id, tier) VALUES (1, 'gold')")
        follower.catch_up()
        follower.source.label("month-end")
        sql("ALTER TABLE orders DROP tier")
        assert follower.cycle()
        assert follower.mark.labels == ("month-end",)
        assert not follower.mark.streams["public.orders"].stale


def test_a_window_ends_where_somebody_compares(sql, database):
    sql(ORDERS)
    with (
        following(database, tables=["public.orders"]) as follower,
        following(database, tables=["public.orders"]) as other,
    ):
        follower.catch_up()
        other.settings = follower.settings
        other.restart()
        sql("INSERT INTO orders VALUES (1, 'before', 1)")
        with other.source.comparison_point() as point:
            sql("INSERT INTO orders VALUES (2, 'after', 1)")
            assert point.standing(follower.mark) == "before"
            follower.cycle()
            assert point.standing(follower.mark) == "here"
            (comparison,) = point.compared(follower.mark)
            there = [
                row["id"] for split in comparison.rows.splits for batch in split.read() for row in batch.to_pylist()
            ]
            assert there == [row["id"] for row in follower.table("public.orders")] == [1]
            follower.catch_up()
            assert point.standing(follower.mark) == "past"
            assert point.compared(follower.mark)


def test_quiet_polls_ask_little_and_find_nothing(sql, database):
    sql(ORDERS)
    with following(database, tables=["public.orders"]) as follower:
        follower.catch_up()
        for _ in range(3):
            assert not follower.cycle()


def test_a_log_that_grows_elsewhere_does_not_hold_the_slot_back(sql, database):
    """A heartbeat gives it a transaction to move to; less than a file of the log is not worth a window."""
    sql(ORDERS)
    sql("CREATE TABLE elsewhere (a int, pad text)")
    with following(database, tables=["public.orders"]) as follower:
        follower.catch_up()
        mark = follower.mark
        sql("INSERT INTO elsewhere VALUES (1, 'x')")
        assert not follower.cycle()
        sql("INSERT INTO elsewhere SELECT n, repeat('x', 1000) FROM generate_series(1, 25000) AS n")
        assert not follower.cycle()
        assert follower.cycle()
        assert follower.mark.lsn - mark.lsn > 16 << 20
        at = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = %s"
        assert sql(at, [follower.settings.slot]).fetchone()[0] == follower.mark.lsn
