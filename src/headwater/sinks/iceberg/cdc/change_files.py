"""The files of a window of changes, and the columns of the tables made of them. Runs in tasks, too.

| changes | are written to |
| --- | --- |
| complete inserts, updates, reads | data files of the table; those that are not the last of their key stay hidden |
| deletes | data files with keys and positions only, all hidden: they hold a delete's position |
| changes that leave values out | staged files, which never become the table's: see fill_missing.py |
| truncates | no file; their position is returned |
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.changes.versions import NEVER
from headwater.model.errors import InputError
from headwater.model.rows import MISSING, OP, POSITION, SOURCE_TIME, Rows
from headwater.sinks.iceberg.catalog.table import LakeTable
from headwater.sinks.iceberg.data_files import prepare_folder, resolve
from headwater.sinks.iceberg.landing_files import LandingFiles, WriteRequest, WrittenFile, write_files
from headwater.sinks.rejects import SinkRejects
from headwater.sinks.tasks import RowCounter, run_over_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELETED = "_is_deleted"
"""Whether the source has deleted the row, where rows stay (`deletes: mark`)."""
VALID_FROM, VALID_TO = "valid_from", "valid_to"
FROM_POSITION, TO_POSITION = "valid_from_position", "valid_to_position"
CURRENT = "is_current"
"""NULL in hidden rows: they hold the position of a delete."""

_TIME = pa.timestamp("us", "UTC")


class TableLayout(ABC):
    """The columns of one kind of table."""

    position: ClassVar[str]
    """The column that orders the versions of a row."""
    marks_deletes = False
    """A deleted row stays, marked."""

    def schema(self, rows: Rows, key: tuple[str, ...]) -> pa.Schema:
        """The columns of the table of these changes. Only those of the key are never NULL: a delete has no others."""
        assert rows.changes is not None  # noqa: S101 - a table of changes has no other layout
        names, columns = self._added_names(), rows.changes.table_columns
        conflicts = sorted({name.lower() for name in columns} & set(names))
        if conflicts:
            raise InputError(
                f"{rows.stream}: the source's column {conflicts[0]!r} has the name of a column that the sink adds",
                hint="exclude the column at the source (column.exclude.list), or rename it there",
            )
        fields = [rows.schema.field(name).with_nullable(name not in key) for name in columns]
        return pa.schema([*fields, *self._added_fields(rows.schema.field(POSITION).type)])

    def table_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Changes as rows of the table; a delete has its key and its position."""
        names = [name for name in self._added_names() if name in batch.schema.names and name != POSITION]
        return self._with_added(batch.drop_columns(names))

    def _added_names(self) -> list[str]:
        return [field.name for field in self._added_fields(pa.int64())]

    @abstractmethod
    def _added_fields(self, position: pa.DataType) -> list[pa.Field]: ...

    @abstractmethod
    def _with_added(self, batch: pa.RecordBatch) -> pa.RecordBatch: ...


@dataclass(frozen=True)
class CurrentStateLayout(TableLayout):
    """One row per key."""

    marks_deletes: bool = False
    position = POSITION

    def _added_fields(self, position: pa.DataType) -> list[pa.Field]:
        mark = [pa.field(DELETED, pa.bool_(), nullable=False)] if self.marks_deletes else []
        return [pa.field(POSITION, position, nullable=False), *mark]

    def _with_added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column(DELETED, pc.equal(batch.column(OP), "d")) if self.marks_deletes else batch


@dataclass(frozen=True)
class HistoryLayout(TableLayout):
    """One row per version."""

    position = FROM_POSITION

    def _added_fields(self, position: pa.DataType) -> list[pa.Field]:
        return [
            pa.field(VALID_FROM, _TIME),
            pa.field(VALID_TO, _TIME),
            pa.field(FROM_POSITION, position, nullable=False),
            pa.field(TO_POSITION, position),
            pa.field(CURRENT, pa.bool_()),
        ]

    def _with_added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        upserts = pc.not_equal(batch.column(OP), "d")
        current = pc.if_else(upserts, pa.scalar(value=True), pa.scalar(None, pa.bool_()))
        batch = batch.append_column(VALID_FROM, batch.column(SOURCE_TIME))
        batch = batch.append_column(FROM_POSITION, batch.column(POSITION))
        return batch.append_column(CURRENT, current)


_IPC = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True)
class WrittenChanges:
    """The files of one task."""

    upserts: list[WrittenFile] = field(default_factory=list)
    deletes: list[WrittenFile] = field(default_factory=list)
    staged: list[str] = field(default_factory=list)
    truncates: dict[int, int] = field(default_factory=dict)  # position → time in µs

    def to_bytes(self) -> bytes:
        data = [file.to_bytes().decode() for file in self.upserts], [file.to_bytes().decode() for file in self.deletes]
        return json.dumps([*data, self.staged, list(self.truncates.items())]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> WrittenChanges:
        upserts, deletes, staged, truncates = json.loads(data)
        files = [[WrittenFile.from_bytes(text.encode()) for text in texts] for texts in (upserts, deletes)]
        return cls(files[0], files[1], staged, dict(truncates))


class ChangeFiles(LandingFiles):
    """The files of one try at landing changes."""

    def __init__(self, table: LakeTable, landing: str, run: str, layout: TableLayout) -> None:
        super().__init__(table, landing, run)
        self.layout = layout
        self.upserts: list[WrittenFile] = []
        self.deletes: list[WrittenFile] = []
        self.staged: list[str] = []
        self.truncates: dict[int, int] = {}
        self._request: WriteRequest | None = None

    @property
    def is_empty(self) -> bool:
        return not self.written and not self.staged and not self.truncates

    def write(
        self, spark: SparkSession, rows: Rows, key: tuple[str, ...], counter: RowCounter, rejects: SinkRejects
    ) -> None:
        """Read and write every change. A failure leaves no files."""
        request = self._write_request(rows.stream, key, rejects)
        activity = f"{rows.stream}: writing changes to {self._table.name}"
        work = partial(_write_part, request, self.layout)
        for part in map(WrittenChanges.from_bytes, run_over_rows(rows, work, lambda: spark, activity, counter)):
            self.upserts += part.upserts
            self.deletes += part.deletes
            self.staged += part.staged
            self.truncates |= part.truncates
        self.written = (*self.upserts, *self.deletes)
        self._request = request
        counter.at_least(self.rows)

    def write_complete(self, rows: pa.Table) -> None:
        """Write rows that changes and the table make together, in place of those of an earlier call."""
        assert self._request is not None  # noqa: S101 - changes are written first
        files = list(write_files(self._request, 0, rows.to_batches())) if rows.num_rows else []
        self.written = (*self.upserts, *self.deletes, *files)
        self._data_files = None


def _write_part(
    request: WriteRequest, layout: TableLayout, number: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[bytes]:
    split = _ChangeSplit(request, layout)
    upserts = list(write_files(request, number, split.complete(batches)))
    deletes = list(write_files(request, number, split.deletes)) if split.deletes else []
    yield WrittenChanges(upserts, deletes, split.finish(), split.truncates).to_bytes()


class _ChangeSplit:
    """Splits changes by the files that they are written to."""

    def __init__(self, request: WriteRequest, layout: TableLayout) -> None:
        self._request, self._layout = request, layout
        self.deletes: list[pa.RecordBatch] = []  # keys and positions only: they fit into memory
        self.truncates: dict[int, int] = {}
        self._location = f"{request.folder}/{request.prefix}-{uuid.uuid4().hex}.arrow"
        self._staged: pa.ipc.RecordBatchStreamWriter | None = None

    def complete(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Inserts, updates and reads with all their values, as rows of the table."""
        for batch in batches:
            op, staged = batch.column(OP), pc.is_valid(batch.column(MISSING))
            if pc.all(pc.equal(op, "r")).as_py() and not staged.true_count:
                yield self._layout.table_rows(batch)  # of a copy
                continue
            deletes, truncates = pc.equal(op, "d"), pc.equal(op, "t")
            if self._layout.marks_deletes:
                staged = pc.or_(staged, deletes)
            self._collect_truncates(batch.filter(truncates))
            self._stage(batch.filter(pc.and_not(staged, truncates)))
            deleted = batch.filter(pc.and_not(deletes, staged))
            if deleted.num_rows:
                self.deletes.append(self._layout.table_rows(deleted))
            rest = batch.filter(pc.invert(pc.or_(pc.or_(deletes, truncates), staged)))
            if rest.num_rows:
                yield self._layout.table_rows(rest)

    def _collect_truncates(self, batch: pa.RecordBatch) -> None:
        times = batch.column(SOURCE_TIME).cast(pa.int64()).fill_null(NEVER).to_pylist()
        self.truncates |= dict(zip(map(int, batch.column(POSITION).to_pylist()), times, strict=True))

    def _stage(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._staged is None:
            prepare_folder(self._request.folder)
            filesystem, path = resolve(self._location)
            self._file = filesystem.open_output_stream(path)
            self._staged = pa.ipc.new_stream(self._file, batch.schema, options=_IPC)
        self._staged.write_batch(batch)

    def finish(self) -> list[str]:
        if self._staged is None:
            return []
        self._staged.close()
        self._file.close()
        return [self._location]


def read_staged(locations: Iterable[str]) -> pa.Table | None:
    """All changes that leave values out; None: no change does."""
    tables = []
    for location in locations:
        filesystem, path = resolve(location)
        with filesystem.open_input_stream(path) as stream, pa.ipc.open_stream(stream) as reader:
            tables.append(reader.read_all())
    return pa.concat_tables(tables, promote_options="permissive") if tables else None
