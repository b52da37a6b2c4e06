"""Batches of one split become Parquet files of the table. Runs in tasks, without Spark."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.model.errors import SinkUnreachable
from headwater.model.secret import masked
from headwater.sinks.iceberg.conform import conform
from headwater.sinks.iceberg.partitioning import PartitionColumn, by_partition
from headwater.sinks.iceberg.storage import prepare_folder, remove_files, resolve
from headwater.sinks.setting_aside import RowsAside

_ROW_GROUP_BYTES = 64 << 20  # of Arrow data: what a task holds in memory, whatever the size of the window
_ROW_GROUP_ROWS = 1 << 20
_FILE_BYTES = 384 << 20
_MOST_OPEN = 128
_SAMPLE_ROWS = 20_000


@dataclass(frozen=True)
class WriteOrder:
    """What every task of a landing needs to know; sent to the workers."""

    stream: str
    folder: str
    prefix: str  # of the names of this try's files
    schema: pa.Schema
    partition: tuple[PartitionColumn, ...]
    key: tuple[str, ...]  # columns whose NULLs are counted
    aside: RowsAside


@dataclass(frozen=True)
class WrittenFile:
    """A Parquet file that no snapshot knows yet."""

    location: str
    rows: int
    size: int  # in bytes
    partition: tuple[object, ...] = ()
    null_keys: dict[str, int] = field(default_factory=dict)  # column → rows whose key is NULL

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> WrittenFile:
        made = json.loads(data)
        return cls(**{**made, "partition": tuple(made["partition"])})


def write_files(order: WriteOrder, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[WrittenFile]:
    """Write every row, or none: on an error the files of this task are removed before it goes on its way."""
    with _storing(order.folder):
        prepare_folder(order.folder)
    writers, aside = _Writers(order), order.aside.part(number)

    def take(batch: pa.RecordBatch) -> None:
        rows = conform(batch, order.schema, order.stream)
        with _storing(order.folder):
            writers.take(rows)

    try:
        for batch in batches:
            aside.keep(batch, take)
        with _storing(order.folder):
            written = writers.finish()
    except BaseException:
        writers.discard()
        raise
    yield from written


def write_apart(
    order: WriteOrder, batches: Iterable[tuple[bool, pa.RecordBatch]]
) -> tuple[list[WrittenFile], list[WrittenFile]]:
    """Write rows that are the table's already into files of two kinds: those that are seen, and the others."""
    with _storing(order.folder):
        prepare_folder(order.folder)
        kinds = {True: _Writers(order), False: _Writers(order)}
        try:
            for seen, batch in batches:
                kinds[seen].take(batch)
            return kinds[True].finish(), kinds[False].finish()
        except BaseException:
            for writers in kinds.values():
                writers.discard()
            raise


@contextmanager
def _storing(folder: str) -> Iterator[None]:
    """A failure of the lake's storage, told from one of the source that is read in the same task."""
    try:
        yield
    except OSError as error:
        raise SinkUnreachable(
            f"{folder}: {masked(str(error))}",
            hint="see whether the lake's storage is there, has room and may be written",
        ) from error


class _Writers:
    """One open file per partition, and the rows that wait for a whole row group."""

    def __init__(self, order: WriteOrder) -> None:
        self._order = order
        self._waiting: dict[tuple[object, ...], list[pa.RecordBatch]] = {}
        self._sizes: Counter[tuple[object, ...]] = Counter()
        self._open: dict[tuple[object, ...], _OpenFile] = {}
        self._started: list[str] = []
        self._done: list[WrittenFile] = []

    def take(self, batch: pa.RecordBatch) -> None:
        parts = by_partition(batch, self._order.partition) if self._order.partition else [((), batch)]
        for values, rows in parts:
            if rows.num_rows:
                self._waiting.setdefault(values, []).append(rows)
                self._sizes[values] += max(rows.nbytes, rows.num_rows * _ROW_GROUP_BYTES // _ROW_GROUP_ROWS)
        while self._sizes.total() >= _ROW_GROUP_BYTES:
            self._write_group(self._sizes.most_common(1)[0][0])

    def _write_group(self, values: tuple[object, ...]) -> None:
        table = pa.Table.from_batches(self._waiting.pop(values), schema=self._order.schema)
        del self._sizes[values]
        if values not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._close(next(iter(self._open)))
            self._open[values] = self._new_file(table)
        self._open[values].write(table, self._order.key)
        if self._open[values].size >= _FILE_BYTES:
            self._close(values)

    def _new_file(self, first: pa.Table) -> _OpenFile:
        location = f"{self._order.folder}/{self._order.prefix}-{uuid.uuid4().hex}.parquet"
        self._started.append(location)
        return _OpenFile(location, self._order.schema, repetitive_columns(first))

    def _close(self, values: tuple[object, ...]) -> None:
        self._done.append(self._open.pop(values).finish(values))

    def finish(self) -> list[WrittenFile]:
        for values in list(self._waiting):
            self._write_group(values)
        for values in list(self._open):
            self._close(values)
        return self._done

    def discard(self) -> None:
        for file in self._open.values():
            file.abandon()
        remove_files(self._started)


def repetitive_columns(table: pa.Table) -> list[str]:
    """Columns whose values repeat. Dictionaries of the others cost half of the writing time and make files larger."""
    sample = table.slice(0, _SAMPLE_ROWS)
    return [
        name
        for name, column in zip(sample.column_names, sample.columns, strict=True)
        if _is_plain(column.type) and 2 * len(column.unique()) <= sample.num_rows
    ]


def _is_plain(kind: pa.DataType) -> bool:
    """Arrow cannot count the different values of lists and of extension types (UUIDs)."""
    return not pa.types.is_nested(kind) and not isinstance(kind, pa.BaseExtensionType)


class _OpenFile:
    """A Parquet file on its way."""

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
