"""The numbered rules of what a slot's messages mean, each on a real server."""

from __future__ import annotations

import datetime as dt
import json

import psycopg
import pytest

from headwater.model.position.lsn import lsn_text
from headwater.model.rows import position
from headwater.sources.postgres.catalog import Commit
from headwater.sources.postgres.wal.reader import TableRequest
from tests.sources.postgres.wal.slot_wal import slot_wal

BIG = "repeat('{}', 4000)"
TOAST = "ALTER TABLE t ALTER big SET STORAGE EXTERNAL"
TABLE = f"CREATE TABLE t (id bigint PRIMARY KEY, name text, big text); {TOAST}"
KEY = {"t": ("id",)}


@pytest.fixture
def log(database):
    with slot_wal(database, TABLE) as slot:
        yield slot


def commits(log) -> list[Commit]:
    """All that the slot holds, found from the end by looking at ever less of it."""
    rows, last = [], log.read(KEY).wal.last
    while last is not None:
        rows.insert(0, last)
        last = log.read(KEY, upto=last.lsn).wal.last
    return rows


def test_inserts_updates_and_deletes_are_rows_with_what_is_known_of_them(log):
    log.sql("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    log.sql("UPDATE t SET name = 'b' WHERE id = 1")
    log.sql("DELETE FROM t WHERE id = 2")
    read = log.read(KEY)
    assert read.short("t", "id", "name", "big") == [
        ("c", 1, "a", None), ("c", 2, None, None), ("u", 1, "b", None), ("d", 2, None, None),
    ]  # fmt: skip
    first = read.rows("t")[0]
    assert (first["_missing"], first["_old_key"], first["_row"]) == (None, None, 0)
    assert abs(first["_source_time"] - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)
    assert int(first["_transaction"]) > 0
    assert (read.wal.transactions, len(read.wal.segments), read.rejects) == (3, 1, [])


def test_changes_are_ordered_by_commit_and_number_not_by_the_place_of_their_messages(log, database):
    """Rule 1: the transaction that wrote first commits last; rows of a COPY share one place."""
    with psycopg.connect(database) as early:
        early.execute("INSERT INTO t VALUES (1, 'early')")
        log.sql("INSERT INTO t VALUES (2, 'late')")
        early.execute("INSERT INTO t VALUES (3, 'early again')")
        with early.cursor().copy("COPY t (id) FROM STDIN") as copy:
            copy.write("4\n5\n")
    read = log.read(KEY)
    assert read.short("t", "id") == [("c", 2), ("c", 1), ("c", 3), ("c", 4), ("c", 5)]
    commit = read.wal.last
    assert [row["_position"] for row in read.rows("t")][1:] == [position(commit.lsn, 4 * n + 3) for n in (1, 2, 3, 4)]


def test_the_end_of_a_commit_is_where_the_slot_may_be_moved_to(log):
    """Rule 2: what is behind it is still there, what is before it is gone."""
    log.sql("INSERT INTO t VALUES (1)")
    log.sql("INSERT INTO t VALUES (2)")
    first = log.read(KEY, changes=1).wal
    assert first.transactions == 1
    log.sql("SELECT pg_replication_slot_advance(%s, %s)", [log.slot, lsn_text(first.last.end)])
    assert log.read(KEY).short("t", "id") == [("c", 2)]


def test_a_peek_gives_the_same_rows_again(log):
    log.sql("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 100) n; UPDATE t SET id = -id WHERE id < 50")
    once, again = log.read(KEY), log.read(KEY)
    assert once.tables == again.tables
    assert once.wal.last == again.wal.last
    assert log.read(KEY, upto=once.wal.last.end).tables == once.tables


def test_unchanged_toast_is_named_and_not_told(log):
    """Rule 3."""
    log.sql(f"INSERT INTO t VALUES (1, 'a', {BIG.format('x')})")
    log.sql("UPDATE t SET name = 'b'")
    log.sql(f"UPDATE t SET big = {BIG.format('y')}")
    assert [(row["big"] and row["big"][0], row["_missing"]) for row in log.read(KEY).rows("t")] == [
        ("x", None), (None, ["big"]), ("y", None),
    ]  # fmt: skip


def test_unchanged_toast_is_taken_from_the_full_old_row(log):
    """Rule 3, with REPLICA IDENTITY FULL."""
    log.sql("ALTER TABLE t REPLICA IDENTITY FULL")
    log.sql(f"INSERT INTO t VALUES (1, 'a', {BIG.format('x')})")
    log.sql("UPDATE t SET name = 'b'")
    log.sql("UPDATE t SET id = 2")
    rows = log.read(KEY).rows("t")
    assert [(row["_op"], row["id"], row["big"], row["_missing"]) for row in rows] == [
        ("c", 1, "x" * 4000, None), ("u", 1, "x" * 4000, None), ("d", 1, None, None), ("c", 2, "x" * 4000, None),
    ]  # fmt: skip


def test_a_change_of_key_is_a_delete_and_an_insert_that_knows_the_former_key(log):
    """Rule 4, and rule 3 in it: the value that is not told stands under the former key."""
    log.sql(f"INSERT INTO t VALUES (1, 'a', {BIG.format('x')})")
    log.sql("UPDATE t SET id = 7, name = 'b'")
    created, deleted, moved = log.read(KEY).rows("t")
    assert (created["_op"], deleted["_op"], moved["_op"]) == ("c", "d", "c")
    assert (deleted["id"], deleted["name"], deleted["_old_key"]) == (1, None, None)
    assert (moved["id"], moved["name"], moved["_missing"], moved["_old_key"]) == (7, "b", ["big"], "[1]")
    assert moved["_position"] == deleted["_position"]
    assert (deleted["_row"], moved["_row"]) == (1, 0)
    assert moved["_position"] % 10**19 == 4 * 1 + 3


def test_a_full_old_row_with_the_same_key_is_no_change_of_key(log):
    """Rule 4: under FULL every update tells an old row."""
    log.sql("ALTER TABLE t REPLICA IDENTITY FULL")
    log.sql("INSERT INTO t VALUES (1, 'a'), (2, 'a')")
    log.sql("UPDATE t SET name = 'b' WHERE id = 1; UPDATE t SET id = 3 WHERE id = 2; DELETE FROM t WHERE id = 3")
    assert log.read(KEY).short("t", "id", "name", "_old_key") == [
        ("c", 1, "a", None), ("c", 2, "a", None), ("u", 1, "b", None),
        ("d", 2, None, None), ("c", 3, "a", "[2]"), ("d", 3, None, None),
    ]  # fmt: skip


def test_a_key_in_toast_is_told_with_every_update_and_did_not_change(database):
    key = "(SELECT string_agg(sha256(n::text::bytea)::text, '') FROM generate_series(1, 38) n)"
    ddl = "CREATE TABLE t (id text PRIMARY KEY, name text); ALTER TABLE t ALTER id SET STORAGE EXTERNAL"
    with slot_wal(database, ddl) as log:
        log.sql(f"INSERT INTO t VALUES ({key}, 'a')")
        log.sql("UPDATE t SET name = 'b'")
        (text,) = log.sql(f"SELECT {key}").fetchone()
        assert 2048 < len(text) < 2700
        assert any(message[:1] == b"U" and message[5:6] == b"K" for message in log.messages())
        assert log.read(KEY).short("t", "id", "name", "_missing") == [("c", text, "a", None), ("u", text, "b", None)]


@pytest.mark.parametrize(
    ("kind", "one", "other", "expected"),
    [
        ("date", "2026-01-31", "2026-02-01", "2026-01-31"),
        ("timestamptz", "2026-01-31 12:00:00+02", "2026-02-01 00:00:00Z", "2026-01-31T10:00:00Z"),
        ("numeric(8,2)", "1.50", "2", "1.50"),
        ("text", 'é "quoted"\\', "b", 'é "quoted"\\'),
        ("bool", "true", "false", True),
        ("bytea", "\\x00ff", "\\x01", "AP8="),
        ("uuid", "0190163d-8694-739b-aea5-966c26f8ad91", "0190163d-8694-739b-aea5-966c26f8ad92",
         "0190163d-8694-739b-aea5-966c26f8ad91"),
    ],
)  # fmt: skip
def test_a_former_key_of_several_columns_of_any_type(database, kind, one, other, expected):
    with slot_wal(database, f"CREATE TABLE t (v text, b {kind}, a int, PRIMARY KEY (a, b))") as log:
        log.sql("INSERT INTO t VALUES ('x', %s, 5)", [one])
        log.sql("UPDATE t SET b = %s", [other])
        assert json.loads(log.read({"t": ("a", "b")}).rows("t")[-1]["_old_key"]) == [5, expected]


def test_a_truncate_is_one_row_for_each_table(database):
    """Rule 5: one message, several tables, flags."""
    tables = "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY REFERENCES a, n serial); CREATE TABLE c (id int)"
    with slot_wal(database, tables) as log:
        log.sql("INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)")
        log.sql(
            "BEGIN; INSERT INTO c VALUES (1); TRUNCATE a RESTART IDENTITY CASCADE; INSERT INTO a VALUES (2); COMMIT"
        )
        read = log.read({"a": ("id",), "b": ("id",)})
        assert read.short("a", "id") == [("c", 1), ("t", None), ("c", 2)]
        assert read.short("b", "id", "n") == [("c", 1, 1), ("t", None, None)]
        commit = read.wal.last
        assert [row["_position"] for row in read.rows("a")[1:]] == [
            position(commit.lsn, n) for n in (4 * 2 + 3, 4 * 3 + 3)
        ]
        assert read.rows("b")[-1]["_position"] == position(commit.lsn, 4 * 2 + 3)
        assert all(segment.truncates for segment in read.wal.segments)


def test_a_table_that_changes_in_mid_transaction_has_two_segments(log):
    """Rule 6: each row is read by the layout that held when it was written."""
    log.sql("""
        BEGIN; INSERT INTO t VALUES (1, 'a');
        ALTER TABLE t ADD COLUMN n int DEFAULT 5; INSERT INTO t VALUES (2, 'b', NULL, 6);
        ALTER TABLE t DROP COLUMN name; INSERT INTO t VALUES (3, 'big', 7); COMMIT;
        INSERT INTO t VALUES (4, 'big', 8)""")
    read = log.read(KEY)
    assert [(table.schema.names[:-7], table.num_rows) for table in read.tables["t"]] == [
        (["id", "name", "big"], 1), (["id", "name", "big", "n"], 1), (["id", "big", "n"], 2),
    ]  # fmt: skip
    assert read.short("t", "id", "name", "n") == [
        ("c", 1, "a", None),
        ("c", 2, "b", 6),
        ("c", 3, None, 7),
        ("c", 4, None, 8),
    ]


def test_a_relation_that_is_told_again_and_is_the_same_cuts_nothing(log):
    """Rule 6: ANALYZE or a new index make the server tell it again."""
    log.sql("INSERT INTO t VALUES (1); CREATE INDEX ON t (name)")
    log.sql("INSERT INTO t VALUES (2); ALTER TABLE t ADD CHECK (id > 0); INSERT INTO t VALUES (3)")
    assert sum(message[:1] == b"R" for message in log.messages()) > 1
    (table,) = log.read(KEY).tables["t"]
    assert table.num_rows == 3


def test_a_column_that_gets_another_type_has_the_values_of_its_time(log):
    log.sql("INSERT INTO t VALUES (1, '12')")
    log.sql("ALTER TABLE t ALTER name TYPE numeric(6,2) USING name::numeric")
    log.sql("INSERT INTO t VALUES (2, 3.5)")
    before, after = log.read(KEY).tables["t"]
    assert (str(before.schema.field("name").type), str(after.schema.field("name").type)) == (
        "string",
        "decimal128(6, 2)",
    )
    assert (before["name"].to_pylist(), [str(value) for value in after["name"].to_pylist()]) == (["12"], ["3.50"])


def test_without_a_key_deletes_tell_the_whole_row(log):
    """Rule 8: only a log of changes can be made of such a table."""
    log.sql("CREATE TABLE k (a int, b text); ALTER TABLE k REPLICA IDENTITY FULL")
    log.sql("INSERT INTO k VALUES (1, 'x'), (1, 'x'); UPDATE k SET b = 'y'; DELETE FROM k")
    assert log.read({"k": ()}).short("k", "a", "b") == [
        ("c", 1, "x"), ("c", 1, "x"), ("u", 1, "y"), ("u", 1, "y"), ("d", 1, "y"), ("d", 1, "y"),
    ]  # fmt: skip


def test_partitions_come_as_their_root_and_a_row_that_moves_is_deleted_and_inserted(database):
    """Rule 9."""
    tables = """
        CREATE TABLE r (id int, part int, v text, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
        CREATE TABLE r1 PARTITION OF r FOR VALUES IN (1); CREATE TABLE r2 PARTITION OF r FOR VALUES IN (2)"""
    with slot_wal(database, tables, options="WITH (publish_via_partition_root = true)") as log:
        log.sql("INSERT INTO r VALUES (1, 1, 'a')")
        log.sql("UPDATE r SET part = 2")
        log.sql("TRUNCATE r")
        read = log.read({"r": ("id", "part")})
        assert read.short("r", "id", "part", "v") == [
            ("c", 1, 1, "a"), ("d", 1, 1, None), ("c", 1, 2, "a"), ("t", None, None, None),
        ]  # fmt: skip
        assert len(read.wal.segments) == 1


def test_other_tables_rows_are_skipped_and_counted(log):
    """A replay that reads more tables, or fewer, numbers alike."""
    log.sql("CREATE TABLE other (id int PRIMARY KEY)")
    log.sql(
        "BEGIN; INSERT INTO other VALUES (1), (2); INSERT INTO t VALUES (1); DELETE FROM other; INSERT INTO t VALUES (2); COMMIT"
    )
    alone, both = log.read(KEY), log.read({**KEY, "other": ("id",)})
    assert [row["_position"] % 10**19 for row in alone.rows("t")] == [4 * 3 + 3, 4 * 6 + 3]
    assert alone.tables["t"] == both.tables["t"]
    assert both.short("other", "id") == [("c", 1), ("c", 2), ("d", 1), ("d", 2)]


def test_what_was_rolled_back_is_never_seen(log):
    log.sql("""
        BEGIN; INSERT INTO t VALUES (1); SAVEPOINT s; INSERT INTO t VALUES (2); ROLLBACK TO s;
        INSERT INTO t VALUES (3); COMMIT""")
    log.sql("BEGIN; INSERT INTO t VALUES (4); ROLLBACK")
    assert log.read(KEY).short("t", "id") == [("c", 1), ("c", 3)]


def test_a_prepared_transaction_counts_when_it_is_committed(log):
    log.sql("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'first'")
    log.sql("BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION 'second'")
    log.sql("INSERT INTO t VALUES (3)")
    assert log.read(KEY).short("t", "id") == [("c", 3)]
    log.sql("COMMIT PREPARED 'second'")
    log.sql("ROLLBACK PREPARED 'first'")
    assert log.read(KEY).short("t", "id") == [("c", 3), ("c", 2)]


def test_a_table_begins_where_its_copy_ended(log):
    """Transactions that committed before a table's copy are in the copy; those at its place or later are not."""
    log.sql("CREATE TABLE other (id int PRIMARY KEY)")
    for number in (1, 2, 3):
        log.sql(f"BEGIN; INSERT INTO t VALUES ({number}); INSERT INTO other VALUES ({number}); COMMIT")
    _, second, _ = commits(log)
    orders = {
        log.oid("t"): TableRequest("t", second.lsn, 0, ("id",)),
        log.oid("other"): TableRequest("other", 0, second.end, ("id",)),
    }
    read = log.read(orders, after=0)
    assert read.short("t", "id") == [("c", 2), ("c", 3)]
    assert read.short("other", "id") == [("c", 3)]


def test_transactions_that_are_known_count_and_bring_nothing(log):
    """A slot that fell back shows them again."""
    for number in (1, 2, 3):
        log.sql(
            f"BEGIN; INSERT INTO t VALUES ({number}); SELECT pg_logical_emit_message(true, 'headwater', '{number}'); COMMIT"
        )
    wal = log.read(KEY).wal
    second = log.read(KEY, upto=wal.last.lsn).wal.last
    read = log.read(KEY, after=second.end)
    assert read.short("t", "id") == [("c", 3)]
    assert [note.content for note in read.wal.notes] == [b"3"]
    assert (read.wal.first, read.wal.last, read.wal.transactions) == (wal.first, wal.last, 3)
    assert (read.wal.last_known, read.wal.first_new) == (second, wal.last)


def test_a_read_ends_behind_the_transaction_with_a_note_that_says_so(log):
    log.sql("INSERT INTO t VALUES (1)")
    log.sql(
        "BEGIN; INSERT INTO t VALUES (2); SELECT pg_logical_emit_message(true, 'headwater', 'stop'); INSERT INTO t VALUES (3); COMMIT"
    )
    log.sql("INSERT INTO t VALUES (4); SELECT pg_logical_emit_message(true, 'headwater', 'stop')")
    read = log.read(KEY, stop=lambda note: note.content == b"stop")
    assert read.short("t", "id") == [("c", 1), ("c", 2), ("c", 3)]
    (note,) = read.wal.notes
    assert (note.prefix, note.content, note.commit) == ("headwater", b"stop", read.wal.last)
    further = log.read(KEY, after=read.wal.last.end, stop=lambda note: note.content == b"stop")
    assert further.short("t", "id") == [("c", 4)]


def test_only_notes_to_us_that_belong_to_a_transaction_are_kept(log):
    log.sql("SELECT pg_logical_emit_message(false, 'headwater', 'at once')")
    log.sql(
        "SELECT pg_logical_emit_message(true, 'headwaters', 'somebody else'), pg_logical_emit_message(true, 'outbox', 'x')"
    )
    log.sql("SELECT pg_logical_emit_message(true, 'headwater', '\\x00ff'::bytea)")
    read = log.read(KEY)
    assert [(note.prefix, note.content) for note in read.wal.notes] == [("headwater", b"\0\xff")]
    assert read.wal.notes[0].commit == read.wal.last


def test_a_read_up_to_a_place_has_nothing_that_committed_there_or_later(log):
    for number in range(1, 6):
        log.sql(f"INSERT INTO t VALUES ({number})")
    seen = commits(log)
    assert len(seen) == 5
    for count, commit in enumerate(seen):
        assert len(log.read(KEY, upto=commit.lsn).rows("t")) == count
        assert len(log.read(KEY, upto=commit.end).rows("t")) == count + 1


def test_an_empty_log_is_an_empty_read(log):
    wal = log.read(KEY).wal
    assert (wal.first, wal.last, wal.transactions, wal.segments, wal.notes) == (None, None, 0, (), ())


def test_a_log_of_a_new_era_comes_after_all_of_the_old_one(log):
    log.sql("INSERT INTO t VALUES (1)")
    read = log.read(KEY, era=1 << 60)
    assert read.rows("t")[0]["_position"] == position((1 << 60) + read.wal.last.lsn, 7)


def test_a_delete_that_does_not_tell_the_key_is_set_aside(log):
    """The stream's key is not what the table is identified by: nobody can say which row is gone."""
    log.sql("INSERT INTO t VALUES (1, 'a'); DELETE FROM t")
    read = log.read({"t": ("name",)})
    assert read.short("t", "id", "name") == [("c", 1, "a")]
    (reject,) = read.rejects
    assert reject.reason == "the change lacks name, which is of the key"
    assert json.loads(reject.payload) == {"id": None, "name": None, "big": None}


def test_generated_and_dropped_columns_are_as_the_log_tells(log):
    log.sql(
        "CREATE TABLE g (gone text, id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED); ALTER TABLE g DROP COLUMN gone"
    )
    log.sql("INSERT INTO g VALUES (4)")
    assert log.read({"g": ("id",)}).short("g", "id") == [("c", 4)]
    assert log.read({"g": ("id",)}).tables["g"][0].schema.names[:-7] == ["id"]


def test_columns_may_be_called_like_those_beside_them(log):
    log.sql('CREATE TABLE n (id int PRIMARY KEY, _op text, "_position" int, " é""\'" text, _row text)')
    log.sql("INSERT INTO n VALUES (1, 'mine', 2, 'x', 'r')")
    (table,) = log.read({"n": ("id",)}).tables["n"]
    assert [column.to_pylist() for column in table.columns[:5]] == [[1], ["mine"], [2], ["x"], ["r"]]
    assert table.column(5).to_pylist() == ["c"]
