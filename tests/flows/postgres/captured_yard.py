"""Tables in PostgreSQL, a pipeline that captures them, a load that is nasty to them, and what the lake must hold."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from headwater.api import Project
from headwater.config.load import load_project
from headwater.engine.result import CycleResult
from headwater.testing.crashes import expire_lease, lend
from tests.support.warm_processes import warm_programs

CYCLES = Path(__file__).parents[2] / "support" / "cycles_child.py"
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
class Held:
    """What a table holds, and under which names."""

    columns: Sequence[str]
    rows: Counter


@dataclass(frozen=True)
class Yard:
    """The database, the pipeline's folder, the namespace its tables are in, and their keys."""

    database: str
    folder: Path
    namespace: str
    slot: str
    keys: Mapping[str, Sequence[str]]

    @classmethod
    def build(
        cls,
        database: str,
        folder: Path,
        namespace: str,
        *,
        url: str | None = None,
        tables: Sequence[str] = tuple(KEYS),
        more: Mapping[str, Sequence[str]] | None = None,
    ) -> Yard:
        """Captures `tables` of those it makes; `more`: keys of tables that are there already, and are captured, too."""
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(TABLES)
        keys = {**{table: KEYS[table] for table in tables}, **(more or {})}
        slot = f"y_{uuid.uuid4().hex[:16]}"
        (folder / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
        (folder / "yard.yaml").write_text(f"""
pipeline: yard
lease: 2s
source:
  postgres: {{url: "{url or database}", tables: [{", ".join(f"public.{name}" for name in keys)}], slot: {slot}}}
sinks:
  - iceberg: {{table: "{namespace}.{{stream}}_log", mode: changes}}
  - iceberg: {{table: "{namespace}.{{stream}}", mode: merge}}
  - iceberg: {{table: "{namespace}.{{stream}}_history", mode: history}}
""")
        return cls(database, folder, namespace, slot, keys)

    def run(self, spark, faults=None) -> CycleResult:
        """One cycle in this process."""
        with Project(load_project(self.folder), self.folder, spark=spark, faults=faults) as project:
            return project.pipelines([self.folder / "yard.yaml"])[0].run_once()

    def catch_up(self, spark) -> None:
        """Cycles until nothing is new; a dead process's lease has run out."""
        with Project(load_project(self.folder), self.folder, spark=spark) as project:
            pipeline = project.pipelines([self.folder / "yard.yaml"])[0]
            while (result := pipeline.run_once()).outcome != "nothing new":
                if result.error and result.error.code == "lease-held":
                    expire_lease(self.folder, "yard")
                elif result.error and result.error.retry != "later":
                    raise result.error

    def start_child(self, spark, fault: str = "") -> subprocess.Popen[str]:
        """Cycles in a process of its own, until it is killed."""
        environment = {**os.environ, **lend(spark), **({"HEADWATER_FAULT": fault} if fault else {})}
        python = warm_programs().child if fault else sys.executable  # without a fault a test kills it by its pid
        command = [python, str(CYCLES), str(self.folder / "yard.yaml")]
        # A file: nobody reads along with a process that runs for long.
        errors = (self.folder / "errors.txt").open("w")
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, text=True)

    def errors(self) -> str:
        """What the last child said."""
        return (self.folder / "errors.txt").read_text()

    def check(self, spark, label: str = "", expected: Mapping[str, Held] | None = None) -> None:
        """All three modes, against the database, or against what it held when the label was written."""
        for table, held in (expected or self.in_database()).items():
            self.check_table(spark, table, held, label)

    def check_table(self, spark, table: str, expected: Held, label: str = "") -> None:
        at = f" VERSION AS OF '{label}'" if label else ""
        columns = ", ".join(expected.columns)
        name = f"{self.namespace}.{table}"
        held = _rows(spark, f"SELECT {columns} FROM {name}{at}")
        current = _rows(spark, f"SELECT {columns} FROM {name}_history{at} WHERE is_current")
        logged = _last(spark, expected.columns, self.keys[table], f"{name}_log{at}")
        for what, found in (("", held), ("history of ", current), ("log of ", logged)):
            assert found == expected.rows, f"{what}{table} {label}: {_differing(found, expected.rows)}"

    def in_database(self) -> Mapping[str, Held]:
        with psycopg.connect(self.database) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            return self.seen_by(connection)

    def seen_by(self, connection: psycopg.Connection) -> Mapping[str, Held]:
        """What the connection's transaction sees."""
        found = {}
        for table in self.keys:
            cursor = connection.execute(f"SELECT * FROM {table}")
            names = [column.name for column in cursor.description or ()]
            found[table] = Held(names, Counter(cursor.fetchall()))
        return found

    def drop_slot(self) -> None:
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [self.slot]
            )


def _differing(found: Counter, expected: Counter) -> str:
    more, less = ([str(row)[:80] for row in sorted(rows, key=str)[:5]] for rows in (found - expected, expected - found))
    return f"too much: {more}, missing: {less}"


def _rows(spark, query: str) -> Counter:
    return Counter(tuple(row) for row in spark.sql(query).collect())


def _last(spark, names: Sequence[str], keys: Sequence[str], log: str) -> Counter:
    """The state that a plain reading of the log gives; values that an event leaves out are taken from before it."""
    found = spark.sql(f"SELECT _op, _position, _missing, _old_key, {', '.join(names)} FROM {log}").collect()
    rows: dict[tuple, dict] = {}
    gone: dict[tuple, dict] = {}
    for event in sorted(found, key=lambda event: event["_position"]):
        if event["_op"] == "t":
            rows.clear()
            continue
        key = tuple(event[name] for name in keys)
        if event["_op"] == "d":
            gone[key] = rows.pop(key, {})
            continue
        row = {name: event[name] for name in names}
        old = tuple(json.loads(event["_old_key"])) if event["_old_key"] else None
        before = _of_old_key(gone, old) if old else rows.get(key, {})
        rows[key] = row | {name: before[name] for name in event["_missing"] or () if name in names}
    return Counter(tuple(row.values()) for row in rows.values())


def _of_old_key(gone: dict[tuple, dict], key: tuple) -> dict:
    texts = tuple(str(part) for part in key)
    return next(row for found, row in reversed(gone.items()) if tuple(str(part) for part in found) == texts)


class Load:
    """Random transactions: several rows, key changes, TOAST, truncates, savepoints, COPY, big and prepared ones."""

    def __init__(self, database: str, seed: int) -> None:
        self._database, self._chance = database, random.Random(seed)

    def work(self, transactions: int) -> None:
        with psycopg.connect(self._database, autocommit=True) as connection:
            for _ in range(transactions):
                self._transaction(connection)

    def _transaction(self, connection) -> None:
        chance = self._chance
        with connection.transaction():
            for _ in range(chance.randrange(1, 6)):
                if chance.random() < 0.15:
                    with connection.transaction(force_rollback=chance.random() < 0.5):
                        connection.execute(self._statement())
                else:
                    connection.execute(self._statement())
        if chance.random() < 0.05:
            gid = f"g{uuid.uuid4().hex[:8]}"
            connection.execute(f"BEGIN; {self._statement()}; PREPARE TRANSACTION '{gid}'")
            connection.execute(f"{chance.choice(['COMMIT', 'ROLLBACK'])} PREPARED '{gid}'")
        if chance.random() < 0.03:
            connection.execute(
                "INSERT INTO accounts SELECT n, 'bulk', n, NULL FROM generate_series(1000, 3000) AS n ON CONFLICT (id) DO UPDATE SET balance = accounts.balance + 1"
            )
        if chance.random() < 0.05:
            with connection.cursor() as cursor, cursor.copy("COPY whole (id, t) FROM STDIN") as copy:
                base = chance.randrange(10**8, 2 * 10**9)
                for n in range(5):
                    copy.write_row((base + n, "copied"))

    def _statement(self) -> str:
        chance = self._chance
        kinds = {
            "account": 6, "new account": 4, "notes": 3, "no account": 3, "move account": 3, "pair": 5, "no pair": 3,
            "move pair": 2, "whole": 4, "move whole": 2, "no whole": 2, "part": 4, "move part": 3, "truncate": 0.3,
        }  # fmt: skip
        kind = chance.choices(list(kinds), list(kinds.values()))[0]
        n, m, day = chance.randrange(1, 90), chance.randrange(1, 90), chance.randrange(0, 58)
        return {
            "account": f"UPDATE accounts SET balance = balance + {m} WHERE id = {n}",
            "new account": f"INSERT INTO accounts VALUES ({n}, 'new', {m}.25, repeat('{m:03}', 1000)) ON CONFLICT DO NOTHING",
            "notes": f"UPDATE accounts SET notes = repeat('{chance.random()}', 200) WHERE id = {n}",
            "no account": f"DELETE FROM accounts WHERE id = {n}",
            "move account": f"UPDATE accounts SET id = {m} WHERE id = {n} AND NOT EXISTS (SELECT FROM accounts WHERE id = {m})",
            "pair": f"INSERT INTO pairs VALUES ({n}, 'b{m % 3}', 'x{m}') ON CONFLICT (a, b) DO UPDATE SET value = excluded.value",
            "no pair": f"DELETE FROM pairs WHERE a = {n}",
            "move pair": f"UPDATE pairs SET b = 'c{m}' WHERE a = {n} AND NOT EXISTS (SELECT FROM pairs WHERE a = {n} AND b = 'c{m}') AND b = (SELECT min(b) FROM pairs WHERE a = {n})",
            "whole": f"INSERT INTO whole VALUES ({n}, 't{m}', repeat('{m:03}', 1000)) ON CONFLICT (id) DO UPDATE SET t = excluded.t",
            "move whole": f"UPDATE whole SET id = {m} WHERE id = {n} AND NOT EXISTS (SELECT FROM whole WHERE id = {m})",
            "no whole": f"DELETE FROM whole WHERE id = {n}",
            "part": f"INSERT INTO parts VALUES ({n}, date '2026-01-01' + {day}, {m}) ON CONFLICT (id, day) DO UPDATE SET v = excluded.v",
            "move part": f"UPDATE parts SET day = date '2026-01-01' + {day} WHERE id = {n} AND day = (SELECT min(day) FROM parts WHERE id = {n}) AND NOT EXISTS (SELECT FROM parts WHERE id = {n} AND day = date '2026-01-01' + {day})",
            "truncate": f"TRUNCATE {chance.choice(['pairs', 'parts', 'whole'])}",
        }[kind]
