"""How the demo ends: what landed beside what the shop holds, and the commands to look further."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.demo_shop import stock, versions
from headwater.cli.output import table
from headwater.model.errors import RunError
from headwater.model.marks import Mark, StreamsMark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.model.progress import HistoryEntry

_STREAMS = ("customers", "orders")

_PYICEBERG = '''\
"""Read the demo's lake with pyiceberg: no Spark, no Java."""

import sqlite3
from pathlib import Path

from pyiceberg.table import StaticTable

catalog = sqlite3.connect(Path(__file__).parent / "lake" / "catalog.db")
(metadata,) = catalog.execute(
    "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = 'shop' AND table_name = 'orders'"
).fetchone()
print(StaticTable.from_metadata(metadata).scan(row_filter="state = 'shipped'").to_arrow().to_pandas())
'''

_DUCKDB = '''\
"""Ask the demo's lake with DuckDB (pip install duckdb)."""

import sqlite3
from pathlib import Path

import duckdb
from pyiceberg.table import StaticTable

catalog = sqlite3.connect(Path(__file__).parent / "lake" / "catalog.db")
found = catalog.execute("SELECT table_name, metadata_location FROM iceberg_tables WHERE table_namespace = 'shop'")
for name, metadata in found.fetchall():
    duckdb.register(name, StaticTable.from_metadata(metadata).scan().to_arrow())
print(duckdb.sql("""
    SELECT c.name, c.city, sum(o.cents) / 100 AS spent
    FROM orders o JOIN customers c ON c.id = o.customer_id
    GROUP BY ALL ORDER BY spent DESC
"""))
'''


def compare(spark: SparkSession, folder: Path) -> Mapping[str, Mapping[str, int]]:
    """Rows in the shop and in the lake. Raises RunError if the lake is not exactly what it must be."""
    found: dict[str, dict[str, int]] = {}
    for name in _STREAMS:
        shop = stock(folder, name)
        lake = spark.sql(f"SELECT * FROM lake.shop.{name} ORDER BY id").collect()  # noqa: S608 - a name of ours
        (logged, distinct) = spark.sql(
            f"SELECT count(*), count(DISTINCT id, updated_at) FROM lake.shop.{name}_log"  # noqa: S608
        ).first() or (0, 0)
        found[name] = {"shop": len(shop), "lake": len(lake), "log": logged, "versions": versions(name)}
        # All but the last column: times are texts in SQLite and instants of their own type in the lake.
        same = [tuple(row)[:-1] for row in lake] == [row[:-1] for row in shop]
        if not same or not logged == distinct == versions(name):
            raise RunError(f"lake.shop.{name} is not what the shop holds: {found[name]}")
    return found


def landed_table(found: Mapping[str, Mapping[str, int]]) -> str:
    rows = [(name, counts["shop"], counts["lake"], counts["versions"], counts["log"]) for name, counts in found.items()]
    columns = (
        "table",
        "rows in the shop",
        "rows in lake.shop.TABLE",
        "versions written",
        "rows in lake.shop.TABLE_log",
    )
    return f"{table(columns, rows)}\nEvery row as the shop has it, every version once: nothing lost, nothing twice."


def marks_table(mark: Mark | None, intended: Mark) -> str:
    """One line per stream: where the mark stands, and up to where the killed run wanted to bring it."""
    if not isinstance(mark, StreamsMark) or not isinstance(intended, StreamsMark):
        return f"{mark} → {intended}"
    rows = [(name, mark.streams.get(name, "none"), end) for name, end in sorted(intended.streams.items())]
    return table(("stream", "mark", "intended"), rows)


def history_table(entries: Sequence[HistoryEntry]) -> str:
    rows = [(entry.kind, entry.rows, f"{entry.seconds:.1f}", entry.end, entry.epoch, entry.why) for entry in entries]
    return table(("what", "rows", "seconds", "up to", "epoch", "note"), rows)


def write_questions(folder: Path) -> None:
    (folder / "ask_pyiceberg.py").write_text(_PYICEBERG)
    (folder / "ask_duckdb.py").write_text(_DUCKDB)


def commands(folder: Path) -> Sequence[str]:
    """What a user can type next, as it works from here."""
    headwater, python = _program("headwater"), _program("python")
    where = _relative(folder)
    project = f"--project {where}"
    missing = "" if importlib.util.find_spec("duckdb") else "   # after: pip install duckdb"
    return (
        f'{headwater} sql "SELECT state, count(*) AS orders, sum(cents) / 100 AS total FROM lake.shop.orders GROUP BY state" {project}',  # noqa: S608 - for people
        f"{headwater} history shop {project}",
        f"{headwater} marks shop {project}",
        f"{python} {_relative(folder / 'ask_pyiceberg.py')}",
        f"{python} {_relative(folder / 'ask_duckdb.py')}{missing}",
    )


def _program(name: str) -> str:
    """Its bare name when that is what the shell would start, else the one beside our interpreter."""
    ours = Path(sys.executable).parent / name
    found = shutil.which(name)
    if not ours.exists() or (found and Path(found) == ours):
        return name
    return _relative(ours)


def _relative(path: Path) -> str:
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
