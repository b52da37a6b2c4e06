"""Data and delete files of a table, as Arrow reads them: columns, deletion vectors, position deletes.

Runs in tasks, without Spark. Deletion vectors are of format version 3, one Puffin file per landing; position deletes
of 2.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from headwater.changes.positions import sorted_distinct
from headwater.model.errors import RunError
from headwater.sinks.iceberg.schema import FIELD_ID, TableSchema, arrow_type
from headwater.sinks.rejects import exact_cast

if TYPE_CHECKING:
    from pyroaring import BitMap64

_LOCAL = re.compile(r"(?:file:(?://)?)?(?P<path>/.*)", re.DOTALL)


def resolve(location: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a location and the path in it. Runs in tasks too."""
    local = _LOCAL.fullmatch(location)
    if local:  # Iceberg writes `file:/a b`, unescaped, which is not a URI
        return pafs.LocalFileSystem(), local["path"]
    filesystem, path = pafs.FileSystem.from_uri(location)
    return filesystem, path


def prepare_folder(location: str) -> None:
    """Create a folder, where the file system has folders."""
    filesystem, path = resolve(location)
    if isinstance(filesystem, pafs.LocalFileSystem):
        filesystem.create_dir(path, recursive=True)


def list_files(folder: str, prefix: str) -> list[str]:
    """The locations of a folder's files whose name begins with `prefix`."""
    filesystem, path = resolve(folder)
    files = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    return [f"{folder}/{info.base_name}" for info in files if info.is_file and info.base_name.startswith(prefix)]


def remove_files(locations: Iterable[str]) -> None:
    """Remove files; a missing one is ignored."""
    for location in locations:
        filesystem, path = resolve(location)
        if filesystem.get_file_info(path).type != pafs.FileType.NotFound:
            filesystem.delete_file(path)


def read_bytes(location: str, offset: int, length: int) -> bytes:
    filesystem, path = resolve(location)
    with filesystem.open_input_file(path) as file:
        return bytes(file.read_at(length, offset))


def write_bytes(location: str, content: bytes) -> None:
    filesystem, path = resolve(location)
    with filesystem.open_output_stream(path) as file:
        file.write(content)


RowNumbers = npt.NDArray[np.int64]
NO_ID = -1
"""The id of a column that the table does not have: it reads as NULL."""


@dataclass(frozen=True)
class ArrowColumn:
    """A column of a table. Files are searched by its id, since a name may have changed."""

    id: int
    name: str
    type: pa.DataType


def arrow_columns(schema: TableSchema) -> list[ArrowColumn]:
    return [ArrowColumn(column.id, column.name, arrow_type(column.type)) for column in schema.columns]


@dataclass(frozen=True)
class RowGroup:
    """A row group of a file."""

    number: int
    first_row: int
    rows: int


@contextmanager
def open_columns(
    location: str, columns: Sequence[ArrowColumn], *, dictionaries: bool = False
) -> Iterator[ColumnReader]:
    """Columns of one file. `dictionaries`: a text column that has a dictionary is read as one."""
    filesystem, path = resolve(location)
    with filesystem.open_input_file(path) as source, pq.ParquetFile(source) as file:
        reader = ColumnReader(file, columns)
        if dictionaries and reader.has_dictionary:
            encoded = pq.ParquetFile(source, metadata=file.metadata, read_dictionary=reader.file_names)
            reader = ColumnReader(encoded, columns)
        yield reader


class ColumnReader:
    """Reads the columns row group by row group. A column that the file does not have is NULL."""

    def __init__(self, file: pq.ParquetFile, columns: Sequence[ArrowColumn]) -> None:
        self._file, self._columns = file, columns
        self.schema: pa.Schema = file.schema_arrow
        indexes = [field_index(self.schema, column) for column in columns]
        self._names = [None if index is None else self.schema.field(index).name for index in indexes]

    @property
    def file_names(self) -> list[str]:
        """The names that the columns have in the file, without those it does not have."""
        return [name for name in self._names if name is not None]

    @property
    def has_all(self) -> bool:
        return None not in self._names

    @property
    def has_dictionary(self) -> bool:
        """True for one text column whose rows share values: its dictionary is read, and searched, much faster."""
        metadata, names = self._file.metadata, self._names
        if len(names) != 1 or not pa.types.is_string(self._columns[0].type) or not metadata.num_row_groups:
            return False
        chunks = (metadata.row_group(0).column(number) for number in range(metadata.num_columns))
        return any(chunk.has_dictionary_page for chunk in chunks if chunk.path_in_schema == names[0])

    def row_groups(self, share: int = 0, shares: int = 1) -> Iterator[RowGroup]:
        """Every `shares`th row group, from number `share` on."""
        first_row = 0
        for number in range(self._file.num_row_groups):
            rows = self._file.metadata.row_group(number).num_rows
            if number % shares == share:
                yield RowGroup(number, first_row, rows)
            first_row += rows

    def read(self, group: RowGroup, rows: RowNumbers | None = None) -> pa.Table:
        """A row group, or these rows of it, counted from its first."""
        table = self._file.read_row_group(group.number, columns=self.file_names, use_threads=False)
        count = group.rows
        if rows is not None:
            table, count = table.take(pa.array(rows)) if self.file_names else table, len(rows)
        arrays = self._conformed({name: one_array(table.column(name)) for name in self.file_names}, count)
        return pa.table(arrays, names=[column.name for column in self._columns])

    def batches(self, group: RowGroup, size: int) -> Iterator[pa.RecordBatch]:
        """The same in batches of at most `size` rows, for large row groups."""
        options = {"row_groups": [group.number], "columns": self.file_names, "use_threads": False}
        for batch in self._file.iter_batches(size, **options):
            arrays = self._conformed({name: batch.column(name) for name in self.file_names}, batch.num_rows)
            yield pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self._columns])

    def _conformed(self, values: Mapping[str, pa.Array], rows: int) -> list[pa.Array]:
        """In the table's current types: a file may be older than a widening."""
        pairs = zip(self._names, self._columns, strict=True)
        return [pa.nulls(rows, c.type) if name is None else _cast(values[name], c.type) for name, c in pairs]

    def bounds(self, group: RowGroup) -> tuple[list[object], list[object]]:
        """The least and the greatest value of each column, as the file's statistics say; None: they do not."""
        metadata = self._file.metadata.row_group(group.number)
        low: list[object] = [None] * len(self._columns)
        high: list[object] = [None] * len(self._columns)
        for number in range(metadata.num_columns):
            chunk = metadata.column(number)
            if chunk.path_in_schema in self._names and chunk.is_stats_set and chunk.statistics.has_min_max:
                at = self._names.index(chunk.path_in_schema)
                if not isinstance(self._columns[at].type, pa.BaseExtensionType):
                    low[at], high[at] = chunk.statistics.min, chunk.statistics.max
        return low, high


def field_index(schema: pa.Schema, column: ArrowColumn) -> int | None:
    """Where a file has the column; None: it was written before the column was added."""
    if column.id == NO_ID:
        return None
    ids = [(field.metadata or {}).get(FIELD_ID) for field in schema]
    if any(number is not None for number in ids):
        field_id = str(column.id).encode()
        return ids.index(field_id) if field_id in ids else None
    index = schema.get_field_index(column.name)  # a file that was added by hand has no ids
    return index if index >= 0 else None


def read_columns(location: str, columns: Sequence[ArrowColumn]) -> pa.Table:
    """All rows of a file."""
    with open_columns(location, columns) as reader:
        tables = [reader.read(group) for group in reader.row_groups()]
    return pa.concat_tables(tables or [_empty(columns)]).combine_chunks()


def take_rows(location: str, columns: Sequence[ArrowColumn], rows: RowNumbers) -> pa.Table:
    """These rows of a file, in the order of `rows`."""
    ascending, back = np.unique(rows, return_inverse=True)
    with open_columns(location, columns) as reader:
        tables = []
        for group in reader.row_groups():
            low, high = np.searchsorted(ascending, [group.first_row, group.first_row + group.rows])
            if low < high:
                tables.append(reader.read(group, ascending[low:high] - group.first_row))
    table = pa.concat_tables(tables or [_empty(columns)])
    arrays = [one_array(column).take(pa.array(back)) for column in table.columns]
    return pa.table(arrays, names=table.column_names)


def gather_rows(rows: Mapping[str, RowNumbers], columns: Sequence[ArrowColumn]) -> pa.Table:
    """Rows of several files, one file after the other, in the order of each file's `rows`."""
    tables = [take_rows(location, columns, numbers) for location, numbers in rows.items()]
    return pa.concat_tables(tables or [_empty(columns)])


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """The column without chunks; a single chunk is not copied."""
    if column.num_chunks == 1:
        return column.chunk(0)
    array = column.combine_chunks()
    if not isinstance(array, pa.ChunkedArray):
        return array
    return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=array.type)


def _empty(columns: Sequence[ArrowColumn]) -> pa.Table:
    return pa.table([pa.nulls(0, column.type) for column in columns], names=[column.name for column in columns])


def _cast(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    same = data_type in (values.type, getattr(values.type, "value_type", None))
    return values if same else exact_cast(values, data_type)


_PUFFIN = b"PFA1"
_VECTOR = bytes.fromhex("d1d33964")
_ROW_POSITION_FIELD = 2147483645  # Iceberg's id of the column `_pos`


@dataclass(frozen=True)
class Vector:
    """The vector of one data file in its Puffin file."""

    data_file: str
    offset: int
    length: int
    rows: int


def write_vectors(location: str, deleted: Mapping[str, BitMap64]) -> tuple[list[Vector], int]:
    """Write one vector per data file; return the vectors, and the size of the Puffin file."""
    content, vectors = bytearray(_PUFFIN), []
    for data_file, positions in deleted.items():
        blob = _encode(positions)
        vectors.append(Vector(data_file, len(content), len(blob), len(positions)))
        content += blob
    footer = json.dumps({"blobs": [_describe(vector) for vector in vectors]}).encode()
    content += _PUFFIN + footer + struct.pack("<i", len(footer)) + b"\x00\x00\x00\x00" + _PUFFIN
    write_bytes(location, bytes(content))
    return vectors, len(content)


def read_vector(location: str, offset: int, length: int) -> BitMap64:
    """The row positions of a vector, of any writer."""
    from pyroaring import BitMap64

    blob = read_bytes(location, offset, length)
    body = blob[4:-4]
    if body[:4] != _VECTOR or zlib.crc32(body) != struct.unpack(">I", blob[-4:])[0]:
        raise RunError(f"the deletion vector at byte {offset} of {location} is damaged", hint="restore the file")
    return BitMap64.deserialize(body[4:])


def _encode(positions: BitMap64) -> bytes:
    body = _VECTOR + positions.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _describe(vector: Vector) -> dict[str, object]:
    return {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION_FIELD],
        "snapshot-id": -1,  # of the snapshot that adds it: not known yet
        "sequence-number": -1,
        "offset": vector.offset,
        "length": vector.length,
        "properties": {"referenced-data-file": vector.data_file, "cardinality": str(vector.rows)},
    }


_PATH, _ROW = "file_path", "pos"
# Iceberg's own ids and names of the two columns.
_SCHEMA = pa.schema(
    [
        pa.field(_PATH, pa.string(), nullable=False, metadata={FIELD_ID: b"2147483546"}),
        pa.field(_ROW, pa.int64(), nullable=False, metadata={FIELD_ID: b"2147483545"}),
    ]
)


def write_position_deletes(location: str, data_file: str, deleted: BitMap64) -> int:
    """Write them in ascending order; return the size of the file."""
    rows = np.asarray(deleted.to_array(), np.int64)
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(rows), np.int32), [data_file]).cast(pa.string())
    filesystem, path = resolve(location)
    with filesystem.open_output_stream(path) as stream:
        pq.write_table(pa.table([paths, pa.array(rows)], schema=_SCHEMA), stream, compression="zstd")
        return int(stream.tell())


def read_position_deletes(location: str, data_file: str) -> npt.NDArray[np.int64]:
    """The deleted rows of one data file; the delete file may concern many."""
    filesystem, path = resolve(location)
    with filesystem.open_input_file(path) as source:
        deletes = pq.read_table(source, columns=[_PATH, _ROW], filters=[(_PATH, "=", data_file)])
    return sorted_distinct(deletes.column(_ROW).to_numpy())
