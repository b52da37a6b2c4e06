"""Record batches → the bytes of one file, in each format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import IO, Literal, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from headwater.model.errors import SchemaRefused, ValueNotKept
from headwater.model.protocols.sink import Attempt
from headwater.model.rows import Rows
from headwater.sinks.files.targets import FileEntry, storage_errors
from headwater.sinks.rejects import SinkRejects
from headwater.sinks.tasks import RowCounter, count_rows, is_small, run_over_rows
from headwater.sinks.text_values import check_types, flat_column, is_nested, plain_column, refuse_not_finite
from headwater.storage.destination import Destination

Format = Literal["parquet", "json", "csv"]
EXTENSIONS = {"parquet": "parquet", "json": "jsonl", "csv": "csv"}

_ROWS_PER_GROUP = 256 * 1024
_BYTES_PER_GROUP = 64 * 1024 * 1024


class Writer(Protocol):
    """Writes one file; `close` leaves the file itself open."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


def open_writer(format_: Format, schema: pa.Schema, file: IO[bytes]) -> Writer:
    """A writer of that format. Raises SchemaRefused for columns that it cannot represent exactly (G8)."""
    match format_:
        case "parquet":
            return ParquetWriter(schema, file)
        case "json":
            return JsonWriter(schema, file)
        case "csv":
            return CsvWriter(schema, file)


class ParquetWriter:
    """Row groups of a size that suits readers, whatever the size of the batches; memory stays bounded."""

    def __init__(self, schema: pa.Schema, file: IO[bytes]) -> None:
        try:
            self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise SchemaRefused(f"Parquet has no exact type for these columns: {error}") from error
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        rows = sum(batch.num_rows for batch in self._batches)
        if rows >= _ROWS_PER_GROUP or sum(batch.nbytes for batch in self._batches) >= _BYTES_PER_GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches))
            self._batches = []


class JsonWriter:
    """One object a line, every column in each."""

    def __init__(self, schema: pa.Schema, file: IO[bytes]) -> None:
        check_types(schema, "JSON")
        self._names, self._file = schema.names, file

    def write(self, batch: pa.RecordBatch) -> None:
        columns = []
        for name, column in zip(self._names, batch.columns, strict=True):
            values = plain_column(column, name)
            if pa.types.is_floating(column.type) or is_nested(column.type):
                refuse_not_finite(values, name)
            columns.append(values)
        lines = (
            json.dumps(dict(zip(self._names, row, strict=True)), ensure_ascii=False, separators=(",", ":"))
            for row in zip(*columns, strict=True)
        )
        self._file.write("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        """Every batch is written already."""


class CsvWriter:
    """A header, quotes as in RFC 4180 around every text, lines end with LF; NULL is nothing between the commas."""

    def __init__(self, schema: pa.Schema, file: IO[bytes]) -> None:
        check_types(schema, "CSV")
        self._names, self._file = schema.names, file
        # Arrow's own header refuses names with quotes in them.
        self._file.write((",".join(_quoted(name) for name in self._names) + "\n").encode())

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_columns == 1 and batch.column(0).null_count:
            raise ValueNotKept(
                f"column {self._names[0]} holds NULL: in a CSV file of one column that is an empty line, which readers skip",
                hint="land it as Parquet or JSON, or add a column",
            )
        columns = [_csv_column(name, column) for name, column in zip(self._names, batch.columns, strict=True)]
        table = pa.table(columns, names=self._names)
        pa_csv.write_csv(table, self._file, pa_csv.WriteOptions(include_header=False, quoting_style="needed"))

    def close(self) -> None:
        """Every batch is written already."""


def _csv_column(name: str, column: pa.Array) -> pa.Array:
    if not is_nested(column.type):
        return flat_column(column)
    values = plain_column(column, name)
    return pa.array([None if value is None else json.dumps(value, ensure_ascii=False) for value in values], pa.string())


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@dataclass(frozen=True)
class FileWriter:
    """Writes the files of one attempt, in this process or in a task."""

    destination: Destination
    prefix: str  # of names, unique per attempt where attempts share a folder
    format: Format
    rejects: SinkRejects

    def write(self, number: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> FileEntry:
        """Write one durable file, named by its number."""
        name = f"{self.prefix}part-{number:05d}.{EXTENSIONS[self.format]}"
        rows, file_rejects = 0, self.rejects.part(number)
        with storage_errors(self.destination):
            file = self.destination.create(name)
            writer = open_writer(self.format, schema, file)
        for batch in batches:  # errors of the source pass as they are
            with storage_errors(self.destination):
                rows += file_rejects.write(batch, writer.write)
        with storage_errors(self.destination):
            writer.close()
            return FileEntry(name, rows, self.destination.finish(file, name))


def write_files(writer: FileWriter, rows: Rows, attempt: Attempt) -> Sequence[FileEntry]:
    """Every row of the stream's window, in one file or more."""
    counter = RowCounter(attempt.progress)
    if is_small(rows):
        splits = (count_rows(batches, number, counter.part) for number, batches in enumerate(rows.read_splits()))
        return [writer.write(0, rows.schema, chain.from_iterable(splits))]
    task = f"{rows.stream}: writing to {writer.destination}"
    results = run_over_rows(rows, partial(_write_file, writer), attempt.spark, task, counter)
    files = [FileEntry(**json.loads(result)) for result in results]
    counter.at_least(sum(file.rows for file in files))
    # A window without rows still has a file with its columns.
    return files or [writer.write(0, rows.schema, ())]


def _write_file(writer: FileWriter, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    batches = (batch for batch in batches if batch.num_rows)
    first = next(batches, None)
    if first is not None:
        file = writer.write(number, first.schema, chain([first], batches))
        yield json.dumps(asdict(file)).encode()
