"""Copies of tables of a test's database, as a cycle would make them."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from headwater.config.sources.postgres import PostgresSourceSettings
from headwater.model.rows import Reject, Rows
from headwater.model.secret import Secret
from headwater.model.types import arrow_type
from headwater.pg.connection import PostgresSession
from headwater.sources.postgres.catalog import CatalogTable, ColumnTypes, change_schema, tables_of
from headwater.sources.postgres.initial_copy.snapshot import CopySnapshot
from headwater.sources.postgres.initial_copy.windows import CopyRequest, copied_rows


@contextmanager
def snapshot_of(url: str, **how) -> Iterator[CopySnapshot]:
    snapshot = CopySnapshot(Secret(url), **how)
    try:
        yield snapshot
    finally:
        snapshot.close()


def order_for(
    url: str,
    snapshot: CopySnapshot,
    stream: str,
    *,
    table: CatalogTable | None = None,
    as_text: Sequence[str] = (),
    lake: Mapping[str, str] | None = None,  # the stream's columns, where they are not the table's
    homes: Mapping[str, str] | None = None,
    **more,
) -> CopyRequest:
    session = PostgresSession(Secret(url))
    table = table or catalog_table(url, stream)
    column_types, declared = ColumnTypes(session).of(table.layout, as_text), ColumnTypes(session).declared(table.layout)
    session.close()
    names = [column.name for column in table.layout.columns]
    columns = lake or dict(zip(names, column_types, strict=True))
    order = CopyRequest(
        stream=stream,
        table=table,
        column_types=column_types,
        homes=tuple((homes or {name: name for name in names}).items()),
        schema=change_schema(pa.field(name, arrow_type(kind)) for name, kind in columns.items()),
        where="",
        snapshot=snapshot.name,
        ordinal=snapshot.lsn,
        moment=snapshot.moment,
        first=0,
        end=None,
        replaces=False,
        splits=1,
        declared=declared,
    )
    return dataclasses.replace(order, **more)


def catalog_table(url: str, stream: str) -> CatalogTable:
    session = PostgresSession(Secret(url))
    settings = PostgresSourceSettings(url=url, tables=[stream], slot="unused")
    table = tables_of(session, settings, {}).tables[stream]
    session.close()
    return table


def rows_of(url: str, stream: str, **how) -> list[dict]:
    """All of a table, at a snapshot of its own."""
    with snapshot_of(url) as snapshot:
        return read(copied_rows(Secret(url), order_for(url, snapshot, stream, **how)))


def read(rows: Rows) -> list[dict]:
    """Every split, as a worker would get it."""
    rows_ = []
    for split in rows.splits:
        for batch in pickle.loads(pickle.dumps(split)).read():  # noqa: S301 - our own
            batch.validate(full=True)
            assert batch.schema == rows.schema
            rows_ += batch.to_pylist()
    return rows_


def read_with_rejects(rows: Rows) -> tuple[list[dict], list[Reject]]:
    rows_: list[dict] = []
    rejects: list[Reject] = []
    for split in rows.splits:
        for batch in split.read(rejects.append):
            assert batch.schema == rows.schema
            rows_ += batch.to_pylist()
    return rows_, rejects
