"""Connections that break, snapshots that end and tables that change while they are copied: no row lost, none twice."""

from __future__ import annotations

import threading

import psycopg
import pytest

from headwater.model.errors import SnapshotGone, SourceUnreachable
from headwater.model.secret import Secret
from headwater.sources.postgres.initial_copy.snapshot import Tuning
from headwater.sources.postgres.initial_copy.windows import copied_rows, why_not_copied
from tests.sources.postgres.initial_copy.copy_rows import catalog_table, order_for, read, snapshot_of

ROWS = 60_000
READER = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'headwater' AND query LIKE 'COPY%%' AND backend_type = 'client backend'"""
EXPORTER = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'walsender'"


@pytest.fixture
def connection(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, note text, extra int)")
        connection.execute(
            "INSERT INTO t SELECT n, repeat(md5(n::text), 10), n FROM generate_series(1, %s) n WHERE n %% 10 > 0",
            [ROWS],
        )
        yield connection


def rows_at(url, snapshot, **how):
    return copied_rows(Secret(url), order_for(url, snapshot, "t", **how))


def test_a_reader_that_is_killed_goes_on_behind_the_last_row(url, connection):
    read, kills = [], 0
    with snapshot_of(url) as snapshot:
        (split,) = rows_at(url, snapshot).splits
        connection.execute(
            "UPDATE t SET note = 'too late'; DELETE FROM t WHERE id % 2 = 0; INSERT INTO t VALUES (0, '', 0)"
        )
        for batch in split.read():
            read += batch.to_pylist()
            kills += connection.execute(READER).rowcount
    assert kills  # how often it is met in the middle of a COPY is a matter of luck
    assert [row["id"] for row in read] == [n for n in range(1, ROWS + 1) if n % 10]
    assert len({row["_row"] for row in read}) == len(read)
    assert not [row for row in read if row["note"] == "too late"]


def test_nothing_is_read_of_a_table_that_is_empty(url, connection):
    connection.execute("CREATE TABLE empty (id int PRIMARY KEY)")
    with snapshot_of(url) as snapshot:
        assert read(copied_rows(Secret(url), order_for(url, snapshot, "empty"))) == []


def test_readers_of_many_partitions_are_killed_between_and_within_them(database, connection):
    connection.execute("CREATE TABLE p (id int, part int, note text) PARTITION BY LIST (part)")
    for part in range(5):
        connection.execute(f"CREATE TABLE p_{part} PARTITION OF p FOR VALUES IN ({part})")
    connection.execute("INSERT INTO p SELECT n, n % 5, repeat('x', 500) FROM generate_series(1, 30000) n")
    ids, kills = [], 0
    with snapshot_of(database) as snapshot:
        for split in copied_rows(Secret(database), order_for(database, snapshot, "p", splits=2)).splits:
            for number, batch in enumerate(split.read()):
                ids += batch.column("id").to_pylist()
                if number % 2 == 0:
                    kills += connection.execute(READER).rowcount
    assert kills
    assert sorted(ids) == list(range(1, 30001))


def test_a_server_that_takes_no_connections_for_a_moment_is_waited_for(database, connection, postgres_url):
    name = database.rpartition("/")[2]
    with snapshot_of(database) as snapshot, psycopg.connect(postgres_url, autocommit=True) as admin:
        batches = rows_at(database, snapshot).splits[0].read()
        count = next(batches).num_rows
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        connection.execute(READER)
        opening = threading.Timer(0.4, admin.execute, [f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'])
        opening.start()
        count += sum(batch.num_rows for batch in batches)
        opening.join()
    assert count == ROWS * 9 // 10


def test_a_server_that_stays_away_is_told_with_no_secret(database, connection, postgres_url):
    name, url = database.rpartition("/")[2], database.replace("postgres@", "postgres:s3cret@")
    with snapshot_of(url) as snapshot, psycopg.connect(postgres_url, autocommit=True) as admin:
        batches = rows_at(url, snapshot, tuning=Tuning(retry_seconds=(0.01, 0.01))).splits[0].read()
        next(batches)
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        connection.execute(READER)
        with pytest.raises(
            SourceUnreachable, match=r"t: the copy from .* broke off: .*not currently accepting"
        ) as caught:
            list(batches)
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    assert not isinstance(caught.value, SnapshotGone)
    assert "s3cret" not in str(caught.value)


def test_a_snapshot_that_is_gone_is_told_as_soon_as_it_is_needed(database, connection):
    with snapshot_of(database) as snapshot:
        order = order_for(database, snapshot, "t")
        assert why_not_copied(Secret(database), order) == ""
        batches = copied_rows(Secret(database), order).splits[0].read()
        next(batches)
        connection.execute(EXPORTER)
        connection.execute(READER)
        with pytest.raises(
            SnapshotGone, match=r"t: the copy's snapshot .* can no longer be used: .*does not exist"
        ) as caught:
            list(batches)
        assert why_not_copied(Secret(database), order) == caught.value.message
    assert "copies the table again" in str(caught.value)


def test_a_reader_that_is_at_work_outlives_its_snapshot(database, connection):
    with snapshot_of(database) as snapshot:
        batches = rows_at(database, snapshot).splits[0].read()
        count = next(batches).num_rows
        connection.execute(EXPORTER)
        assert count + sum(batch.num_rows for batch in batches) == ROWS * 9 // 10


CHANGES = {
    "VACUUM FULL t": "public.t was rewritten or truncated",
    "CLUSTER t USING t_pkey": "public.t was rewritten or truncated",
    "TRUNCATE t": "public.t was rewritten or truncated",
    "ALTER TABLE t ALTER id TYPE bigint": "public.t was rewritten or truncated",
    "ALTER TABLE t ADD again float DEFAULT random()": "public.t was rewritten or truncated",
    "ALTER TABLE t RENAME note TO x; ALTER TABLE t RENAME extra TO note; ALTER TABLE t RENAME x TO extra": "column note is another one",
    "ALTER TABLE t DROP extra; ALTER TABLE t ADD extra int": "column extra is another one",
    "ALTER TABLE t RENAME extra TO other": "public.t or a column of it was dropped or renamed",
    "ALTER TABLE t DROP extra": "public.t or a column of it was dropped or renamed",
    "DROP TABLE t": "public.t or a column of it was dropped or renamed",
    "ALTER TABLE t RENAME TO u; CREATE TABLE t (LIKE u)": "public.t is another table",
    "ALTER TABLE t SET SCHEMA elsewhere": "public.t or a column of it was dropped or renamed",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_is_not_what_the_snapshot_saw_is_not_read(database, connection, change):
    """It would look empty, or have its rows elsewhere, or its values under other names."""
    connection.execute("CREATE SCHEMA elsewhere")
    with snapshot_of(database) as snapshot:
        order = order_for(database, snapshot, "t")
        connection.execute(change)
        assert CHANGES[change] in why_not_copied(Secret(database), order)
        with pytest.raises(SnapshotGone, match=CHANGES[change]):
            read(copied_rows(Secret(database), order))


def test_a_change_of_type_that_rewrites_nothing_is_noticed_too(database, connection):
    connection.execute("CREATE TABLE w (id int PRIMARY KEY, at timestamp); INSERT INTO w VALUES (1, now())")
    with snapshot_of(database) as snapshot:
        order = order_for(database, snapshot, "w")
        connection.execute("SET TimeZone = 'UTC'; ALTER TABLE w ALTER at TYPE timestamptz")
        assert "column at got another type" in why_not_copied(Secret(database), order)


def test_a_table_that_was_changed_between_the_plan_and_the_snapshot_is_not_read(database, connection):
    table = catalog_table(database, "t")
    connection.execute(
        "ALTER TABLE t RENAME extra TO x; ALTER TABLE t RENAME note TO extra; ALTER TABLE t RENAME x TO note"
    )
    with snapshot_of(database) as snapshot:
        why = why_not_copied(Secret(database), order_for(database, snapshot, "t", table=table))
    assert "column" in why


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t ADD late text DEFAULT 'x'", "CREATE INDEX ON t (note)", "ANALYZE t", "VACUUM t", "REINDEX TABLE t",
        "ALTER TABLE t ALTER note SET NOT NULL", "GRANT SELECT ON t TO pg_monitor", "DELETE FROM t",
        "ALTER TABLE t REPLICA IDENTITY FULL",
    ],
)  # fmt: skip
def test_what_leaves_rows_and_columns_where_they_are_is_no_matter(database, connection, change):
    with snapshot_of(database) as snapshot:
        order = order_for(database, snapshot, "t", splits=2)
        connection.execute(change)
        assert why_not_copied(Secret(database), order) == ""
        assert len(read(copied_rows(Secret(database), order))) == ROWS * 9 // 10


def test_nobody_rewrites_a_table_while_a_range_of_it_is_read(database, connection):
    with snapshot_of(database) as snapshot:
        batches = rows_at(database, snapshot).splits[0].read()
        next(batches)
        connection.execute("SET lock_timeout = 100")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            connection.execute("VACUUM FULL t")
        batches.close()


def test_a_statement_that_is_wrong_is_not_tried_again(url, connection):
    hours = Tuning(retry_seconds=(3600,))  # a second try would end this test
    with snapshot_of(url) as snapshot, pytest.raises(SourceUnreachable, match=r"broke off: .*division by zero"):
        read(rows_at(url, snapshot, where="1 / (id - 55) = 0", tuning=hours))


def test_a_role_without_rights_is_told_which_it_needs(database, connection):
    role = f"r_{database.rpartition('/')[2]}"
    connection.execute(f"CREATE ROLE {role} LOGIN REPLICATION")
    url = database.replace("postgres@", f"{role}@")
    try:
        with snapshot_of(url) as snapshot:
            with pytest.raises(SourceUnreachable, match="permission denied for table t") as caught:
                read(rows_at(url, snapshot))
            assert "GRANT SELECT" in str(caught.value)
            connection.execute(f"GRANT SELECT ON t TO {role}; ALTER TABLE t ENABLE ROW LEVEL SECURITY")
            with pytest.raises(SourceUnreachable, match="row-level security"):  # not: no rows
                read(rows_at(url, snapshot))
    finally:
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
