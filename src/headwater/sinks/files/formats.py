"""Record batches → the bytes of one file, in each format."""

from __future__ import annotations

import json
from typing import IO, Literal, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from headwater.model.errors import SchemaRefused, ValueNotKept
from headwater.sinks.plain_values import check_types, flat_column, is_nested, plain_column, refuse_not_finite

Format = Literal["parquet", "json", "csv"]
ENDINGS = {"parquet": "parquet", "json": "jsonl", "csv": "csv"}

_ROWS_PER_GROUP = 256 * 1024
_BYTES_PER_GROUP = 64 * 1024 * 1024


class Writer(Protocol):
    """Writes one file; `close` leaves the file itself open."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


def writer_for(kind: Format, schema: pa.Schema, file: IO[bytes]) -> Writer:
    """A writer of that format. Raises SchemaRefused for columns that it cannot keep (G8)."""
    match kind:
        case "parquet":
            return ParquetWriter(schema, file)
        case "json":
            return JsonWriter(schema, file)
        case "csv":
            return CsvWriter(schema, file)


class ParquetWriter:
    """Row groups of a size that readers like, whatever the size of the batches; memory stays bounded."""

    def __init__(self, schema: pa.Schema, file: IO[bytes]) -> None:
        try:
            self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise SchemaRefused(f"Parquet cannot keep these columns: {error}") from error
        self._waiting: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        rows = sum(waiting.num_rows for waiting in self._waiting)
        if rows >= _ROWS_PER_GROUP or sum(waiting.nbytes for waiting in self._waiting) >= _BYTES_PER_GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting = []


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
        """Nothing is held back."""


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
        """Nothing is held back."""


def _csv_column(name: str, column: pa.Array) -> pa.Array:
    if not is_nested(column.type):
        return flat_column(column)
    values = plain_column(column, name)
    return pa.array([None if value is None else json.dumps(value, ensure_ascii=False) for value in values], pa.string())


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
