"""Tables in PostgreSQL, a pipeline that captures them, a load that is nasty to them, and what the lake must hold."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = """
CREATE TABLE accounts (id bigint PRIMARY KEY, owner text NOT NULL, balance numeric(12, 2) NOT NULL, notes text);
ALTER TABLE accounts ALTER notes SET STORAGE EXTERNAL;
CREATE TABLE pairs (a int, b text, value text, PRIMARY KEY (a, b));
CREATE TABLE whole (id int PRIMARY KEY, t text, big text);
ALTER TABLE whole ALTER big SET STORAGE EXTERNAL, REPLICA IDENTITY FULL;
CREATE TABLE parts (id int, day date, v int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
INSERT INTO accounts SELECT n, 'owner ' || n, n * 1.5, repeat(md5(n::text), 100) FROM generate_series(1, 60) AS n;
INSERT INTO pairs SELECT n, 'b' || n % 3, 'v' FROM generate_series(1, 40) AS n;
INSERT INTO whole SELECT n, 't', repeat(md5(n::text), 100) FROM generate_series(1, 30) AS n;
INSERT INTO parts SELECT n, date '2026-01-01' + n, n FROM generate_series(1, 50) AS n;
"""
KEYS = {"accounts": ("id",), "pairs": ("a", "b"), "whole": ("id",), "parts": ("id", "day")}


@dataclass(frozen=True)
class Content:
    """What a table holds, and under which names."""

    columns: Sequence[str]
    rows: Counter


class CapturedTables(World):
    """The database, the namespace of the lake that its tables are in, and their keys."""

    def __init__(
        self,
        database: str,
        folder: Path,
        spark: SparkSession,
        namespace: str,
        *,
        tables: Sequence[str] = tuple(KEYS),
        more: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Captures `tables` of those it makes; `more`: keys of tables that are there already, and are captured, too."""
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(TABLES)
        self.database, self.namespace = database, namespace
        self.keys = {**{table: KEYS[table] for table in tables}, **(more or {})}
        self.slot = f"y_{uuid.uuid4().hex[:16]}"
        source = {"url": database, "tables": [f"public.{name}" for name in self.keys], "slot": self.slot}
        sinks = [("_log", "changes"), ("", "merge"), ("_history", "history")]
        super().__init__(
            folder,
            {"postgres": source},
            [{"iceberg": {"table": f"{namespace}.{{stream}}{end}", "mode": mode}} for end, mode in sinks],
            name="captured",
            spark=spark,
        )

    def land_all(self) -> None:
        """Catch up, though the server may be away for a while."""
        self.catch_up(outage=lambda error: error.retry == "later")

    def check(self, label: str = "", expected: Mapping[str, Content] | None = None) -> None:
        """All three modes, against the database, or against what it held when the label was written."""
        for table, content in (expected or self.in_database()).items():
            self.check_table(table, content, label)

    def check_table(self, table: str, expected: Content, label: str = "") -> None:
        at = f" VERSION AS OF '{label}'" if label else ""
        columns = ", ".join(expected.columns)
        name = f"{self.namespace}.{table}"
        merged = self.count(f"SELECT {columns} FROM {name}{at}")
        current = self.count(f"SELECT {columns} FROM {name}_history{at} WHERE is_current")
        logged = self._state_of_log(expected.columns, self.keys[table], f"{name}_log{at}")
        for what, rows in (("", merged), ("history of ", current), ("log of ", logged)):
            assert rows == expected.rows, f"{what}{table} {label}: {_difference(rows, expected.rows)}"

    def in_database(self) -> Mapping[str, Content]:
        with psycopg.connect(self.database) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            return self.seen_by(connection)

    def seen_by(self, connection: psycopg.Connection) -> Mapping[str, Content]:
        """What the connection's transaction sees."""
        contents = {}
        for table in self.keys:
            cursor = connection.execute(f"SELECT * FROM {table}")
            names = [column.name for column in cursor.description or ()]
            contents[table] = Content(names, Counter(cursor.fetchall()))
        return contents

    def _state_of_log(self, names: Sequence[str], keys: Sequence[str], log: str) -> Counter:
        """The state that a plain reading of the log gives; values that an event leaves out are taken from before it."""
        query = f"SELECT _op, _position, _missing, _old_key, {', '.join(names)} FROM {log}"
        rows: dict[tuple, dict] = {}
        deleted: dict[tuple, dict] = {}
        for op, _, missing, old_key, *values in sorted(self.select(query), key=lambda event: event[1]):
            if op == "t":
                rows.clear()
                continue
            row = dict(zip(names, values, strict=True))
            key = tuple(row[name] for name in keys)
            if op == "d":
                deleted[key] = rows.pop(key, {})
                continue
            before = _of_old_key(deleted, tuple(json.loads(old_key))) if old_key else rows.get(key, {})
            rows[key] = row | {name: before[name] for name in missing or () if name in names}
        return Counter(tuple(row.values()) for row in rows.values())

    def drop_slot(self) -> None:
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [self.slot]
            )


def _difference(rows: Counter, expected: Counter) -> str:
    more, less = ([str(row)[:80] for row in sorted(some, key=str)[:5]] for some in (rows - expected, expected - rows))
    return f"too much: {more}, missing: {less}"


def _of_old_key(deleted: dict[tuple, dict], key: tuple) -> dict:
    texts = tuple(str(part) for part in key)
    return next(row for old, row in reversed(deleted.items()) if tuple(str(part) for part in old) == texts)
