"""Random transactions against captured tables: rows and keys, and DDL."""

from __future__ import annotations

import random
import uuid

import psycopg

TABLES = """
CREATE TABLE shifting (id int PRIMARY KEY, t text);
CREATE TABLE parts_3 (id int, day date CHECK (day >= '2026-03-01' AND day < '2026-04-01') NOT NULL, v int);
ALTER TABLE parts_3 ADD PRIMARY KEY (id, day);
INSERT INTO shifting SELECT n, 't' || n FROM generate_series(1, 30) AS n;
"""
# Names come back after they were dropped, and two of a kind are renamed to each other.
_COLUMNS = {
    "c0": "int",
    "c1": "int",
    "c2": "text",
    "c3": "text DEFAULT 'third'",
    "c4": "numeric(10, 2)",
    "c5": "date DEFAULT '2026-05-05'",
}
_COUNTERPART = {"c0": "c1", "c1": "c0", "c2": "c3", "c3": "c2"}


class DdlLoad:
    """The table `shifting`, whose columns come and go, and a partition of `parts` that does."""

    def __init__(self, database: str, seed: int) -> None:
        self._database, self._chance = database, random.Random(seed)

    def work(self) -> None:
        chance = self._chance
        with psycopg.connect(self._database, autocommit=True) as connection:
            with connection.transaction(force_rollback=chance.random() < 0.2):
                for _ in range(chance.randrange(1, 4)):
                    connection.execute(self._row(connection))
                    if chance.random() < 0.5:
                        connection.execute(self._ddl(connection))
            if chance.random() < 0.2:
                connection.execute(self._ddl(connection))
            if chance.random() < 0.2:
                self._move_partition(connection)

    def _row(self, connection: psycopg.Connection) -> str:
        chance, key = self._chance, self._chance.randrange(1, 60)
        names = [name for name in self._names(connection) if chance.random() < 0.7]
        kind = chance.choice(["insert", "insert", "update", "delete"])
        if kind == "insert":
            values = [str(key), f"'i{chance.randrange(99)}'", *(self._value(name) for name in names)]
            columns = ", ".join(["id", "t", *names])
            return f"INSERT INTO shifting ({columns}) VALUES ({', '.join(values)}) ON CONFLICT DO NOTHING"
        if kind == "update":
            changed = [f"t = 'u{chance.randrange(99)}'", *(f"{name} = {self._value(name)}" for name in names)]
            return f"UPDATE shifting SET {', '.join(changed)} WHERE id BETWEEN {key} AND {key + 3}"
        return f"DELETE FROM shifting WHERE id = {key}"

    def _ddl(self, connection: psycopg.Connection) -> str:
        chance, present = self._chance, self._names(connection)
        absent = [name for name in _COLUMNS if name not in present]
        movable = [name for name in present if _COUNTERPART.get(name) in absent]
        kind = chance.choice(["add", "add", "drop", "rename", "widen"])
        if kind == "rename" and movable:
            name = chance.choice(movable)
            return f"ALTER TABLE shifting RENAME {name} TO {_COUNTERPART[name]}"
        if kind == "widen" and "c0" in present:
            return "ALTER TABLE shifting ALTER c0 TYPE bigint"
        if (kind == "drop" or not absent) and present:
            return f"ALTER TABLE shifting DROP {chance.choice(present)}"
        name = chance.choice(absent)
        return f"ALTER TABLE shifting ADD {name} {_COLUMNS[name]}"

    def _move_partition(self, connection: psycopg.Connection) -> None:
        n = self._chance.randrange(1, 90)
        connection.execute(f"INSERT INTO parts_3 VALUES ({n}, '2026-03-09', {n}) ON CONFLICT DO NOTHING")
        (attached,) = connection.execute(
            "SELECT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = 'parts_3'::regclass)"
        ).fetchone() or (False,)
        connection.execute(
            "ALTER TABLE parts DETACH PARTITION parts_3"
            if attached
            else "ALTER TABLE parts ATTACH PARTITION parts_3 FOR VALUES FROM ('2026-03-01') TO ('2026-04-01')"
        )

    def _value(self, name: str) -> str:
        number = self._chance.randrange(1000)
        kinds = {"c2": f"'{number}'", "c3": f"'{number}'", "c4": f"{number}.25", "c5": f"date '2026-01-01' + {number}"}
        return kinds.get(name, str(number))

    @staticmethod
    def _names(connection: psycopg.Connection) -> list[str]:
        rows = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'shifting'::regclass AND attnum > 2 AND NOT attisdropped"
        )
        return [name for (name,) in rows]


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
                        connection.execute(self.statement())
                else:
                    connection.execute(self.statement())
        if chance.random() < 0.05:
            gid = f"g{uuid.uuid4().hex[:8]}"
            connection.execute(f"BEGIN; {self.statement()}; PREPARE TRANSACTION '{gid}'")
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

    def statement(self) -> str:
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
