"""A shop in PostgreSQL, a pipeline over it, and the plain-Python oracle of what must have landed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Shop(World):
    """Orders that land in files and in a table of the lake."""

    def __init__(
        self, database: str, folder: Path, spark: SparkSession, table: str, mode: str, *, url: str = "", store: str = ""
    ) -> None:
        self.database, self.table, self.mode = database, table, mode
        with psycopg.connect(database) as connection:
            connection.execute("""
                CREATE TABLE orders (
                    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
                    amount numeric(12,2) NOT NULL,
                    note text)""")
        cursor = "id" if mode == "append" else "updated_at"
        super().__init__(
            folder,
            {"sql": {"url": url or database, "table": "public.orders", "cursor": cursor}},
            [{"files": {"path": "./files"}}, {"iceberg": {"table": table, "mode": mode}}],
            name="orders",
            store=store or "sqlite:///progress.db",
            spark=spark,
            lease="60s",  # renewed seldom: a process that is frozen while it renews its lease locks the store for all
        )

    def insert(self, count: int) -> None:
        with psycopg.connect(self.database) as connection:
            connection.execute(
                "INSERT INTO orders (amount, note) SELECT n / 7.0, 'note ' || n FROM generate_series(1, %s) n", [count]
            )

    def update(self, below: int) -> None:
        """Change old rows; an append pipeline reads by id and is not meant to see it."""
        if self.mode == "merge":
            with psycopg.connect(self.database) as connection:
                connection.execute(
                    "UPDATE orders SET amount = amount + 1, updated_at = clock_timestamp() WHERE id <= %s", [below]
                )

    def expected(self) -> Counter:
        with psycopg.connect(self.database) as connection:
            return Counter(connection.execute("SELECT id, amount, note FROM orders").fetchall())

    def in_lake(self) -> Counter:
        return self.count(f"SELECT id, amount, note FROM {self.table}")

    def in_files(self) -> Counter:
        return Counter((row["id"], row["amount"], row["note"]) for row in self.published())
