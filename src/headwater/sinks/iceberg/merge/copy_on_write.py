"""Rows of a table that a landing removes, and copy-on-write: files that lose rows are rewritten without them.

| rows of a file that is copied | are written to |
| --- | --- |
| live | files that replace it, with the row ids of format version 3 |
| deleted | nothing; in tables of changes, files whose rows are all deleted: they hold the positions of deletes, and values that later changes may leave out (see cdc/) |
"""

from __future__ import annotations

import array
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.sinks.iceberg.catalog.table import LakeTable, PlannedFile
from headwater.sinks.iceberg.data_files import (
    ArrowColumn,
    ColumnReader,
    RowGroup,
    field_index,
    one_array,
    open_columns,
    read_position_deletes,
    read_vector,
)
from headwater.sinks.iceberg.landing_files import LandingFiles, WriteRequest, WrittenFile, write_copies
from headwater.sinks.iceberg.merge.key_lookup import Positions
from headwater.sinks.iceberg.merge.strategy import DELETION_VECTORS, TableStats, Tuning
from headwater.sinks.iceberg.schema import FIELD_ID
from headwater.sinks.tasks import run_tasks

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import SparkSession

# An upsert removes the rows whose keys it brings; an object that is read again, the rows that it brought before.
# A file without live rows is removed as a whole.


@dataclass(frozen=True)
class Removal:
    """Rows and files that leave the table."""

    rows: int = 0  # that were live
    deleted: Mapping[str, BitMap64] = field(default_factory=dict)  # file → all its deleted rows, earlier ones too
    files: frozenset[str] = frozenset()  # without live rows
    remaining: int = 0  # live rows of files that lose some


def plan_removal(
    planned: Sequence[PlannedFile], hits: Mapping[str, Positions], drop: frozenset[str] | None = None
) -> Removal:
    """The removal of these rows, beside those deleted before.

    `drop` limits which files without live rows are removed: lookups of later windows still read the others.
    """
    rows, deleted, files, remaining = 0, {}, set(), 0
    for file in planned:
        if file.location not in hits:
            continue
        before = deleted_rows(file)
        after = bitmap(hits[file.location]) | before
        rows += len(after) - len(before)
        if len(after) == file.rows and (drop is None or file.location in drop):
            files.add(file.location)
        elif len(after) > len(before):
            deleted[file.location] = after
            remaining += file.rows - len(after)
    return Removal(rows, deleted, frozenset(files), remaining)


def deleted_rows(file: PlannedFile) -> BitMap64:
    """Rows of a file that readers no longer see."""
    deleted = bitmap(np.empty(0, dtype=np.int64))
    for delete in file.deletes:
        if delete["file-format"].lower() == "puffin":
            deleted |= read_vector(delete["file-path"], delete["content-offset"], delete["content-size-in-bytes"])
        else:
            deleted |= bitmap(read_position_deletes(delete["file-path"], file.location))
    return deleted


def bitmap(positions: Positions) -> BitMap64:
    from pyroaring import BitMap64

    return BitMap64(array.array("Q", positions.tobytes()))


def table_stats(format_version: int, rows: int, planned: Sequence[PlannedFile]) -> TableStats:
    """What the choice of a strategy depends on: the table, and its files that may hold keys of the batch."""
    return TableStats(
        format_version,
        rows,
        len(planned),
        sum(file.rows for file in planned),
        unreadable(planned),
        sum(file.size for file in planned),
        len({file.buckets for file in planned if file.buckets}),
    )


def unreadable(planned: Sequence[PlannedFile]) -> str:
    """Why Arrow alone cannot tell which rows are live; empty: it can."""
    for file in planned:
        if file.format != "parquet":
            return f"the table has files of the format {file.format}"
        for delete in file.deletes:
            content, file_format = delete["content"], delete["file-format"].lower()
            if content != "position-deletes" or file_format not in {"puffin", "parquet"}:
                return f"the table has {content.replace('-', ' ')} of the format {file_format}, which only Spark reads"
    return ""


# A row that is copied keeps its id and the sequence number of its values: Iceberg's own columns.
_ROW_ID = ArrowColumn(2147483540, "_row_id", pa.int64())
_SEQUENCE = ArrowColumn(2147483539, "_last_updated_sequence_number", pa.int64())


@dataclass(frozen=True)
class Copies:
    """Files that were written, and those that they replace."""

    replaced: frozenset[str] = frozenset()
    visible: tuple[WrittenFile, ...] = ()
    hidden: tuple[WrittenFile, ...] = ()  # whose rows readers must not see


@dataclass(frozen=True)
class _Original:
    """A file to be copied; sent to the workers."""

    location: str
    rows: int
    deleted: Positions  # ascending
    first_row_id: int | None
    sequence: int | None


@dataclass(frozen=True)
class _CopyRequest:
    """Sent to every task."""

    write: WriteRequest
    columns: tuple[ArrowColumn, ...]  # of the table; those of `write.schema` without the rows' ids
    defaults: frozenset[int]  # columns with a value in files that were written before them
    keeps_hidden: bool

    @property
    def has_row_ids(self) -> bool:
        return len(self.write.schema) > len(self.columns)

    @property
    def read_columns(self) -> tuple[ArrowColumn, ...]:
        return (*self.columns, *((_ROW_ID, _SEQUENCE) if self.has_row_ids else ()))


class CopyOnWrite:
    """Copies files of one table for one landing."""

    def __init__(
        self, spark: SparkSession, table: LakeTable, files: LandingFiles, tuning: Tuning, *, keeps_hidden: bool
    ) -> None:
        self._spark, self._table, self._files, self._tuning = spark, table, files, tuning
        self._keeps_hidden = keeps_hidden

    def run(self, planned: Sequence[PlannedFile], removal: Removal) -> Copies:
        """Copy every file that loses rows, and small ones beside them. A file that Arrow cannot copy stays as it is."""
        chosen = files_to_copy(planned, removal, self._tuning.small_file_bytes)
        files = [_original(file, removal) for file in chosen]
        units = _units(files, self._tuning.unit_rows)
        work = partial(_copy, self._request())
        if sum(file.rows for file in files) <= self._tuning.driver_rows:
            with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as threads:
                done = [result for results in threads.map(lambda unit: list(work(unit)), units) for result in results]
        else:
            done = run_tasks(self._spark, work, units, f"copying files of {self._table.name}")
        results = [_CopyResult.from_bytes(result) for result in done]
        return Copies(
            frozenset(location for result in results for location in result.replaced),
            tuple(file for result in results for file in result.visible),
            tuple(file for result in results for file in result.hidden),
        )

    def _request(self) -> _CopyRequest:
        schema = self._table.schema
        columns = list(schema.to_arrow())
        conflict = {_ROW_ID.name, _SEQUENCE.name} & {field.name for field in columns}
        has_ids = self._table.format_version >= DELETION_VECTORS and not conflict
        ids = [_field(_ROW_ID), _field(_SEQUENCE)] if has_ids else []
        return _CopyRequest(
            self._files.copy_request(pa.schema([*columns, *ids])),
            tuple(ArrowColumn(int((f.metadata or {})[FIELD_ID]), f.name, f.type) for f in columns),
            self._table.defaults(),
            self._keeps_hidden,
        )


def files_to_copy(planned: Sequence[PlannedFile], removal: Removal, small_bytes: int) -> list[PlannedFile]:
    """Files that lose rows, and small ones: their number would only grow."""
    small = {file.location for file in planned if file.size < small_bytes and file.location not in removal.files}
    locations = removal.deleted.keys() | (small if len(small) > 1 else set())
    return [file for file in planned if file.location in locations]


def _original(file: PlannedFile, removal: Removal) -> _Original:
    deleted = removal.deleted.get(file.location)
    rows = np.asarray((deleted_rows(file) if deleted is None else deleted).to_array(), np.int64)
    sequence = file.java.file().dataSequenceNumber()
    return _Original(file.location, file.rows, rows, file.first_row_id, None if sequence is None else int(sequence))


def _units(files: Sequence[_Original], unit_rows: int) -> list[list[_Original]]:
    """Files that are copied together: as many as make a file of a good size."""
    units: list[list[_Original]] = []
    rows = unit_rows
    for file in files:
        if rows + file.rows > unit_rows:
            units.append([])
            rows = 0
        units[-1].append(file)
        rows += file.rows
    return units


@dataclass(frozen=True)
class _CopyResult:
    """What one task wrote."""

    replaced: list[str] = field(default_factory=list)
    visible: list[WrittenFile] = field(default_factory=list)
    hidden: list[WrittenFile] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        files = [[file.to_bytes().decode() for file in group] for group in (self.visible, self.hidden)]
        return json.dumps([self.replaced, *files]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> _CopyResult:
        replaced, *texts = json.loads(data)
        visible, hidden = ([WrittenFile.from_bytes(text.encode()) for text in group] for group in texts)
        return cls(replaced, visible, hidden)


def _copy(request: _CopyRequest, files: Sequence[_Original]) -> Iterator[bytes]:
    """In a task."""
    replaced: list[str] = []
    visible, hidden = write_copies(request.write, _split_rows(request, files, replaced))
    yield _CopyResult(replaced, visible, hidden).to_bytes()


def _split_rows(
    request: _CopyRequest, files: Iterable[_Original], replaced: list[str]
) -> Iterator[tuple[bool, pa.RecordBatch]]:
    """The rows of the files that can be copied: True for live ones, and a batch of them."""
    for original in files:
        with open_columns(original.location, request.read_columns) as reader:
            if not can_be_copied(reader.schema, request.write.schema, request.columns, request.defaults):
                continue
            replaced.append(original.location)
            for group in reader.row_groups():
                hidden = np.zeros(group.rows, np.bool_)
                low, high = np.searchsorted(original.deleted, [group.first_row, group.first_row + group.rows])
                hidden[original.deleted[low:high] - group.first_row] = True
                if request.keeps_hidden or not hidden.all():
                    batch = _batch(reader, group, request, original)
                    yield from _split_batch(batch, hidden, keeps_hidden=request.keeps_hidden)


def _split_batch(
    batch: pa.RecordBatch, hidden: npt.NDArray[np.bool_], *, keeps_hidden: bool
) -> Iterator[tuple[bool, pa.RecordBatch]]:
    if not hidden.any():
        yield True, batch
        return
    if not hidden.all():
        yield True, batch.filter(pa.array(~hidden))
    if keeps_hidden:
        yield False, batch.filter(pa.array(hidden))


def can_be_copied(file: pa.Schema, target: pa.Schema, columns: Sequence[ArrowColumn], defaults: frozenset[int]) -> bool:
    """True if the file's columns can be read as the table's.

    False without field ids in the file, where a nested column has evolved, and where Iceberg has a default value for a
    column that the file does not have.
    """
    if not any((field.metadata or {}).get(FIELD_ID) for field in file):
        return False
    for column in columns:
        index, target_field = field_index(file, column), target.field(column.name)
        if index is None and (column.id in defaults or not target_field.nullable):
            return False
        if index is not None and pa.types.is_nested(target_field.type):
            actual = file.field(index).with_name(target_field.name).with_nullable(target_field.nullable)
            if not actual.equals(target_field, check_metadata=True):
                return False
    return True


def _batch(reader: ColumnReader, group: RowGroup, request: _CopyRequest, original: _Original) -> pa.RecordBatch:
    """A row group in the table's columns, with the ids of its rows."""
    arrays = [one_array(column) for column in reader.read(group).columns]
    if request.has_row_ids:
        rows = np.arange(group.first_row, group.first_row + group.rows)
        inherited = [
            None if original.first_row_id is None else pa.array(original.first_row_id + rows),
            original.sequence,
        ]
        for at, value in zip((-2, -1), inherited, strict=True):
            arrays[at] = arrays[at] if value is None else _filled(arrays[at], value)
    return pa.RecordBatch.from_arrays(arrays, schema=request.write.schema)


def _filled(values: pa.Array, inherited: pa.Array | int) -> pa.Array:
    """Rows without a value inherit it from their file."""
    return pc.coalesce(values, pa.scalar(inherited, pa.int64()) if isinstance(inherited, int) else inherited)


def _field(column: ArrowColumn) -> pa.Field:
    return pa.field(column.name, column.type, metadata={FIELD_ID: str(column.id).encode()})
