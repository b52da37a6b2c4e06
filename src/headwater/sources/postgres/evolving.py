"""What a table's changes of shape mean for its stream: new columns, other homes, or another copy. Pure functions.

The log shows a table's shape when a row comes, and nothing of what DDL did to rows that nobody touched. Where that may be
something, the table is `stale`: it keeps its changes and is copied again, in place of what landed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwater.model.errors import SchemaRefused
from headwater.model.lsn_mark import TableSeen
from headwater.sources.postgres.catalog import CatalogTable
from headwater.sources.postgres.columns import home_of, wider, with_column
from headwater.sources.postgres.log.layout import Layout, LoggedColumn

Homes = tuple[tuple[str, str], ...]
"""Columns of a layout, and the stream's columns that their values go to."""


def learned(seen: TableSeen, stream: str, layout: Layout, kinds: Sequence[str], *, refuses: bool) -> TableSeen:
    """After rows of that layout."""
    columns, shape, stale = seen.columns, dict(seen.shape), seen.stale
    for column, kind in zip(layout.columns, kinds, strict=True):
        number, before = shape.get(column.name, (0, ""))
        if before and before != type_text(column):
            stale = stale or f"column {column.name} got another type"
            _refuse(stream, column, columns[column.name], kind, refuses=refuses)
        shape[column.name] = (number, type_text(column))
        columns = with_column(columns, column.name, kind)
    return replace(seen, columns=columns, shape=shape, stale=stale)


def _refuse(stream: str, column: LoggedColumn, before: str, kind: str, *, refuses: bool) -> None:
    if refuses and wider(before, kind) is None:
        raise SchemaRefused(
            f"{stream}: column {column.name} was {before} and is {kind} now",
            hint="allow it (type_changes: copy), which keeps its values in a column of their own and copies the table again",
        )


def homes(columns: Mapping[str, str], layout: Layout, kinds: Sequence[str]) -> Homes:
    """Where the values of a layout's columns live."""
    return tuple(
        (column.name, home_of(columns, column.name, kind)) for column, kind in zip(layout.columns, kinds, strict=True)
    )


def reconciled(seen: TableSeen, table: CatalogTable, identity: str, *, moved_rows: bool) -> TableSeen:
    """Against the catalog of today; `moved_rows`: partitions came with rows, or went."""
    stale = seen.stale or _why_stale(seen, table, identity, moved_rows=moved_rows)
    shape = {column: (number or table.numbers.get(column, 0), kind) for column, (number, kind) in seen.shape.items()}
    return replace(seen, shape=shape, stale=stale, leaves=leaves_of(table))


def _why_stale(seen: TableSeen, table: CatalogTable, identity: str, *, moved_rows: bool) -> str:
    if seen.published != identity:
        return "its place in the publication is another one"
    if moved_rows:
        return "partitions with rows were attached or detached"
    if set(seen.key) != set(table.key):
        return f"its key is ({', '.join(table.key)}) now"
    names = {number: column for column, (number, _) in seen.shape.items() if number}
    return next(filter(None, (_column_stale(seen, table, column, names) for column in table.layout.columns)), "")


def _column_stale(seen: TableSeen, table: CatalogTable, column: LoggedColumn, names: Mapping[int, str]) -> str:
    """`names`: the columns that were there before, by their numbers."""
    number = table.numbers[column.name]
    known, kind = seen.shape.get(column.name, (0, ""))
    if not known and names.get(number, column.name) != column.name:
        return f"column {names[number]} is called {column.name} now"
    if known and known != number:
        return f"column {column.name} was dropped and added again"
    if not known and column.name in table.filled:
        return f"column {column.name} was added with a value"
    return f"column {column.name} got another type" if kind and kind != type_text(column) else ""


def described(
    before: TableSeen | None, table: CatalogTable, kinds: Sequence[str], identity: str, copied: int
) -> TableSeen:
    """The table as it is copied, in columns that fit what landed of it before."""
    columns = before.columns if before else {}
    for column, kind in zip(table.layout.columns, kinds, strict=True):
        columns = with_column(columns, column.name, kind)
    return TableSeen(
        oid=table.layout.oid,
        copied=copied,
        columns=columns,
        shape={column.name: (table.numbers[column.name], type_text(column)) for column in table.layout.columns},
        key=table.key,
        leaves=leaves_of(table),
        published=identity,
    )


def leaves_of(table: CatalogTable) -> tuple[int, ...]:
    """The partitions, for a mark."""
    return tuple(leaf.oid for leaf in table.leaves) if table.partitioned else ()


def type_text(column: LoggedColumn) -> str:
    return f"{column.type}/{column.modifier}"
