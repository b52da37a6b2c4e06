"""Slots that are peeked at: by which way, under which names, and what is said when it cannot be."""

from __future__ import annotations

import threading
from contextlib import closing
from urllib.parse import urlsplit

import psycopg
import pytest

from headwater.model.errors import SourceChanged, SourceUnreachable
from headwater.pg.copy.reader import Tuning as CopyTuning
from headwater.services.stack.postgres import running_postgres
from headwater.sources.postgres.wal.transactions import DEFAULT, Peek, Tuning, read_slot
from tests.sources.postgres.wal.slot_wal import slot_wal
from tests.support.wait import wait_until

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text)"


@pytest.fixture
def log(url):
    with slot_wal(url, TABLE) as slot:
        yield slot


def messages(url: str, peek: Peek, tuning: Tuning = DEFAULT) -> list[bytes]:
    with psycopg.connect(url, autocommit=True) as connection:
        rows = [
            piece.data[start:end].tobytes()
            for piece in read_slot(connection, peek, tuning)
            for start, end in zip(piece.starts, piece.ends, strict=True)
        ]
        assert connection.execute("SELECT 7").fetchone() == (7,), "the connection is good for more"
        return rows


@pytest.mark.parametrize("chunk", [64, 1000, 2 << 20])
def test_messages_come_as_the_server_sends_them_whatever_the_size_of_chunks(log, chunk):
    tuning = Tuning(CopyTuning(chunk), piece_bytes=max(chunk // 2, 1))
    log.sql("INSERT INTO t SELECT n, repeat('x', n % 400) FROM generate_series(1, 500) n; DELETE FROM t WHERE id > 400")
    assert messages(log.url, Peek(log.slot, "p"), tuning) == log.messages()


@pytest.mark.parametrize("name", ["Capital", "with space", 'quo"te', "com,ma", "apo'strophe", "back\\slash", "é%s"])
def test_publications_of_any_name(database, name):
    with slot_wal(database, TABLE, publication=name) as log:
        log.sql("INSERT INTO t VALUES (1, 'x')")
        assert log.read({"t": ("id",)}).short("t", "id") == [("c", 1)]


def test_a_slot_that_is_not_there_is_told(log):
    with pytest.raises(SourceChanged, match=r'slot gone: .*"gone" does not exist'):
        messages(log.url, Peek("gone", "p"))


def test_a_publication_that_is_not_there_is_told_and_not_an_empty_log(log):
    log.sql("INSERT INTO t VALUES (1, 'x')")
    with pytest.raises(SourceChanged, match="publication other does not exist"):
        messages(log.url, Peek(log.slot, "other"))


def test_a_slot_of_another_database_is_told(log, postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("CREATE PUBLICATION elsewhere")
        try:
            with pytest.raises(SourceChanged, match="was not created in this database"):
                messages(postgres_url, Peek(log.slot, "elsewhere"))
        finally:
            admin.execute("DROP PUBLICATION elsewhere")


def test_a_role_that_may_not_is_told(log):
    log.sql("DO $$ BEGIN CREATE ROLE peeks_not LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    with pytest.raises(SourceUnreachable, match="permission denied") as caught:
        messages(log.url.replace("postgres@", "peeks_not@"), Peek(log.slot, "p"))
    assert "REPLICATION" in caught.value.hint


def test_a_slot_that_somebody_else_reads_is_told(log, database):
    parts = urlsplit(database)
    name = f"host={parts.hostname} port={parts.port} user=postgres dbname={parts.path[1:]} replication=database"
    reader = psycopg.pq.PGconn.connect(name.encode())
    begun = reader.exec_(
        f"START_REPLICATION SLOT {log.slot} LOGICAL 0/0 (proto_version '1', publication_names 'p')".encode()
    )
    assert begun.status == psycopg.pq.ExecStatus.COPY_BOTH
    with pytest.raises(SourceUnreachable, match="is active for PID") as caught:
        messages(log.url, Peek(log.slot, "p"))
    assert "slot of its own" in caught.value.hint
    reader.finish()


def test_a_lost_slot_is_told_and_no_retry_mends_it():
    with running_postgres({"max_slot_wal_keep_size": "16MB"}) as server, slot_wal(server.url(), TABLE) as log:
        for _ in range(5):
            log.sql("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t")
            log.sql("SELECT pg_switch_wal()")
        log.sql("CHECKPOINT")
        assert log.sql("SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s", [log.slot]).fetchone() == (
            "lost",
        )
        with pytest.raises(SourceChanged, match=log.slot) as caught:
            messages(server.url(), Peek(log.slot, "p"))
        assert caught.value.retry == "operator"
        assert "--to snapshot" in caught.value.hint


def test_a_server_that_goes_away_is_told_and_leaves_no_connection(log, tmp_path):
    log.sql("INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(1, 60000) n")
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT data%%' AND pid <> pg_backend_pid()"

    def end() -> None:
        with psycopg.connect(log.url, autocommit=True) as admin:
            wait_until(lambda: admin.execute(ended).fetchall())

    killer = threading.Thread(target=end)
    killer.start()
    try:
        with pytest.raises(SourceUnreachable, match=f"slot {log.slot}: "):
            log.read_into(tmp_path, {"t": ("id",)})
    finally:
        killer.join()


def test_a_read_that_stops_early_lets_go_of_the_slot_and_of_the_server(log, tmp_path):
    log.sql("SELECT pg_logical_emit_message(true, 'headwater', 'stop')")
    log.sql("INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(1, 60000) n")
    wal = log.read_into(tmp_path, {"t": ("id",)}, stop=lambda _: True)
    assert (wal.transactions, wal.segments) == (1, ())
    assert len(messages(log.url, Peek(log.slot, "p"))) > 60_000
    query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT data%%'"
    wait_until(lambda: log.sql(query).fetchone() == (0,), 20)


def test_a_role_s_own_time_limit_does_not_end_a_peek(log):
    log.sql("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 100000) n")
    with closing(psycopg.connect(log.url, autocommit=True, options="-c statement_timeout=30")) as connection:
        assert sum(len(piece) for piece in read_slot(connection, Peek(log.slot, "p"))) > 100_000
