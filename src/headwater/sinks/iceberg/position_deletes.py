"""Position deletes of Iceberg's format version 2: which rows of a data file are gone, as a Parquet file of its own.

Version 3 has deletion vectors instead; there such files are only read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.sinks.iceberg.storage import resolve
from headwater.sinks.iceberg.types import FIELD_ID
from headwater.sinks.sorted_once import sorted_once

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyroaring import BitMap64

_PATH, _ROW = "file_path", "pos"
# Iceberg's own ids and names of the two columns.
_SCHEMA = pa.schema(
    [
        pa.field(_PATH, pa.string(), nullable=False, metadata={FIELD_ID: b"2147483546"}),
        pa.field(_ROW, pa.int64(), nullable=False, metadata={FIELD_ID: b"2147483545"}),
    ]
)


def write_position_deletes(location: str, data_file: str, gone: BitMap64) -> int:
    """Write them, in order; gives the size of the file."""
    rows = np.asarray(gone.to_array(), np.int64)
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(rows), np.int32), [data_file]).cast(pa.string())
    filesystem, path = resolve(location)
    with filesystem.open_output_stream(path) as stream:
        pq.write_table(pa.table([paths, pa.array(rows)], schema=_SCHEMA), stream, compression="zstd")
        return int(stream.tell())


def read_position_deletes(location: str, data_file: str) -> npt.NDArray[np.int64]:
    """The rows of one data file; the deletes may be those of many."""
    filesystem, path = resolve(location)
    with filesystem.open_input_file(path) as source:
        found = pq.read_table(source, columns=[_PATH, _ROW], filters=[(_PATH, "=", data_file)])
    return sorted_once(found.column(_ROW).to_numpy())
