"""What a window copies of one table, cut into splits."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import psycopg
import pyarrow as pa

from headwater.model.changes import CHANGE_COLUMNS, POSITION
from headwater.model.errors import SnapshotGone
from headwater.model.secret import Secret
from headwater.sources.postgres.catalog import CatalogTable
from headwater.sources.postgres.change_schema import ARRIVAL, EVENT_KEY, ROW
from headwater.sources.postgres.copying.pages import cut_pages, split_ranges
from headwater.sources.postgres.copying.session import CopySession, broken
from headwater.sources.postgres.copying.splits import CopySplit
from headwater.sources.postgres.copying.statement import CopiedColumn
from headwater.sources.split_rows import ArrowChangeRows

__all__ = ["CopyOrder", "copied_rows", "cut_pages", "why_not_copied"]


@dataclass(frozen=True)
class CopyOrder:
    """Some of a table's pages, at one snapshot. What its layout leaves out (generated columns) is not read."""

    stream: str
    table: CatalogTable  # with the heaps as they were when the copy began: pages count by them
    kinds: tuple[str, ...]  # of the layout's columns
    homes: tuple[tuple[str, str], ...]  # column of the table → column of the stream
    schema: pa.Schema  # of the stream in this window (`change_schema`)
    where: str
    snapshot: str
    place: int  # of the snapshot in the log, as positions count it (`LsnMark.place`)
    moment: int
    first: int  # a page (`pages.py`); 0: the beginning
    end: int | None  # None: all the rest
    replaces: bool  # what landed of the table before is truncated first
    splits: int  # at most
    declared: tuple[str, ...] = ()  # the server's names of the columns' types, for messages


def copied_rows(url: Secret, order: CopyOrder) -> ArrowChangeRows:
    """The rows of the order; nothing is read yet."""
    homes = dict(order.homes)
    columns = _columns(order)
    key = order.table.key if set(order.table.key) <= homes.keys() else ()
    parts = split_ranges(order.table.leaves, order.first, order.end, order.splits) or [()]
    splits = tuple(
        CopySplit(
            stream=order.stream,
            url=url,
            snapshot=order.snapshot,
            ranges=ranges,
            place=order.place,
            moment=order.moment,
            key=key,
            columns=columns,
            schema=order.schema,
            homes=homes,
            where=order.where,
            replaces=order.replaces and number == 0,
        )
        for number, ranges in enumerate(parts)
    )
    beside = (*CHANGE_COLUMNS, ROW)
    return ArrowChangeRows(
        order.stream,
        order.schema,
        tuple(homes[name] for name in key),
        (POSITION,),
        splits,
        table_columns=tuple(name for name in order.schema.names if name not in beside),
        event_key=EVENT_KEY,
        arrival=ARRIVAL,
        is_copy=True,
    )


def why_not_copied(url: Secret, order: CopyOrder) -> str:
    """Why these pages can no longer be copied in their snapshot; empty: they can. Asked before a window is tried again."""
    try:
        with contextlib.closing(CopySession(url, order.snapshot, order.stream)) as session:
            for ranges in split_ranges(order.table.leaves, order.first, order.end, parts=1):
                for heap in ranges:
                    session.check(heap, _columns(order))
    except SnapshotGone as gone:
        return gone.message
    except psycopg.Error as error:
        raise broken(order.stream, url, error) from None
    return ""


def _columns(order: CopyOrder) -> tuple[CopiedColumn, ...]:
    declared = order.declared or ("",) * len(order.kinds)
    return tuple(
        CopiedColumn(column.name, kind, column.type, name)
        for column, kind, name in zip(order.table.layout.columns, order.kinds, declared, strict=True)
    )
