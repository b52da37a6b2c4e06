"""The Parquet files of one landing: written by tasks before they are published, removed if they never are."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.model.errors import SinkUnreachable
from headwater.model.rows import Rows
from headwater.model.secret import masked
from headwater.sinks.iceberg.catalog.table import LakeTable
from headwater.sinks.iceberg.data_files import list_files, prepare_folder, remove_files, resolve
from headwater.sinks.iceberg.partitioning import PartitionColumn, by_partition
from headwater.sinks.rejects import SinkRejects, conform
from headwater.sinks.tasks import RowCounter, run_over_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROW_GROUP_BYTES = 64 << 20  # of Arrow data: the memory of a task, whatever the size of the window
_ROW_GROUP_ROWS = 1 << 20
_FILE_BYTES = 384 << 20
_MOST_OPEN = 128
_SAMPLE_ROWS = 20_000


@dataclass(frozen=True)
class WriteRequest:
    """Sent to every task of a landing."""

    stream: str
    folder: str
    prefix: str  # of the file names of this try
    schema: pa.Schema
    partition: tuple[PartitionColumn, ...]
    key: tuple[str, ...]  # columns whose NULLs are counted
    rejects: SinkRejects


@dataclass(frozen=True)
class WrittenFile:
    """A Parquet file that is not in a snapshot yet."""

    location: str
    rows: int
    size: int  # in bytes
    partition: tuple[object, ...] = ()
    null_keys: dict[str, int] = field(default_factory=dict)  # column → rows whose key is NULL

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> WrittenFile:
        fields = json.loads(data)
        return cls(**{**fields, "partition": tuple(fields["partition"])})


def write_files(request: WriteRequest, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[WrittenFile]:
    """Write every row, or none: an error removes the files of this task."""
    with _storage_errors(request.folder):
        prepare_folder(request.folder)
    writers, rejects = _PartitionWriters(request), request.rejects.part(number)

    def write(batch: pa.RecordBatch) -> None:
        rows = conform(batch, request.schema, request.stream)
        with _storage_errors(request.folder):
            writers.write(rows)

    try:
        for batch in batches:
            rejects.write(batch, write)
        with _storage_errors(request.folder):
            written = writers.finish()
    except BaseException:
        writers.discard()
        raise
    yield from written


def write_copies(
    request: WriteRequest, batches: Iterable[tuple[bool, pa.RecordBatch]]
) -> tuple[list[WrittenFile], list[WrittenFile]]:
    """Write rows of the table into separate files for visible ones (True) and hidden ones."""
    with _storage_errors(request.folder):
        prepare_folder(request.folder)
        visible, hidden = _PartitionWriters(request), _PartitionWriters(request)
        try:
            for is_visible, batch in batches:
                (visible if is_visible else hidden).write(batch)
            return visible.finish(), hidden.finish()
        except BaseException:
            visible.discard()
            hidden.discard()
            raise


@contextmanager
def _storage_errors(folder: str) -> Iterator[None]:
    """Tells failures of the lake's storage from those of the source, which the same task reads."""
    try:
        yield
    except OSError as error:
        raise SinkUnreachable(
            f"{folder}: {masked(str(error))}",
            hint="check that the lake's storage is reachable and writable, and has free space",
        ) from error


class _PartitionWriters:
    """One open file per partition, and rows that do not fill a row group yet."""

    def __init__(self, request: WriteRequest) -> None:
        self._request = request
        self._pending: dict[tuple[object, ...], list[pa.RecordBatch]] = {}
        self._sizes: Counter[tuple[object, ...]] = Counter()
        self._open: dict[tuple[object, ...], _OpenFile] = {}
        self._started: list[str] = []
        self._done: list[WrittenFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        parts = by_partition(batch, self._request.partition) if self._request.partition else [((), batch)]
        for values, rows in parts:
            if rows.num_rows:
                self._pending.setdefault(values, []).append(rows)
                self._sizes[values] += max(rows.nbytes, rows.num_rows * _ROW_GROUP_BYTES // _ROW_GROUP_ROWS)
        while self._sizes.total() >= _ROW_GROUP_BYTES:
            self._write_group(self._sizes.most_common(1)[0][0])

    def _write_group(self, values: tuple[object, ...]) -> None:
        table = pa.Table.from_batches(self._pending.pop(values), schema=self._request.schema)
        del self._sizes[values]
        if values not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._close(next(iter(self._open)))
            self._open[values] = self._new_file(table)
        self._open[values].write(table, self._request.key)
        if self._open[values].size >= _FILE_BYTES:
            self._close(values)

    def _new_file(self, first: pa.Table) -> _OpenFile:
        location = f"{self._request.folder}/{self._request.prefix}-{uuid.uuid4().hex}.parquet"
        self._started.append(location)
        return _OpenFile(location, self._request.schema, repetitive_columns(first))

    def _close(self, values: tuple[object, ...]) -> None:
        self._done.append(self._open.pop(values).finish(values))

    def finish(self) -> list[WrittenFile]:
        for values in list(self._pending):
            self._write_group(values)
        for values in list(self._open):
            self._close(values)
        return self._done

    def discard(self) -> None:
        for file in self._open.values():
            file.abandon()
        remove_files(self._started)


def repetitive_columns(table: pa.Table) -> list[str]:
    """Columns whose values repeat. Dictionaries of the others cost half of the time and make files larger."""
    sample = table.slice(0, _SAMPLE_ROWS)
    return [
        name
        for name, column in zip(sample.column_names, sample.columns, strict=True)
        if _is_plain(column.type) and 2 * len(column.unique()) <= sample.num_rows
    ]


def _is_plain(data_type: pa.DataType) -> bool:
    """Arrow cannot count the distinct values of lists and of extension types (UUIDs)."""
    return not pa.types.is_nested(data_type) and not isinstance(data_type, pa.BaseExtensionType)


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, location: str, schema: pa.Schema, dictionaries: list[str]) -> None:
        self._location, self._rows = location, 0
        self._null_keys: Counter[str] = Counter()
        filesystem, path = resolve(location)
        self._stream = filesystem.open_output_stream(path)
        self._writer = pq.ParquetWriter(
            self._stream,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=dictionaries,
            store_decimal_as_integer=True,
        )

    @property
    def size(self) -> int:
        return int(self._stream.tell())

    def write(self, table: pa.Table, key: tuple[str, ...]) -> None:
        self._writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
        self._rows += table.num_rows
        for column in key:
            self._null_keys[column] += table.column(table.schema.get_field_index(column)).null_count

    def finish(self, partition: tuple[object, ...]) -> WrittenFile:
        self._writer.close()
        size = self.size
        self._stream.close()
        nulls = {column: count for column, count in self._null_keys.items() if count}
        return WrittenFile(self._location, self._rows, size, partition, nulls)

    def abandon(self) -> None:
        self._writer.close()
        self._stream.close()


class LandingFiles:
    """The files of one try at a landing, in the table's folder."""

    def __init__(self, table: LakeTable, landing: str, run: str) -> None:
        self._table = table
        self.folder = folder_of(table, landing)
        self.prefix = f"{landing}-{run}"
        self.written: tuple[WrittenFile, ...] | None = None  # None: not yet
        self.published: tuple[str, ...] = ()  # that a snapshot refers to, or is about to
        self.spec: Any = None
        self._data_files: list[Any] | None = None

    @property
    def is_empty(self) -> bool:
        """True if the window has nothing that could change the table."""
        return not self.written

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.written or ())

    @property
    def locations(self) -> list[str]:
        return [file.location for file in self.written or ()]

    def write(
        self, spark: SparkSession, rows: Rows, key: tuple[str, ...], counter: RowCounter, rejects: SinkRejects
    ) -> None:
        """Read and write every row. A failure leaves no files."""
        request = self._write_request(rows.stream, key, rejects)
        activity = f"{rows.stream}: writing to {self._table.name}"
        results = run_over_rows(rows, partial(_write_part, request), lambda: spark, activity, counter)
        self.written = tuple(WrittenFile.from_bytes(result) for result in results)
        counter.at_least(self.rows)

    def _write_request(self, stream: str, key: tuple[str, ...], rejects: SinkRejects) -> WriteRequest:
        """For the table as it is now."""
        schema = self._table.schema
        self.spec = self._table.java.spec()
        partition = self._table.partition(schema)
        return WriteRequest(stream, self.folder, self.prefix, schema.to_arrow(), partition, key, rejects)

    def copy_request(self, schema: pa.Schema) -> WriteRequest:
        """For copies of the table's files. No row is rejected: the table has them already."""
        rejects = SinkRejects("", "", (), (), None)
        partition = self._table.partition(self._table.schema)
        return WriteRequest(str(self._table.name), self.folder, self.prefix, schema, partition, (), rejects)

    def null_keys(self) -> list[tuple[str, int]]:
        """Key columns with NULLs, and in how many rows."""
        nulls: Counter[str] = Counter()
        for file in self.written or ():
            nulls.update(file.null_keys)
        return sorted(nulls.items())

    def data_files(self) -> list[Any]:
        """The files as Iceberg's values; built once, used by every try to publish."""
        if self._data_files is None:
            self._data_files = self._table.data_files(self.written or (), self.spec)
        return self._data_files

    def discard(self) -> None:
        """Remove everything that this try wrote. Call it only if nothing was published."""
        remove_files(list_files(self.folder, self.prefix))


def _write_part(request: WriteRequest, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    return (file.to_bytes() for file in write_files(request, number, batches))


def folder_of(table: LakeTable, landing: str) -> str:
    """The folder of one landing's files: one of 256, so that listing it stays cheap."""
    return f"{table.data_folder}/{landing[:2]}"


def remove_leftovers(table: LakeTable, landing: str, window: str, published: Collection[str]) -> None:
    """Remove the files of other tries at a landing that is published now.

    Call it only when the landing is in the history of the head: then no other try at it can publish, and its files
    are useless. Files that any snapshot refers to stay.
    """
    leftovers = set(list_files(folder_of(table, landing), landing)) - set(published)
    if leftovers:
        remove_files(leftovers - _referenced(table, window))


def _referenced(table: LakeTable, window: str) -> set[str]:
    """All files that snapshots of this window added, on any branch."""
    io, locations = table.java.io(), set()
    for described in table.metadata_json().get("snapshots", []):
        if described.get("summary", {}).get("headwater.window") == window:
            snapshot = table.metadata.snapshot(described["snapshot-id"])
            for files in (snapshot.addedDataFiles(io), snapshot.addedDeleteFiles(io)):
                locations |= {str(file.location()) for file in files}
    return locations


def stale_branches(table: LakeTable, prefix: str) -> list[str]:
    """Staging branches of tries of this pipeline that crashed."""
    return re.findall(rf"\b{prefix}\w+", str(table.metadata.refs().keySet().toString()))  # one call, however many
