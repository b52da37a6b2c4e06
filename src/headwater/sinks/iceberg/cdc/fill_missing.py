"""Completes changes that leave values out, with values of other changes or of the table's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.changes.versions import InBatch, InTable, Origin
from headwater.sinks.iceberg.cdc.batch import Batch, KeyLookup, LocatedRows
from headwater.sinks.iceberg.cdc.change_files import TableLayout
from headwater.sinks.iceberg.data_files import ArrowColumn, one_array, take_rows
from headwater.sinks.rejects import conform

Numbers = npt.NDArray[np.int64]
_Address = tuple[str, int]  # location ("": staged), row


@dataclass(frozen=True)
class CompletionTarget:
    """The table that the changes become rows of."""

    schema: pa.Schema
    columns: Sequence[ArrowColumn]  # that changes fill, beside the key's
    layout: TableLayout


@dataclass
class CompleteRows:
    """Rows of the table, and changes with an unknown value."""

    rows: pa.Table
    changes: Numbers  # whose rows they are
    unknown: list[tuple[int, str]] = field(default_factory=list)  # a change's number, the first column


def complete_changes(batch: Batch, changes: Numbers, lookup: KeyLookup, target: CompletionTarget) -> CompleteRows:
    """The rows of these staged changes."""
    assert batch.staged is not None  # noqa: S101 - it has staged changes
    missing, names = batch.missing_values(), {column.name for column in target.columns}
    origins = {int(change): missing.origins(int(change)) for change in changes}
    in_table = [origin for values in origins.values() for origin in values.values() if isinstance(origin, InTable)]
    table = _TableLookup(batch, lookup, in_table)
    addresses: dict[str, dict[int, _Address]] = {}
    unknown: dict[int, str] = {}
    for change, values in origins.items():
        for name in sorted(values.keys() & names):
            address = _address(batch, table, values[name])
            if address is not None:
                addresses.setdefault(name, {})[change] = address
            elif not batch.deletes[change]:
                unknown.setdefault(change, name)
    complete = np.array([change for change in changes.tolist() if change not in unknown], np.int64)
    return CompleteRows(_assemble(batch, complete, addresses, target), complete, sorted(unknown.items()))


def _address(batch: Batch, table: _TableLookup, origin: Origin) -> _Address | None:
    if isinstance(origin, InTable):
        return table.address(origin)
    if not isinstance(origin, InBatch):
        return None
    if origin.row >= batch.first_staged:
        return "", origin.row - batch.first_staged
    return batch.locations[batch.addresses.file[origin.row]], int(batch.addresses.row[origin.row])


class _TableLookup:
    """Finds the last row with a key and before a position."""

    def __init__(self, batch: Batch, lookup: KeyLookup, origins: Sequence[InTable]) -> None:
        self._batch = batch
        numbers = np.unique(np.array([origin.key for origin in origins], np.int64))
        keys = batch.keys_numbered(numbers)
        hits = lookup.rows(lookup.plan_files(keys), keys) if len(numbers) else {}
        self._rows = lookup.locate(hits, batch.keys)
        self._by_key = _by_key(self._rows)

    def address(self, origin: InTable) -> _Address | None:
        best, deleted = None, not origin.is_old_key
        for position, at in self._by_key.get(origin.key, ()):
            if position < origin.before and (best is None or position > best[0]):
                best = (position, at)
            deleted = deleted or position == origin.before
        # An old key whose delete has not arrived may have changed again before it: the table's value may be outdated.
        if best is None or not (deleted or self._is_deleted_in_batch(origin)):
            return None
        return self._rows.locations[self._rows.file[best[1]]], int(self._rows.row[best[1]])

    def _is_deleted_in_batch(self, origin: InTable) -> bool:
        batch = self._batch
        rows = batch.order.of_key(origin.key).tolist()
        return any(batch.deletes[row] and batch.positions.at(row) == origin.before for row in rows)


def _by_key(rows: LocatedRows) -> dict[int, list[tuple[int, int]]]:
    by_key: dict[int, list[tuple[int, int]]] = {}
    for at, key in enumerate(rows.key.tolist()):
        by_key.setdefault(key, []).append((rows.positions.at(at), at))
    return by_key


def _assemble(
    batch: Batch, changes: Numbers, addresses: Mapping[str, Mapping[int, _Address]], target: CompletionTarget
) -> pa.Table:
    assert batch.staged is not None  # noqa: S101 - as above
    staged = batch.staged.take(pa.array(changes - batch.first_staged)).combine_chunks()
    if not staged.num_rows:
        return target.schema.empty_table()
    rows = conform(target.layout.table_rows(staged.to_batches()[0]), target.schema, "")
    filled = {
        column.name: _fill(batch, changes, addresses[column.name], column, rows)
        for column in target.columns
        if column.name in addresses
    }
    arrays = [filled.get(name, rows.column(n)) for n, name in enumerate(target.schema.names)]
    return pa.Table.from_arrays(arrays, schema=target.schema)


def _fill(
    batch: Batch, changes: Numbers, addresses: Mapping[int, _Address], column: ArrowColumn, rows: pa.RecordBatch
) -> pa.Array:
    """The column, with the values at these addresses where they are missing."""
    assert batch.staged is not None  # noqa: S101 - as above
    values = rows.column(rows.schema.get_field_index(column.name))
    index = np.arange(len(changes))
    pools, size = [values], len(values)
    by_location: dict[str, list[tuple[int, int]]] = {}
    for at, change in enumerate(changes.tolist()):
        if change in addresses:
            location, row = addresses[change]
            by_location.setdefault(location, []).append((at, row))
    for location, pairs in by_location.items():
        numbers = np.array([row for _, row in pairs], np.int64)
        if location:
            pools.append(one_array(take_rows(location, [column], numbers).column(0)))
        else:
            staged = batch.staged.select([column.name]).take(pa.array(numbers)).combine_chunks()
            schema = pa.schema([pa.field(column.name, column.type)])
            pools.append(conform(staged.to_batches()[0], schema, "").column(0))
        index[[at for at, _ in pairs]] = np.arange(size, size + len(numbers))
        size += len(numbers)
    return pa.concat_arrays(pools).take(pa.array(index))
