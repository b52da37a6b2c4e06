"""The first copy of a captured table against the SQL source's full load of the same: reading alone, in one process.

Both read the same pages, in splits one after the other, into Arrow batches that are thrown away.
Run: python bench/initial_copy.py [ROWS]
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from contextlib import closing

import psycopg
import pyarrow as pa
from full_load import make_table

from headwater.config.sources.postgres import PostgresSourceSettings
from headwater.model.rows import RowNames
from headwater.model.secret import Secret
from headwater.model.types import Column, arrow_type
from headwater.pg.connection import PostgresSession
from headwater.services.stack.postgres import running_postgres
from headwater.sources.postgres.catalog import ColumnTypes, change_schema, tables_of
from headwater.sources.postgres.initial_copy.snapshot import CopySnapshot
from headwater.sources.postgres.initial_copy.windows import CopyRequest, copied_rows
from headwater.sources.sql.postgres.split import PostgresSplit

ROUNDS = 5  # and one more to warm up
SPLITS = 4


def main(rows: int) -> None:
    with running_postgres() as server:
        url = Secret(server.url())
        make_table(server.url(), "orders", rows)
        with closing(CopySnapshot(url)) as snapshot:
            copies = copied_rows(url, order(url, snapshot)).splits
            loads = full_load(url, snapshot.name)
            print(f"{rows:,} rows × 7 columns, {SPLITS} splits one after the other, median of {ROUNDS}")
            times: dict[str, list[float]] = {"full load": [], "first copy": []}
            for number in range(ROUNDS + 1):
                sides = [("full load", loads), ("first copy", copies)]
                for name, splits in sides if number % 2 else sides[::-1]:
                    began = time.monotonic()
                    counted = sum(batch.num_rows for split in splits for batch in split.read())
                    times[name].append(time.monotonic() - began)
                    assert counted == rows, (name, counted)
                    print(f"  {name:<11} {times[name][-1]:6.2f} s", flush=True)
    usual = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
    for name, seconds in usual.items():
        print(f"{name:<11} {seconds:6.2f} s, {rows / seconds:,.0f} rows per second")
    print(f"first copy / full load  {usual['first copy'] / usual['full load']:.2f} ×   (at most 1.1)")


def order(url: Secret, snapshot: CopySnapshot) -> CopyRequest:
    session = PostgresSession(url)
    settings = PostgresSourceSettings(url=url.reveal(), tables=["orders"], slot="unused")
    table = tables_of(session, settings, {}).tables["orders"]
    column_types = ColumnTypes(session).of(table.layout, ())
    session.close()
    names = [column.name for column in table.layout.columns]
    fields = [pa.field(name, arrow_type(kind)) for name, kind in zip(names, column_types, strict=True)]
    return CopyRequest(
        stream="orders", table=table, column_types=column_types, homes=tuple(zip(names, names, strict=True)),
        schema=change_schema(fields), where="", snapshot=snapshot.name, ordinal=snapshot.lsn, moment=snapshot.moment,
        first=0, end=None, replaces=False, splits=SPLITS,
    )  # fmt: skip


def full_load(url: Secret, snapshot: str) -> list[PostgresSplit]:
    """As the SQL source reads a table by its pages."""
    column_types = {
        "id": "int64", "customer": "string", "amount": "decimal(12,2)", "updated_at": "timestamptz", "flag": "bool",
        "note": "string", "payload": "string",
    }  # fmt: skip
    columns = tuple(Column(name, kind, nullable=True) for name, kind in column_types.items())
    query_columns = "id, customer, amount, updated_at, flag, note, payload::text"
    with psycopg.connect(url.reveal()) as connection:
        (pages,) = connection.execute("SELECT pg_relation_size('orders') / 8192").fetchone()
    edges = [pages * number // SPLITS for number in range(SPLITS)]
    ends = [f" AND ctid < '({edge},0)'::tid" for edge in edges[1:]] + [""]
    first = PostgresSplit(RowNames("orders", columns, ("id",), "id"), url, snapshot, "")
    return [
        dataclasses.replace(first, sql=f"SELECT {query_columns} FROM orders WHERE ctid >= '({edge},0)'::tid{end}")
        for edge, end in zip(edges, ends, strict=True)
    ]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3_000_000)
