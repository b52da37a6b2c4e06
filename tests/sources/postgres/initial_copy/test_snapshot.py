"""The snapshot that a copy is read in: where it stands, what it waits for, and why there may be none."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import psycopg
import pytest

from headwater.model.errors import SourceUnreachable
from headwater.model.position.lsn import lsn_number
from headwater.services.stack.postgres import running_postgres
from headwater.sources.postgres.initial_copy.snapshot import Tuning
from tests.sources.postgres.initial_copy.copy_rows import snapshot_of
from tests.support.wait import wait_until

SLOTS = (
    "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'hw\\_copy\\_%' AND database = current_database()"
)
OWN = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name LIKE 'hw%' AND database = current_database()"


@pytest.fixture
def connection(database):
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def count(connection, sql: str) -> int:
    return connection.execute(sql).fetchone()[0]


def test_a_snapshot_has_a_name_a_place_and_a_moment_and_its_slot_goes_with_it(database, connection):
    before = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()[0]
    with snapshot_of(database) as snapshot:
        assert lsn_number(before) <= snapshot.lsn
        assert abs(snapshot.moment / 1_000_000 - time.time()) < 60
        assert snapshot.is_alive()
        assert count(connection, SLOTS) == 1
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot.name}'")
        connection.execute("ROLLBACK")
    wait_until(lambda: count(connection, SLOTS) == 0)
    assert not snapshot.is_alive()


def test_a_snapshot_whose_connection_the_server_ended_is_known_to_be_gone(database, connection):
    with snapshot_of(database) as snapshot:
        connection.execute(OWN)
        wait_until(lambda: not snapshot.is_alive())


def test_a_snapshot_lives_on_where_idle_transactions_are_ended(database, connection):
    """Its own is one: idle for as long as tables are copied."""
    name = database.rpartition("/")[2]
    for setting in (
        "idle_in_transaction_session_timeout",
        "idle_session_timeout",
        "transaction_timeout",
        "statement_timeout",
    ):
        connection.execute(f'ALTER DATABASE "{name}" SET {setting} = 200')
    with snapshot_of(database) as snapshot, closing(psycopg.connect(database)) as idle:
        idle.execute("SELECT 1")  # begins a transaction as idle as the snapshot's, which the server ends
        asked, pid = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", idle.info.backend_pid
        wait_until(lambda: connection.execute(asked, [pid]).fetchone() == (0,))
        assert snapshot.is_alive()
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            other.execute(f"SET TRANSACTION SNAPSHOT '{snapshot.name}'")


def test_it_says_which_transaction_it_waits_for(database, connection):
    connection.execute("CREATE TABLE t (id int)")
    said, heard = [], threading.Event()
    with psycopg.connect(database, application_name="slow report") as writer:
        pid = writer.info.backend_pid

        def warn(words: str) -> None:
            if f"session {pid} " in words:  # it also waits for those of other tests
                said.append(words)
                heard.set()

        writer.execute("INSERT INTO t VALUES (424242)")
        ended = threading.Thread(target=lambda: (heard.wait(30), writer.commit()))
        ended.start()
        with snapshot_of(database, warn=warn, tuning=Tuning(warn_seconds=0.1)) as snapshot:
            assert snapshot.is_alive()
        ended.join()
    assert len(said) == 1
    assert f"of session {pid} (role postgres, slow report, idle in transaction), open for" in said[0]
    assert "424242" not in said[0]


def test_it_names_a_prepared_transaction_and_stops_at_its_deadline(database, connection):
    connection.execute("CREATE TABLE t (id int)")
    connection.execute("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'left alone'")
    with pytest.raises(SourceUnreachable, match=r"prepared transaction 'left alone', open for \d+ s, to be committed"):
        snapshot_of(database, deadline_seconds=0.3).__enter__()
    connection.execute("ROLLBACK PREPARED 'left alone'")
    wait_until(lambda: count(connection, SLOTS) == 0)


def test_a_role_that_may_not_replicate_is_told_what_would_let_it(database, connection):
    role = f"r_{database.rpartition('/')[2]}"
    connection.execute(f"CREATE ROLE {role} LOGIN")
    try:
        with pytest.raises(SourceUnreachable) as caught:
            snapshot_of(database.replace("postgres@", f"{role}@")).__enter__()
    finally:
        connection.execute(f"DROP ROLE {role}")
    assert f"role {role} may not replicate" in str(caught.value)
    assert f'ALTER ROLE "{role}" REPLICATION' in str(caught.value)


@pytest.fixture(scope="module")
def narrow():
    """One slot, and one sender more than that."""
    options = {"max_replication_slots": "1", "max_wal_senders": "2", "wal_level": "logical"}
    with running_postgres(options) as server:
        yield server.url()


def test_where_no_slot_is_left_it_is_said(narrow):
    with snapshot_of(narrow), pytest.raises(SourceUnreachable) as caught:
        snapshot_of(narrow).__enter__()
    assert "all 1 replication slots are in use" in str(caught.value)
    assert "raise max_replication_slots" in str(caught.value)


def test_where_no_sender_is_left_it_is_said(narrow):
    with psycopg.connect(narrow, autocommit=True) as watching:  # senders of the test before end when the server sees it
        wait_until(
            lambda: count(watching, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender'") == 0
        )
    senders = [psycopg.connect(narrow, replication="database", autocommit=True) for _ in range(2)]
    try:
        with pytest.raises(SourceUnreachable) as caught:
            snapshot_of(narrow).__enter__()
    finally:
        for sender in senders:
            sender.close()
    assert "all 2 WAL senders are busy" in str(caught.value)


def test_where_the_log_holds_no_changes_it_is_said():
    with running_postgres({"wal_level": "replica"}) as server, pytest.raises(SourceUnreachable) as caught:
        snapshot_of(server.url()).__enter__()
    assert "wal_level is replica" in str(caught.value)
    assert "ALTER SYSTEM SET wal_level = 'logical'" in str(caught.value)


def test_a_server_that_is_not_there_is_told(tmp_path):
    with pytest.raises(SourceUnreachable, match="port 1"):
        snapshot_of("postgresql://postgres:s3cret@127.0.0.1:1/postgres").__enter__()
