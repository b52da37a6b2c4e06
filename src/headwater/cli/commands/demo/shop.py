"""The demo's shop: a SQLite database, three days of its life, and the pipeline that follows it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

DATABASE = "shop.db"

PIPELINE = """\
# Two tables of the shop, copied to the lake.
pipeline: shop
lease: 10s                        # others take over a dead process after this time
source:
  sql:
    url: sqlite:///shop.db
    tables: [customers, orders]
    cursor: updated_at
sinks:
  - iceberg: {table: "lake.shop.{table}_log", mode: append}   # every version of a row that was read
  - iceberg: {table: "lake.shop.{table}", mode: merge}        # one row per key: the newest
"""

PROJECT = """\
# Shared by the pipelines in this folder. Both lines are the defaults.
progress: sqlite:///.headwater/progress.db
lake: {warehouse: ./lake}
"""

_TABLES = """
CREATE TABLE customers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL, updated_at TIMESTAMP NOT NULL
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers, item TEXT NOT NULL,
    cents INTEGER NOT NULL, state TEXT NOT NULL, updated_at TIMESTAMP NOT NULL
);
"""


@dataclass(frozen=True)
class Day:
    """The changes in the shop between two cycles."""

    title: str
    statements: Sequence[tuple[str, Sequence[object]]]


def _customer(number: int, name: str, city: str, at: str) -> tuple[str, Sequence[object]]:
    return "INSERT INTO customers VALUES (?, ?, ?, ?)", (number, name, city, at)


def _order(number: int, customer: int, item: str, cents: int, at: str) -> tuple[str, Sequence[object]]:
    return "INSERT INTO orders VALUES (?, ?, ?, ?, 'new', ?)", (number, customer, item, cents, at)


def _state(number: int, state: str, at: str) -> tuple[str, Sequence[object]]:
    return "UPDATE orders SET state = ?, updated_at = ? WHERE id = ?", (state, at, number)


def _move(number: int, city: str, at: str) -> tuple[str, Sequence[object]]:
    return "UPDATE customers SET city = ?, updated_at = ? WHERE id = ?", (city, at, number)


DAYS = (
    Day(
        "the shop opens: 4 customers, 6 orders",
        (
            _customer(1, "Ada", "London", "2026-03-02 08:00:00.000001"),
            _customer(2, "Edgar", "San Jose", "2026-03-02 08:05:00"),
            _customer(3, "Grace", "New York", "2026-03-02 08:05:00"),
            _customer(4, "Michael", "Toronto", "2026-03-02 09:10:00"),
            _order(1, 1, "punched cards", 1250, "2026-03-02 09:12:00"),
            _order(2, 1, "loom oil", 480, "2026-03-02 09:12:30"),
            _order(3, 2, "table lamp", 8900, "2026-03-02 10:00:00"),
            _order(4, 3, "nanosecond of wire", 99, "2026-03-02 10:30:00"),
            _order(5, 3, "moth trap", 1999, "2026-03-02 11:45:00"),
            _order(6, 4, "elephant, small", 15000, "2026-03-02 12:00:00.123456"),
        ),
    ),
    Day(
        "3 new orders, 2 shipped, one customer moves, one is new",
        (
            _state(1, "shipped", "2026-03-03 08:00:00"),
            _state(3, "shipped", "2026-03-03 08:00:00"),
            _move(2, "Oxford", "2026-03-03 08:30:00"),
            _customer(5, "Katherine", "Hampton", "2026-03-03 09:00:00"),
            _order(7, 5, "slide rule", 3400, "2026-03-03 09:01:00"),
            _order(8, 1, "notebook G", 750, "2026-03-03 09:30:00"),
            _order(9, 2, "join, inner", 100, "2026-03-03 10:00:00"),
        ),
    ),
    Day(
        "2 new orders, 1 cancelled, 2 shipped",
        (
            _state(2, "cancelled", "2026-03-04 08:00:00"),
            _state(7, "shipped", "2026-03-04 08:01:00"),
            _state(8, "shipped", "2026-03-04 08:01:00"),
            _order(10, 4, "peanuts", 650, "2026-03-04 09:00:00"),
            _order(11, 5, "trajectory", 120000, "2026-03-04 09:15:00"),
        ),
    ),
)


def open_shop(folder: Path) -> None:
    """Create the empty shop, the pipeline and the project's settings."""
    (folder / "shop.yaml").write_text(PIPELINE)
    (folder / "headwater.yaml").write_text(PROJECT)
    with closing(sqlite3.connect(folder / DATABASE)) as shop:
        shop.executescript(_TABLES)


def apply_day(folder: Path, day: Day) -> None:
    """Apply one day, in one transaction."""
    with closing(sqlite3.connect(folder / DATABASE)) as shop, shop:
        for statement, values in day.statements:
            shop.execute(statement, values)


def shop_rows(folder: Path, table: str) -> Sequence[tuple[object, ...]]:
    """The rows of the shop, for comparison."""
    with closing(sqlite3.connect(folder / DATABASE)) as shop:
        return shop.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()  # noqa: S608 - a name of ours


def versions(table: str) -> int:
    """The number of row versions that the days wrote to a table: exactly what the `_log` table must hold."""
    return sum(table in statement for day in DAYS for statement, _ in day.statements)
