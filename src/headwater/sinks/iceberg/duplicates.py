"""Rows of one batch that share a key: the latest stays, by the source's own order (G7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.model.errors import AmbiguousKey
from headwater.sinks.iceberg.keyset import plain
from headwater.sinks.iceberg.storage import resolve

Bools = npt.NDArray[np.bool_]
_FALSE = pa.scalar(value=False)


def replaced_rows(
    locations: Sequence[str], key: Sequence[str], order: Sequence[str], stream: str
) -> dict[str, npt.NDArray[np.int64]]:
    """Per file, the positions of rows that a later row with the same key replaces.

    Raises AmbiguousKey when two different rows share a key and nothing says which is the later one.
    """
    rows = _key_and_order(locations, key, order)
    keys = [f"k{n}" for n in range(len(key))]
    repeated = _repeated(rows, keys)
    if repeated.num_rows == 0:
        return {}
    orders = [f"o{n}" for n in range(len(order))]
    ascending = [(name, "ascending") for name in keys]
    # Arrow puts NULL last: in the order it stands before every value.
    places = pc.sort_indices(repeated, sort_keys=[*ascending, *((name, "descending") for name in orders)])
    repeated = repeated.take(places)
    first_of_key = _changes(repeated, keys)
    first_of_order = first_of_key | _changes(repeated, orders)
    _check_ties(
        locations, repeated, _level_with_latest(first_of_key, first_of_order), f"{stream}: keys ({', '.join(key)})"
    )
    lost = repeated.filter(pa.array(~first_of_key))
    files, positions = lost.column("file").to_numpy(), lost.column("position").to_numpy()
    return {locations[n]: np.sort(positions[files == n]) for n in np.unique(files)}


def _key_and_order(locations: Sequence[str], key: Sequence[str], order: Sequence[str]) -> pa.Table:
    tables = []
    for number, location in enumerate(locations):
        filesystem, path = resolve(location)
        wanted = list(dict.fromkeys([*key, *order]))
        with filesystem.open_input_file(path) as source, pq.ParquetFile(source) as file:
            read = file.read(columns=wanted)
        columns = {f"k{n}": plain(read.column(read.schema.get_field_index(name))) for n, name in enumerate(key)}
        columns |= {f"o{n}": plain(read.column(read.schema.get_field_index(name))) for n, name in enumerate(order)}
        columns["file"] = pa.array(np.full(read.num_rows, number))
        columns["position"] = pa.array(np.arange(read.num_rows))
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def _repeated(rows: pa.Table, keys: list[str]) -> pa.Table:
    counted = rows.select(keys).group_by(keys).aggregate([([], "count_all")])
    often = counted.filter(pc.greater(counted.column("count_all"), 1)).select(keys)
    if often.num_rows == 0:
        return rows.slice(0, 0)
    return rows.join(often, keys=keys, join_type="left semi").combine_chunks()


def _changes(rows: pa.Table, names: Sequence[str]) -> Bools:
    """Whether a row differs from the one before it; the first one does."""
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


def _check_ties(locations: Sequence[str], rows: pa.Table, ties: npt.NDArray[np.int64], what: str) -> None:
    """Rows that stand level with the latest of their key must be equal to it in every column."""
    level = np.flatnonzero(ties >= 0)
    contents = _contents(locations, rows.take(pa.array(level)))
    neighbours = zip(level[:-1], level[1:], contents[:-1], contents[1:], strict=True)
    different = {int(ties[at]) for before, at, old, new in neighbours if ties[before] == ties[at] and old != new}
    if different:
        raise AmbiguousKey(
            f"{what} of several different rows in one window, {len(different)} of them, and nothing tells which is the latest",
            hint="choose a key that names one row, or a cursor that differs between versions of a row",
        )


def _contents(locations: Sequence[str], rows: pa.Table) -> list[str]:
    """The whole rows, as texts that are equal when they are."""
    files, positions = rows.column("file").to_numpy(), rows.column("position").to_numpy()
    texts = [""] * rows.num_rows
    for number in np.unique(files):
        filesystem, path = resolve(locations[number])
        with filesystem.open_input_file(path) as source, pq.ParquetFile(source) as file:
            whole = file.read()
        wanted = np.flatnonzero(files == number)
        taken = whole.take(pa.array(positions[wanted])).to_pylist()
        for place, row in zip(wanted, taken, strict=True):
            texts[place] = repr(row)
    return texts
