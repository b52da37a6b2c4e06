"""Finds the rows of a table whose keys are in a batch: only key columns are read, only where they can be.

Runs in tasks, or in threads of the driver where the work is too small to be worth a Spark job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.sinks.iceberg.conform import exact_cast
from headwater.sinks.iceberg.keyset import KeySet
from headwater.sinks.iceberg.storage import resolve
from headwater.sinks.iceberg.types import FIELD_ID


@dataclass(frozen=True)
class KeyColumn:
    """A key column as the table knows it: files are searched by id, since names may have changed."""

    id: int
    name: str
    type: pa.DataType


@dataclass(frozen=True)
class ScanUnit:
    """Every `shares`th row group of a file, from number `share` on: large files are shared between tasks."""

    location: str
    share: int = 0
    shares: int = 1


def read_keys(locations: Sequence[str], key: Sequence[KeyColumn]) -> KeySet:
    """The keys of files that were just written."""
    tables = [table for location in locations for _, table in read_groups(ScanUnit(location), key, None)]
    whole = pa.concat_tables(tables)
    return KeySet([whole.column(n) for n in range(len(key))])


def find_rows(unit: ScanUnit, key: Sequence[KeyColumn], keys: KeySet) -> npt.NDArray[np.int64]:
    """The positions in the file of the rows whose key is in the set, ascending."""
    found = [
        first + keys.find([table.column(n) for n in range(len(key))]) for first, table in read_groups(unit, key, keys)
    ]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def read_groups(unit: ScanUnit, key: Sequence[KeyColumn], keys: KeySet | None) -> Iterator[tuple[int, pa.Table]]:
    """The row groups to look at: the position of the first row, and the key columns."""
    filesystem, path = resolve(unit.location)
    with filesystem.open_input_file(path) as source, pq.ParquetFile(source) as file:
        places = [place_of(file.schema_arrow, column) for column in key]
        if None in places:
            return  # written before the column was there: every key in it is NULL
        names = [file.schema_arrow.field(place).name for place in places if place is not None]
        encoded = names if keys is not None and _has_dictionary(file.metadata, names, key) else None
        reader = pq.ParquetFile(source, metadata=file.metadata, read_dictionary=encoded)
        first = 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            wanted = group % unit.shares == unit.share
            if wanted and (keys is None or keys.may_be_between(*_bounds(file.metadata.row_group(group), names, key))):
                table = reader.read_row_group(group, columns=names, use_threads=False)
                yield first, _cast(table, names, key)
            first += rows


def has_column(location: str, column: KeyColumn) -> bool:
    """Whether a file was written when the table had the column."""
    filesystem, path = resolve(location)
    with filesystem.open_input_file(path) as source, pq.ParquetFile(source) as file:
        return place_of(file.schema_arrow, column) is not None


def _has_dictionary(file: pq.FileMetaData, names: Sequence[str], key: Sequence[KeyColumn]) -> bool:
    """Whether the rows of a text column share values: a dictionary of them is read, and searched, much faster."""
    if len(key) > 1 or not pa.types.is_string(key[0].type) or file.num_row_groups == 0:
        return False
    columns = (file.row_group(0).column(place) for place in range(file.num_columns))
    return any(column.has_dictionary_page for column in columns if column.path_in_schema == names[0])


def place_of(schema: pa.Schema, column: KeyColumn) -> int | None:
    ids = [(field.metadata or {}).get(FIELD_ID) for field in schema]
    if any(number is not None for number in ids):
        wanted = str(column.id).encode()
        return ids.index(wanted) if wanted in ids else None
    place = schema.get_field_index(column.name)  # a file that was added by hand has no ids
    return place if place >= 0 else None


def _bounds(
    group: pq.RowGroupMetaData, names: Sequence[str], key: Sequence[KeyColumn]
) -> tuple[list[object], list[object]]:
    low: list[object] = [None] * len(names)
    high: list[object] = [None] * len(names)
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema in names and column.is_stats_set and column.statistics.has_min_max:
            at = names.index(column.path_in_schema)
            if not isinstance(key[at].type, pa.BaseExtensionType):
                low[at], high[at] = column.statistics.min, column.statistics.max
    return low, high


def _cast(table: pa.Table, names: Sequence[str], key: Sequence[KeyColumn]) -> pa.Table:
    """In the table's current types: a file may be older than a widening."""
    arrays = []
    for name, column in zip(names, key, strict=True):
        values = table.column(table.schema.get_field_index(name)).combine_chunks()
        values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
        same = column.type in (values.type, getattr(values.type, "value_type", None))
        arrays.append(values if same else exact_cast(values, column.type))
    return pa.table(arrays, names=[f"k{n}" for n in range(len(key))])
