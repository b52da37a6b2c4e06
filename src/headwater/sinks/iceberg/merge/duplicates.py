"""Rows of one batch that share a key: the latest wins, by the source's own order (G7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import AmbiguousKey
from headwater.sinks.iceberg.data_files import ArrowColumn, read_columns, take_rows
from headwater.sinks.iceberg.merge.key_lookup import plain

Bools = npt.NDArray[np.bool_]
_FALSE = pa.scalar(value=False)


@dataclass(frozen=True)
class BatchColumns:
    """The columns of a batch's files: those of the key, those that order versions of a row, and all."""

    key: tuple[ArrowColumn, ...]
    order: tuple[ArrowColumn, ...]
    all: tuple[ArrowColumn, ...]


def replaced_rows(locations: Sequence[str], columns: BatchColumns, stream: str) -> dict[str, npt.NDArray[np.int64]]:
    """Per file, the numbers of rows that a later row with the same key replaces.

    Raises AmbiguousKey if two different rows share a key and their order is unknown.
    """
    keys = [f"k{n}" for n in range(len(columns.key))]
    orders = [f"o{n}" for n in range(len(columns.order))]
    repeated = _repeated(_key_and_order(locations, columns, [*keys, *orders]), keys)
    if repeated.num_rows == 0:
        return {}
    # Arrow sorts NULL last: here it stands before every value.
    sort_keys = [*((name, "ascending") for name in keys), *((name, "descending") for name in orders)]
    repeated = repeated.take(pc.sort_indices(repeated, sort_keys=sort_keys))
    first_of_key = _changes(repeated, keys)
    first_of_order = first_of_key | _changes(repeated, orders)
    names = ", ".join(column.name for column in columns.key)
    ties = _level_with_latest(first_of_key, first_of_order)
    _check_ties(locations, columns, repeated, ties, f"{stream}: key ({names})")
    lost = repeated.filter(pa.array(~first_of_key))
    files, rows = lost.column("file").to_numpy(), lost.column("row").to_numpy()
    return {locations[n]: np.sort(rows[files == n]) for n in np.unique(files)}


def _key_and_order(locations: Sequence[str], columns: BatchColumns, names: Sequence[str]) -> pa.Table:
    tables = []
    for number, location in enumerate(locations):
        table = read_columns(location, [*columns.key, *columns.order])
        arrays = dict(zip(names, map(plain, table.columns), strict=True))
        arrays["file"] = pa.array(np.full(table.num_rows, number))
        arrays["row"] = pa.array(np.arange(table.num_rows))
        tables.append(pa.table(arrays))
    return pa.concat_tables(tables)


def _repeated(rows: pa.Table, keys: list[str]) -> pa.Table:
    counts = rows.select(keys).group_by(keys).aggregate([([], "count_all")])
    repeated = counts.filter(pc.greater(counts.column("count_all"), 1)).select(keys)
    if repeated.num_rows == 0:
        return rows.slice(0, 0)
    return rows.join(repeated, keys=keys, join_type="left semi").combine_chunks()


def _changes(rows: pa.Table, names: Sequence[str]) -> Bools:
    """True where a row differs from the one before it; the first one does."""
    changed: Bools = np.zeros(rows.num_rows, dtype=np.bool_)
    for name in names:
        column = plain(rows.column(name))
        differs = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).fill_null(_FALSE)
        nulls = pc.not_equal(column.slice(1).is_null(), column.slice(0, len(column) - 1).is_null())
        changed[1:] |= np.asarray(differs) | np.asarray(nulls)
    changed[:1] = True
    return changed


def _level_with_latest(first_of_key: Bools, first_of_order: Bools) -> npt.NDArray[np.int64]:
    """For each row, the number of its tie, if it stands level with others as the latest of its key; else -1."""
    run = np.cumsum(first_of_order) - 1
    is_latest = first_of_key[np.flatnonzero(first_of_order)][run]
    return np.where(is_latest & (np.bincount(run)[run] > 1), run, -1)


def _check_ties(
    locations: Sequence[str], columns: BatchColumns, rows: pa.Table, ties: npt.NDArray[np.int64], subject: str
) -> None:
    """Rows that stand level with the latest of their key must be equal to it in every column."""
    level = np.flatnonzero(ties >= 0)
    contents = _contents(locations, columns, rows.take(pa.array(level)))
    neighbours = zip(level[:-1], level[1:], contents[:-1], contents[1:], strict=True)
    different = {int(ties[at]) for before, at, old, new in neighbours if ties[before] == ties[at] and old != new}
    if different:
        raise AmbiguousKey(
            f"{subject}: {len(different)} keys have several different rows in one window, and their order is unknown",
            hint="choose a key that names one row, or a cursor that differs between versions of a row",
        )


def _contents(locations: Sequence[str], columns: BatchColumns, rows: pa.Table) -> list[str]:
    """The whole rows as texts that can be compared."""
    files, numbers = rows.column("file").to_numpy(), rows.column("row").to_numpy()
    texts = [""] * rows.num_rows
    for file in np.unique(files):
        at = np.flatnonzero(files == file)
        for index, row in zip(at, take_rows(locations[file], columns.all, numbers[at]).to_pylist(), strict=True):
            texts[index] = repr(row)
    return texts
