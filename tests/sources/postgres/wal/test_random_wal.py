"""Random transactions, read by columns and read plainly: every change is the same, and so is the table that comes of them."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.pg.copy.reader import Tuning as CopyTuning
from headwater.sources.postgres.wal.transactions import Tuning
from tests.sources.postgres.wal.plain_reader import PlainReader, applied
from tests.sources.postgres.wal.slot_wal import slot_wal

TABLES = """
CREATE TABLE plain (id bigint PRIMARY KEY, n int, big text);
CREATE TABLE whole (n int, id bigint, big text, b text, PRIMARY KEY (id, b)); ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE named (big text, n int, name text NOT NULL, id bigint PRIMARY KEY); CREATE UNIQUE INDEX names ON named (name);
ALTER TABLE named REPLICA IDENTITY USING INDEX names;
CREATE TABLE skipped (id bigint PRIMARY KEY, big text);
ALTER TABLE plain ALTER big SET STORAGE EXTERNAL; ALTER TABLE whole ALTER big SET STORAGE EXTERNAL;
ALTER TABLE named ALTER big SET STORAGE EXTERNAL;
"""
KEYS = {"plain": ("id",), "whole": ("id", "b"), "named": ("name",)}
FILL = {
    "plain": "(id, n, big) VALUES ({id}, {n}, {big})",
    "whole": "(id, n, big, b) VALUES ({id}, {n}, {big}, 'k' || {n} % 2)",
    "named": "(id, n, big, name) VALUES ({id}, {n}, {big}, 'é' || {id})",
    "skipped": "(id, big) VALUES ({id}, {big})",
}
KEY_CHANGE = {
    "plain": "id = id + 1000 + {n}",
    "whole": "b = b || '{n}', n = {n}",
    "named": "name = name || '{n}'",
    "skipped": "id = id + 1000 + {n}",
}
_TABLE, _ID, _N = st.sampled_from(list(FILL)), st.integers(1, 6), st.integers(0, 9)
BIGS = [
    "NULL",
    "''",
    "'small'",
    "repeat('x', 3000)",
    "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 90) i)",
]
STEPS = st.one_of(
    st.tuples(st.just("insert"), _TABLE, _ID, _N, st.sampled_from(BIGS)),
    st.tuples(st.just("insert"), _TABLE, _ID, _N, st.sampled_from(BIGS)),
    st.tuples(st.just("update"), _TABLE, _ID, _N),
    st.tuples(st.just("update big"), _TABLE, _ID, st.sampled_from(BIGS)),
    st.tuples(st.just("move"), _TABLE, _ID, _N),
    st.tuples(st.just("delete"), _TABLE, _ID),
    st.tuples(st.just("copy"), st.sampled_from(["plain", "skipped"]), _N),
    st.tuples(st.just("truncate"), st.sets(_TABLE, min_size=1, max_size=2)),
    st.tuples(st.just("add column"), st.sampled_from(list(KEYS))),
    st.tuples(st.just("drop column"), st.sampled_from(list(KEYS))),
    st.tuples(st.just("message"), _N),
)
TRANSACTIONS = st.lists(
    st.lists(st.tuples(STEPS, st.sampled_from(["keep", "keep", "keep", "undo"])), min_size=1, max_size=8),
    min_size=1,
    max_size=6,
)
SIZES = st.tuples(
    st.sampled_from([64, 301, 2 << 20]), st.sampled_from([1, 500, 8 << 20]), st.sampled_from([1, 3_000, 4 << 20])
)
_COPIED = itertools.count(10_000)


@pytest.fixture
def log(database):
    with slot_wal(database, TABLES) as slot:
        yield slot


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(transactions=TRANSACTIONS, sizes=SIZES)
def test_every_change_and_what_comes_of_them_is_as_the_plain_reader_finds(log, database, transactions, sizes):
    chunk, piece, batch = sizes
    begin_anew(log)
    with psycopg.connect(database) as connection:
        for steps in transactions:
            with connection.transaction():
                for step, fate in steps:
                    perform(connection, step, undo=fate == "undo")
    oids = {log.oid(name): name for name in KEYS}
    plain = PlainReader({oid: KEYS[name] for oid, name in oids.items()}).read(log.messages())
    read = log.read(KEYS, tuning=Tuning(CopyTuning(chunk), piece_bytes=piece, batch_bytes=batch))
    for oid, name in oids.items():
        ours = [{**row, "_source_time": micros(row["_source_time"])} for row in read.rows(name)]
        theirs = [change for table, change in plain if table == oid]
        assert ours == theirs
        assert finally_in(log, name) == without(applied(ours, KEYS[name]))
    assert read.rejects == []


def begin_anew(log) -> None:
    log.sql("TRUNCATE plain, whole, named, skipped")
    for table in KEYS:
        log.sql(f"ALTER TABLE {table} DROP COLUMN IF EXISTS more")
    log.sql("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [log.slot])


def perform(connection: psycopg.Connection, step: tuple, *, undo: bool) -> None:
    """In a savepoint, which is rolled back when it is to be undone or is refused: a key may be taken."""
    with contextlib.suppress(psycopg.errors.UniqueViolation), connection.transaction():
        do(connection, step)
        if undo:
            raise psycopg.Rollback


def do(connection: psycopg.Connection, step: tuple) -> None:  # noqa: C901 - one case per step
    match step:
        case "insert", table, number, n, big:
            connection.execute(f"INSERT INTO {table} {FILL[table].format(id=number, n=n, big=big)}")
        case "update", table, number, n:
            changed = "id = id" if table == "skipped" else f"n = {n}"
            connection.execute(f"UPDATE {table} SET {changed} WHERE id = {number}")
        case "update big", table, number, big:
            connection.execute(f"UPDATE {table} SET big = {big} WHERE id = {number}")
        case "move", table, number, n:
            connection.execute(f"UPDATE {table} SET {KEY_CHANGE[table].format(n=n)} WHERE id = {number}")
        case "delete", table, number:
            connection.execute(f"DELETE FROM {table} WHERE id = {number}")
        case "copy", table, n:
            with connection.cursor().copy(f"COPY {table} (id, big) FROM STDIN") as copy:
                for _ in range(n):
                    copy.write_row([next(_COPIED), "copied"])
        case "truncate", tables:
            connection.execute(f"TRUNCATE {', '.join(sorted(tables))}")
        case "add column", table:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS more text")
        case "drop column", table:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN IF EXISTS more")
        case "message", n:
            connection.execute("SELECT pg_logical_emit_message(true, 'outbox', %s::text)", ["x" * n])


def micros(moment: dt.datetime) -> int:
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def finally_in(log, table: str) -> dict[tuple, dict]:
    cursor = log.sql(f"SELECT * FROM {table}")
    names = [column.name for column in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return without({tuple(row[name] for name in KEYS[table]): row for row in rows})


def without(rows: dict[tuple, dict]) -> dict[tuple, dict]:
    """But for the column that comes and goes, and is never filled."""
    return {key: {name: value for name, value in row.items() if name != "more"} for key, row in rows.items()}
