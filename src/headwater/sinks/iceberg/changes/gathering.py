"""Single rows out of many Parquet files, by their positions: values that have to be kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.sinks.iceberg.conform import exact_cast
from headwater.sinks.iceberg.keyscan import KeyColumn, place_of
from headwater.sinks.iceberg.storage import resolve

Numbers = npt.NDArray[np.int64]


def take_rows(location: str, columns: Sequence[KeyColumn], rows: Numbers) -> pa.Table:
    """These columns of these rows, in the order of `rows`; a column that the file does not have is NULL."""
    wanted, back = np.unique(rows, return_inverse=True)
    filesystem, path = resolve(location)
    with filesystem.open_input_file(path) as source, pq.ParquetFile(source) as file:
        places = [place_of(file.schema_arrow, column) for column in columns]
        names = [file.schema_arrow.field(place).name for place in places if place is not None]
        found, first = [], 0
        for group in range(file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            inside = wanted[(wanted >= first) & (wanted < first + count)] - first
            if len(inside):
                found.append(file.read_row_group(group, columns=names, use_threads=False).take(pa.array(inside)))
            first += count
        table = pa.concat_tables(found) if found else file.schema_arrow.empty_table().select(names)
    made = []
    for column, place in zip(columns, places, strict=True):
        if place is None:
            made.append(pa.nulls(len(back), column.type))
            continue
        values = _one(table.column(table.schema.get_field_index(file.schema_arrow.field(place).name)))
        values = values if values.type == column.type else exact_cast(values, column.type)
        made.append(values.take(pa.array(back)))
    return pa.table(made, names=[column.name for column in columns])


def gather(wanted: Mapping[str, Numbers], columns: Sequence[KeyColumn]) -> pa.Table:
    """The rows of several files, one file after the other, in the order in which they are asked for."""
    tables = [take_rows(location, columns, rows) for location, rows in wanted.items()]
    if not tables:
        return pa.table({column.name: pa.array([], column.type) for column in columns})
    return pa.concat_tables(tables)


def _one(column: pa.ChunkedArray) -> pa.Array:
    made = column.combine_chunks()
    return pa.concat_arrays(made.chunks) if isinstance(made, pa.ChunkedArray) else made
