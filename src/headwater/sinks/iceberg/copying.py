"""Carries out a copy-on-write: files that lose rows are written anew without them. Small files are joined on the way.

| rows of a file that is copied | go to |
| --- | --- |
| that stay | files that take its place, with the ids that format version 3 gives to rows |
| that nobody sees any more | nowhere; in tables of changes to files of which no row is seen: they hold positions of deletes, and values that changes to come may leave out (see changes/) |
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.sinks.iceberg.conform import exact_cast
from headwater.sinks.iceberg.keyscan import KeyColumn, place_of
from headwater.sinks.iceberg.landing_files import LandingFiles
from headwater.sinks.iceberg.removing import Removal, deleted_rows
from headwater.sinks.iceberg.searching import DRIVER_ROWS, Positions
from headwater.sinks.iceberg.storage import resolve
from headwater.sinks.iceberg.table import LakeTable, PlannedFile
from headwater.sinks.iceberg.types import FIELD_ID
from headwater.sinks.iceberg.upsert import DELETION_VECTORS
from headwater.sinks.iceberg.writing import WriteOrder, WrittenFile, write_apart
from headwater.sinks.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_FILE = 4 << 20  # in bytes
_UNIT_ROWS = 1 << 20

# Where a row has been carried over, its id and the age of its values are written down: Iceberg's own columns.
_ROW_ID = KeyColumn(2147483540, "_row_id", pa.int64())
_AGE = KeyColumn(2147483539, "_last_updated_sequence_number", pa.int64())


@dataclass(frozen=True)
class Copies:
    """Files that were written, and those whose place they take."""

    replaced: frozenset[str]
    seen: tuple[WrittenFile, ...]
    hidden: tuple[WrittenFile, ...]  # of which nobody shall see a row


def nothing_copied() -> Copies:
    return Copies(frozenset(), (), ())


@dataclass(frozen=True)
class _Original:
    """A file to be copied; sent to the workers."""

    location: str
    rows: int
    gone: Positions  # rows that nobody sees then, ascending
    first_row: int | None
    age: int | None


@dataclass(frozen=True)
class _CopyOrder:
    """What every task needs to know."""

    write: WriteOrder
    columns: tuple[KeyColumn, ...]  # of the table; those of `write.schema` without the rows' ids
    defaults: frozenset[int]  # columns that have a value in files that do not have them
    keeps_unseen: bool


class Copying:
    """Copies files of one table for one landing."""

    def __init__(self, spark: SparkSession, table: LakeTable, files: LandingFiles, *, keeps_unseen: bool) -> None:
        self._spark, self._table, self._files, self._keeps_unseen = spark, table, files, keeps_unseen

    def run(self, planned: Sequence[PlannedFile], removal: Removal) -> Copies:
        """Copy every file that loses rows, and small ones beside them. A file that Arrow cannot copy stays as it is."""
        files = [_original(file, removal) for file in to_copy(planned, removal)]
        units, doing = _units(files), f"copying files of {self._table.name}"
        work = partial(_copied, self._order())
        if sum(file.rows for file in files) <= DRIVER_ROWS:
            with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as threads:
                done = [result for results in threads.map(lambda unit: list(work(unit)), units) for result in results]
        else:
            done = run_tasks(self._spark, work, units, doing)
        made = [_Made.from_bytes(result) for result in done]
        return Copies(
            frozenset(location for one in made for location in one.replaced),
            tuple(file for one in made for file in one.seen),
            tuple(file for one in made for file in one.hidden),
        )

    def _order(self) -> _CopyOrder:
        schema = self._table.schema
        columns = list(schema.to_arrow())
        taken = {_ROW_ID.name, _AGE.name} & {field.name for field in columns}
        has_ids = self._table.format_version >= DELETION_VECTORS and not taken
        ids = [_field(_ROW_ID), _field(_AGE)] if has_ids else []
        return _CopyOrder(
            self._files.order_of_copies(pa.schema([*columns, *ids])),
            tuple(KeyColumn(int((f.metadata or {})[FIELD_ID]), f.name, f.type) for f in columns),
            self._table.defaults(),
            self._keeps_unseen,
        )


def to_copy(planned: Sequence[PlannedFile], removal: Removal) -> list[PlannedFile]:
    """Files that lose rows, and small ones: those would only become more."""
    small = {file.location for file in planned if file.size < SMALL_FILE and file.location not in removal.files}
    wanted = removal.gone.keys() | (small if len(small) > 1 else set())
    return [file for file in planned if file.location in wanted]


def _original(file: PlannedFile, removal: Removal) -> _Original:
    gone = removal.gone.get(file.location)
    rows = np.asarray((deleted_rows(file) if gone is None else gone).to_array(), np.int64)
    age = file.java.file().dataSequenceNumber()
    return _Original(file.location, file.rows, rows, file.first_row, None if age is None else int(age))


def _units(files: Sequence[_Original]) -> list[list[_Original]]:
    """Files that are copied together: as many as make a file of a good size."""
    units: list[list[_Original]] = []
    rows = _UNIT_ROWS
    for file in files:
        if rows + file.rows > _UNIT_ROWS:
            units.append([])
            rows = 0
        units[-1].append(file)
        rows += file.rows
    return units


@dataclass(frozen=True)
class _Made:
    """What one task wrote."""

    replaced: list[str] = field(default_factory=list)
    seen: list[WrittenFile] = field(default_factory=list)
    hidden: list[WrittenFile] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        files = [[file.to_bytes().decode() for file in some] for some in (self.seen, self.hidden)]
        return json.dumps([self.replaced, *files]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> _Made:
        replaced, *texts = json.loads(data)
        seen, hidden = ([WrittenFile.from_bytes(text.encode()) for text in some] for some in texts)
        return cls(replaced, seen, hidden)


def _copied(order: _CopyOrder, files: Sequence[_Original]) -> Iterator[bytes]:
    """In a task."""
    replaced: list[str] = []
    seen, hidden = write_apart(order.write, _rows_apart(order, files, replaced))
    yield _Made(replaced, seen, hidden).to_bytes()


def _rows_apart(
    order: _CopyOrder, files: Iterable[_Original], replaced: list[str]
) -> Iterator[tuple[bool, pa.RecordBatch]]:
    """The rows of the files that can be copied: whether they are seen, and a batch of them."""
    for original in files:
        filesystem, path = resolve(original.location)
        with filesystem.open_input_file(path) as source, pq.ParquetFile(source) as file:
            if not can_be_copied(file.schema_arrow, order.write.schema, order.columns, order.defaults):
                continue
            replaced.append(original.location)
            first = 0
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                hidden = np.zeros(count, np.bool_)
                low, high = np.searchsorted(original.gone, [first, first + count])
                hidden[original.gone[low:high] - first] = True
                if order.keeps_unseen or not hidden.all():
                    batch = _batch(file, group, order, original, first)
                    yield from _apart(batch, hidden, keeps_unseen=order.keeps_unseen)
                first += count


def _apart(
    batch: pa.RecordBatch, hidden: npt.NDArray[np.bool_], *, keeps_unseen: bool
) -> Iterator[tuple[bool, pa.RecordBatch]]:
    if not hidden.any():
        yield True, batch
        return
    if not hidden.all():
        yield True, batch.filter(pa.array(~hidden))
    if keeps_unseen:
        yield False, batch.filter(pa.array(hidden))


def can_be_copied(file: pa.Schema, target: pa.Schema, columns: Sequence[KeyColumn], defaults: frozenset[int]) -> bool:
    """Whether its columns can be read as the table's without a doubt.

    Not without Iceberg's ids in the file, not where a nested column was changed from within, and not where Iceberg gives
    a value of its own to a column that the file does not have.
    """
    if not any((field.metadata or {}).get(FIELD_ID) for field in file):
        return False
    for column in columns:
        place, wanted = place_of(file, column), target.field(column.name)
        if place is None and (column.id in defaults or not wanted.nullable):
            return False
        if place is not None and pa.types.is_nested(wanted.type):
            found = file.field(place).with_name(wanted.name).with_nullable(wanted.nullable)
            if not found.equals(wanted, check_metadata=True):
                return False
    return True


def _batch(file: pq.ParquetFile, group: int, order: _CopyOrder, original: _Original, first: int) -> pa.RecordBatch:
    """A row group in the table's columns, with the ids of its rows."""
    schema = order.write.schema
    columns = (*order.columns, *((_ROW_ID, _AGE) if len(schema) > len(order.columns) else ()))
    places = [place_of(file.schema_arrow, column) for column in columns]
    names = [file.schema_arrow.field(place).name for place in places if place is not None]
    table = file.read_row_group(group, columns=names, use_threads=False)
    arrays = [
        pa.nulls(table.num_rows, column.type)
        if place is None
        else _cast(table.column(table.schema.get_field_index(file.schema_arrow.field(place).name)), column.type)
        for column, place in zip(columns, places, strict=True)
    ]
    if len(columns) > len(order.columns):
        rows = np.arange(first, first + table.num_rows)
        inherited = [None if original.first_row is None else pa.array(original.first_row + rows), original.age]
        for at, value in zip((-2, -1), inherited, strict=True):
            arrays[at] = arrays[at] if value is None else _filled(arrays[at], value)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _filled(own: pa.Array, inherited: pa.Array | int) -> pa.Array:
    """What a file does not say of a row is inherited from the file."""
    return pc.coalesce(own, pa.scalar(inherited, pa.int64()) if isinstance(inherited, int) else inherited)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    values = column.combine_chunks()
    values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
    return values if values.type == kind else exact_cast(values, kind)


def _field(column: KeyColumn) -> pa.Field:
    return pa.field(column.name, column.type, metadata={FIELD_ID: str(column.id).encode()})
