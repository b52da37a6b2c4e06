"""Encrypted connections are read as plain ones are: by COPY, in chunks of many rows, by every reader."""

from __future__ import annotations

import sys

import psycopg
import pytest

from headwater.model.errors import SourceUnreachable
from headwater.model.secret import Secret
from headwater.pg.connection import connect
from headwater.pg.copy.reader import CopyReader, tls_chunks
from headwater.pg.copy.stream import socket_chunks
from headwater.sources.postgres.initial_copy.windows import copied_rows
from headwater.sources.postgres.wal.transactions import Peek, read_slot
from tests.sources.postgres.initial_copy.copy_rows import order_for, read, snapshot_of
from tests.sources.postgres.wal.slot_wal import slot_wal
from tests.sources.sql.poller import Poller
from tests.support.postgres_tls import encrypting_door

ROWS = 100_000
TABLE = "CREATE TABLE t (id int PRIMARY KEY, note text)"
FILL = f"INSERT INTO t SELECT n, 'note ' || n FROM generate_series(1, {ROWS}) n"


@pytest.fixture
def encrypted(database, certificate):
    with encrypting_door(database, certificate) as url:
        yield url


@pytest.fixture
def no_row_by_row(monkeypatch):
    """psycopg's own COPY hands out row after row, and ADBC needs twice our time."""

    def refused(*_: object, **__: object) -> None:
        pytest.fail("rows are read one by one")

    monkeypatch.setattr(psycopg.Cursor, "copy", refused)
    for name in ("adbc_driver_manager", "adbc_driver_postgresql"):
        monkeypatch.setitem(sys.modules, name, None)


def test_each_connection_is_received_in_its_quickest_way(database, encrypted):
    for url, receive in ((database, socket_chunks), (encrypted, tls_chunks)):
        with connect(Secret(url)) as connection:
            assert CopyReader(connection).receive is receive


def test_a_chunk_holds_as_many_rows_by_any_way(url):
    with connect(Secret(url)) as connection:
        reader = CopyReader(connection)
        counts = [len(chunk.starts) for chunk in reader.chunks(f"SELECT n FROM generate_series(1, {ROWS}) n", 1)]
        assert sum(counts) == ROWS
        assert len(counts) <= 3
        assert connection.execute("SELECT 7").fetchone() == (7,), "the connection is good for more"


def test_a_polled_table_is_not_read_row_by_row(database, encrypted, no_row_by_row):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute(FILL)
    poller = Poller(encrypted, table="t", cursor="id")
    assert len(poller.poll()) == ROWS
    poller.close()


def test_an_initial_copy_is_not_read_row_by_row(database, encrypted, no_row_by_row):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute(FILL)
    with snapshot_of(encrypted) as snapshot:
        assert len(read(copied_rows(Secret(encrypted), order_for(encrypted, snapshot, "t", splits=2)))) == ROWS


def test_a_slot_is_not_read_row_by_row(database, encrypted, no_row_by_row):
    with slot_wal(database, TABLE) as log:
        log.sql(FILL)
        with connect(Secret(encrypted)) as connection:
            assert connection.pgconn.ssl_in_use
            pieces = [len(piece) for piece in read_slot(connection, Peek(log.slot, "p"))]
    assert sum(pieces) > ROWS
    assert len(pieces) < 10


@pytest.mark.parametrize(
    ("function", "what"),
    [("pg_cancel_backend", "canceling statement"), ("pg_terminate_backend", "57P01|terminating|closed|unexpected eof")],
)
def test_what_ends_a_copy_in_its_middle_is_told_by_any_way(database, url, function, what):
    ended = f"SELECT {function}(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY (%'"
    query = "SELECT n, repeat('x', 1000) AS x FROM generate_series(1, 200000) n"
    poller = Poller(url, query=query, cursor="n", late="off")
    with poller.source.read(poller.look()) as (rows,), pytest.raises(SourceUnreachable, match=what):
        for split in rows.splits:
            for number, _ in enumerate(split.read()):
                if number == 0:
                    with psycopg.connect(database, autocommit=True) as other:
                        other.execute(ended)
    poller.close()
