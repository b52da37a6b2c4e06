"""Changes that leave values out, made whole: with values of other changes, or of rows that the table holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.changes.filling import InBatch, InTable, Origin
from headwater.sinks.iceberg.changes.batch import Batch
from headwater.sinks.iceberg.changes.gathering import take_rows
from headwater.sinks.iceberg.changes.seeking import Found, Seeker
from headwater.sinks.iceberg.changes.shapes import Shape
from headwater.sinks.iceberg.conform import conform
from headwater.sinks.iceberg.keyscan import KeyColumn

Numbers = npt.NDArray[np.int64]
_Place = tuple[str, int]  # location ("": staged), row


@dataclass(frozen=True)
class Target:
    """The table that they become rows of."""

    schema: pa.Schema
    columns: Sequence[KeyColumn]  # that changes fill, beside the key's
    shape: Shape


@dataclass
class Completed:
    """Rows of the table, and changes that stay without a value."""

    rows: pa.Table
    changes: Numbers  # whose rows they are
    unknown: list[tuple[int, str]] = field(default_factory=list)  # a change's number, the first column


def complete(batch: Batch, changes: Numbers, seeker: Seeker, target: Target) -> Completed:
    """The rows of these staged changes."""
    assert batch.staged is not None  # noqa: S101 - it has staged changes
    filling, names = batch.filling(), {column.name for column in target.columns}
    origins = {int(change): filling.origins(int(change)) for change in changes}
    table = _InTheTable(
        batch, seeker, [o for made in origins.values() for o in made.values() if isinstance(o, InTable)]
    )
    places: dict[str, dict[int, _Place]] = {}
    unknown: dict[int, str] = {}
    for change, made in origins.items():
        for name in sorted(made.keys() & names):
            place = _place(batch, table, made[name])
            if place is not None:
                places.setdefault(name, {})[change] = place
            elif not batch.deletes[change]:
                unknown.setdefault(change, name)
    known = np.array([change for change in changes.tolist() if change not in unknown], np.int64)
    return Completed(_assembled(batch, known, places, target), known, sorted(unknown.items()))


def _place(batch: Batch, table: _InTheTable, origin: Origin) -> _Place | None:
    if isinstance(origin, InTable):
        return table.place(origin)
    if not isinstance(origin, InBatch):
        return None
    if origin.row >= batch.first_staged:
        return "", origin.row - batch.first_staged
    return batch.locations[batch.places.file[origin.row]], int(batch.places.row[origin.row])


class _InTheTable:
    """Where the last row with a key and before a position is."""

    def __init__(self, batch: Batch, seeker: Seeker, wanted: Sequence[InTable]) -> None:
        self._batch = batch
        numbers = np.unique(np.array([origin.key for origin in wanted], np.int64))
        keys = batch.keys_numbered(numbers)
        hits = seeker.rows(seeker.planned(keys), keys) if len(numbers) else {}
        self._found = seeker.positions(hits, batch.keys)
        self._of_key = _by_key(self._found)

    def place(self, origin: InTable) -> _Place | None:
        best, gone = None, not origin.moved
        for position, at in self._of_key.get(origin.key, ()):
            if position < origin.before and (best is None or position > best[0]):
                best = (position, at)
            gone = gone or position == origin.before
        # A former key whose delete has not come may have changed again before it: its value here may be an old one.
        if best is None or not (gone or self._deleted_here(origin)):
            return None
        return self._found.locations[self._found.file[best[1]]], int(self._found.row[best[1]])

    def _deleted_here(self, origin: InTable) -> bool:
        batch = self._batch
        rows = batch.order.of_key(origin.key).tolist()
        return any(batch.deletes[row] and batch.positions.at(row) == origin.before for row in rows)


def _by_key(found: Found) -> dict[int, list[tuple[int, int]]]:
    made: dict[int, list[tuple[int, int]]] = {}
    for at, key in enumerate(found.key.tolist()):
        made.setdefault(key, []).append((found.positions.at(at), at))
    return made


def _assembled(batch: Batch, changes: Numbers, places: Mapping[str, Mapping[int, _Place]], target: Target) -> pa.Table:
    assert batch.staged is not None  # noqa: S101 - as above
    own = batch.staged.take(pa.array(changes - batch.first_staged)).combine_chunks()
    if not own.num_rows:
        return target.schema.empty_table()
    made = conform(target.shape.rows_of(own.to_batches()[0]), target.schema, "")
    filled = {
        column.name: _filled(batch, changes, places[column.name], column, made)
        for column in target.columns
        if column.name in places
    }
    arrays = [filled.get(name, made.column(n)) for n, name in enumerate(target.schema.names)]
    return pa.Table.from_arrays(arrays, schema=target.schema)


def _filled(
    batch: Batch, changes: Numbers, places: Mapping[int, _Place], column: KeyColumn, made: pa.RecordBatch
) -> pa.Array:
    """The column with values from elsewhere where they are missing."""
    assert batch.staged is not None  # noqa: S101 - as above
    own = made.column(made.schema.get_field_index(column.name))
    index = np.arange(len(changes))
    pools, size = [own], len(own)
    by_location: dict[str, list[tuple[int, int]]] = {}
    for at, change in enumerate(changes.tolist()):
        if change in places:
            location, row = places[change]
            by_location.setdefault(location, []).append((at, row))
    for location, wanted in by_location.items():
        rows = np.array([row for _, row in wanted], np.int64)
        if location:
            values = take_rows(location, [column], rows).column(0).combine_chunks()
        else:
            staged = batch.staged.select([column.name]).take(pa.array(rows)).combine_chunks()
            target = pa.schema([pa.field(column.name, column.type)])
            values = conform(staged.to_batches()[0], target, "").column(0)
        pools.append(values if isinstance(values, pa.Array) else pa.concat_arrays(values.chunks))
        index[[at for at, _ in wanted]] = np.arange(size, size + len(rows))
        size += len(rows)
    return pa.concat_arrays(pools).take(pa.array(index))
