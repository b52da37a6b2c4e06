"""A window of changes written down, before anybody can tell which of them are the last of their keys.

| changes | are written to |
| --- | --- |
| whole inserts, updates, reads | data files of the table; those that are not the last of their key are never seen |
| deletes | data files too, of nothing but keys and positions, of which no row is ever seen: they keep a delete's position |
| changes that leave values out | staged files, which never become the table's: see completing.py |
| truncates | nothing; their position is handed back |
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.changes.versions import NEVER
from headwater.model.changes import MISSING, OP, POSITION, SOURCE_TIME
from headwater.model.rows import Rows
from headwater.sinks.iceberg.changes.shapes import Shape, ShapedChanges
from headwater.sinks.iceberg.landing_files import LandingFiles
from headwater.sinks.iceberg.storage import prepare_folder, resolve
from headwater.sinks.iceberg.table import LakeTable
from headwater.sinks.iceberg.writing import WriteOrder, WrittenFile, write_files
from headwater.sinks.over_rows import run_over_rows
from headwater.sinks.setting_aside import RowsAside
from headwater.sinks.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IPC = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True)
class Written:
    """What one task wrote."""

    upserts: list[WrittenFile] = field(default_factory=list)
    deletes: list[WrittenFile] = field(default_factory=list)
    staged: list[str] = field(default_factory=list)
    truncates: dict[int, int] = field(default_factory=dict)  # position → time in µs

    def to_bytes(self) -> bytes:
        data = [file.to_bytes().decode() for file in self.upserts], [file.to_bytes().decode() for file in self.deletes]
        return json.dumps([*data, self.staged, list(self.truncates.items())]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Written:
        upserts, deletes, staged, truncates = json.loads(data)
        files = [[WrittenFile.from_bytes(text.encode()) for text in texts] for texts in (upserts, deletes)]
        return cls(files[0], files[1], staged, dict(truncates))


class ChangeFiles(LandingFiles):
    """The files of one try at landing changes."""

    def __init__(self, table: LakeTable, landing: str, run: str) -> None:
        super().__init__(table, landing, run)
        self.upserts: list[WrittenFile] = []
        self.deletes: list[WrittenFile] = []
        self.staged: list[str] = []
        self.truncates: dict[int, int] = {}
        self._order: WriteOrder | None = None

    @property
    def is_empty(self) -> bool:
        return not self.written and not self.staged and not self.truncates

    def write(self, spark: SparkSession, rows: Rows, key: tuple[str, ...], tally: Tally, aside: RowsAside) -> None:
        """Read and write every change. Nothing is left behind when it fails."""
        assert isinstance(rows, ShapedChanges)  # noqa: S101 - these files are made for no others
        order = self._ordered(rows.stream, key, aside)
        doing = f"{rows.stream}: writing changes to {self._table.name}"
        results = run_over_rows(rows.changes, partial(_write_part, order, rows.shape), lambda: spark, doing, tally)
        for one in map(Written.from_bytes, results):
            self.upserts += one.upserts
            self.deletes += one.deletes
            self.staged += one.staged
            self.truncates |= one.truncates
        self.written = (*self.upserts, *self.deletes)
        self._order = order
        tally.at_least(self.rows)

    def write_more(self, rows: pa.Table) -> None:
        """Rows that were made of changes and of what the table holds; those of a former look at it are forgotten."""
        assert self._order is not None  # noqa: S101 - changes are written first
        made = list(write_files(self._order, 0, rows.to_batches())) if rows.num_rows else []
        self.written = (*self.upserts, *self.deletes, *made)
        self._data_files = None


def _write_part(order: WriteOrder, shape: Shape, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    apart = _Apart(order, shape)
    upserts = list(write_files(order, number, apart.whole(batches)))
    deletes = list(write_files(order, number, apart.deletes)) if apart.deletes else []
    staged = apart.finish()
    yield Written(upserts, deletes, staged, apart.truncates).to_bytes()


class _Apart:
    """Sends changes to where they are written."""

    def __init__(self, order: WriteOrder, shape: Shape) -> None:
        self._order, self._shape = order, shape
        self.deletes: list[pa.RecordBatch] = []  # keys and positions only: they can be held
        self.truncates: dict[int, int] = {}
        self._location = f"{order.folder}/{order.prefix}-{uuid.uuid4().hex}.arrow"
        self._staged: pa.ipc.RecordBatchStreamWriter | None = None

    def whole(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Inserts, updates and reads with all their values, as rows of the table."""
        for batch in batches:
            op, staged = batch.column(OP), pc.is_valid(batch.column(MISSING))
            if pc.all(pc.equal(op, "r")).as_py() and not staged.true_count:
                yield self._shape.rows_of(batch)  # a copy's
                continue
            deletes, truncates = pc.equal(op, "d"), pc.equal(op, "t")
            if self._shape.marks_deletes:
                staged = pc.or_(staged, deletes)
            self._note_truncates(batch.filter(truncates))
            self._stage(batch.filter(pc.and_not(staged, truncates)))
            gone = batch.filter(pc.and_not(deletes, staged))
            if gone.num_rows:
                self.deletes.append(self._shape.rows_of(gone))
            rest = batch.filter(pc.invert(pc.or_(pc.or_(deletes, truncates), staged)))
            if rest.num_rows:
                yield self._shape.rows_of(rest)

    def _note_truncates(self, batch: pa.RecordBatch) -> None:
        times = batch.column(SOURCE_TIME).cast(pa.int64()).fill_null(NEVER).to_pylist()
        self.truncates |= dict(zip(map(int, batch.column(POSITION).to_pylist()), times, strict=True))

    def _stage(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._staged is None:
            prepare_folder(self._order.folder)
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
    """All changes that leave values out; None: there are none."""
    tables = []
    for location in locations:
        filesystem, path = resolve(location)
        with filesystem.open_input_stream(path) as stream, pa.ipc.open_stream(stream) as reader:
            tables.append(reader.read_all())
    return pa.concat_tables(tables, promote_options="permissive") if tables else None
