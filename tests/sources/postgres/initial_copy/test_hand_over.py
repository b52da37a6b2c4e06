"""The hand-over from a copy to the log, with writers at work: every change is in one of them, and in one only."""

from __future__ import annotations

import json
import random
import threading

import psycopg
import pytest

from headwater.model.rows import position
from headwater.model.secret import Secret
from headwater.sources.postgres.initial_copy.windows import copied_rows
from tests.sources.postgres.initial_copy.copy_rows import order_for, read, snapshot_of
from tests.sources.postgres.wal.plain_reader import PlainReader
from tests.sources.postgres.wal.slot_wal import slot_wal
from tests.support.wait import wait_until

TABLES = """
CREATE TABLE t (id int, part int, version int NOT NULL, note text, big text, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE t_0 PARTITION OF t FOR VALUES IN (0); CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1);
ALTER TABLE t_0 ALTER big SET STORAGE EXTERNAL; ALTER TABLE t_1 ALTER big SET STORAGE EXTERNAL;
INSERT INTO t SELECT n, n % 2, 0, 'first', repeat(n::text, 1000) FROM generate_series(1, 3000) n"""
COLUMNS = ("id", "part", "version", "note", "big")
KEY = ("id", "part")


class Writer(threading.Thread):
    """Inserts, updates, deletes, changes keys and partitions; some of its transactions and savepoints are rolled back."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__()
        self.url, self.random, self.over, self.commits = url, random.Random(seed), threading.Event(), 0
        self.next = 100_000 * seed

    def run(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            while not self.over.is_set():
                connection.execute("BEGIN")
                try:
                    for _ in range(self.random.randint(1, 12)):
                        self.change(connection)
                    connection.execute(self.random.choice(["COMMIT"] * 5 + ["ROLLBACK"]))
                    self.commits += 1
                except (
                    psycopg.OperationalError,
                    psycopg.errors.UniqueViolation,
                ):  # deadlocks; rows that moved meanwhile
                    connection.execute("ROLLBACK")

    def change(self, connection: psycopg.Connection) -> None:
        chosen = [self.random.randint(1, 3000), self.random.randint(0, 1)]
        self.next += 1
        statements = [
            ("INSERT INTO t VALUES (%s, %s, 1, 'new', repeat('x', 3000))", [self.next, self.next % 2]),
            ("UPDATE t SET version = version + 1, note = note || '.' WHERE id = %s", chosen[:1]),
            ("DELETE FROM t WHERE id = %s AND part = %s", chosen),
            ("UPDATE t SET id = %s, version = version + 1 WHERE id = %s", [self.next, chosen[0]]),
            ("UPDATE t SET part = 1 - part, version = version + 1 WHERE id = %s", chosen[:1]),
            ("INSERT INTO t VALUES (%s, %s, 0, 'again', 'small') ON CONFLICT DO NOTHING", chosen),
            ("SAVEPOINT s; UPDATE t SET note = 'never seen' WHERE part = 0 AND id < 20; ROLLBACK TO s", None),
        ]
        connection.execute(*self.random.choice(statements))

    def end(self) -> None:
        self.over.set()
        self.join(30)


@pytest.mark.parametrize("round_", range(3))
def test_copy_and_log_together_are_the_table(database, round_):
    """Each change of the log is checked against what is there: an insert finds no row, an update and a delete find one."""
    with slot_wal(database, TABLES, options="WITH (publish_via_partition_root = true)") as log:
        writers = [Writer(database, seed=10 * round_ + number) for number in (1, 2)]
        for writer in writers:
            writer.start()
        try:
            wait_until(lambda: all(writer.commits > 20 for writer in writers))
            with snapshot_of(database) as snapshot:
                begun = [writer.commits for writer in writers]
                order = order_for(database, snapshot, "t", splits=4)
                copied = read(copied_rows(Secret(database), order))
                wait_until(lambda: all(writer.commits > n + 50 for writer, n in zip(writers, begun, strict=True)))
        finally:
            for writer in writers:
                writer.end()
        oid = log.oid("t")
        changes = [change for _, change in PlainReader({oid: KEY}).read(log.messages())]
        there = [dict(zip(COLUMNS, row, strict=True)) for row in log.sql(f"SELECT {', '.join(COLUMNS)} FROM t")]
    in_copy = [change for change in changes if change["_position"] < position(snapshot.lsn, 0)]
    later = [change for change in changes if change["_position"] >= position(snapshot.lsn, 0)]
    assert in_copy
    assert later
    state = {key_of(row): values_of(row) for row in copied}
    assert len(state) == len(copied)
    for change in later:
        apply(state, change)
    assert state == {key_of(row): row for row in there}


def apply(state: dict, change: dict) -> None:
    key, values = key_of(change), values_of(change)
    match change["_op"]:
        case "c":
            assert key not in state, "an insert that the copy had already"
            old = state.pop(("left", *json.loads(change["_old_key"]))) if change["_old_key"] else {}
            state[key] = values | {name: old[name] for name in change["_missing"] or ()}
        case "u":
            assert values["version"] > state[key]["version"] or values["note"] != state[key]["note"]
            state[key] = values | {name: state[key][name] for name in change["_missing"] or ()}
        case "d":
            deleted = state.pop(key)  # a row that the copy must have had
            if change["_row"]:
                state["left", *key] = deleted


def key_of(row: dict) -> tuple:
    return tuple(row[name] for name in KEY)


def values_of(row: dict) -> dict:
    return {name: row[name] for name in COLUMNS}
