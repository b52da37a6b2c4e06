"""Rows → files: in this process when the window is small, else in Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.model import errors
from headwater.model.errors import HeadwaterError
from headwater.model.rows import Rows, Split, SplitRows
from headwater.model.sink import Attempt
from headwater.sinks.files.formats import ENDINGS, Format, writer_for
from headwater.sinks.files.places import Place, storage_errors
from headwater.sinks.files.record import Part

# Below this a window is written faster than Spark plans a job, and a JVM need not start at all.
SMALL_WINDOW = 50_000

_RESULT = "name string, rows long, bytes long, error string, message string, hint string"


@dataclass(frozen=True)
class PartWriter:
    """How one attempt writes a file; the same in this process and in a task."""

    place: Place
    prefix: str  # makes the names unique where attempts share a folder
    format: Format

    def write(self, number: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Part:
        """One whole, durable file, named by its number."""
        name = f"{self.prefix}part-{number:05d}.{ENDINGS[self.format]}"
        rows = 0
        with storage_errors(self.place):
            file = self.place.create(name)
            writer = writer_for(self.format, schema, file)
        for batch in batches:  # errors of the source pass as they are
            with storage_errors(self.place):
                writer.write(batch)
            rows += batch.num_rows
        with storage_errors(self.place):
            writer.close()
            return Part(name, rows, self.place.finish(file, name))


def write_parts(writer: PartWriter, rows: Rows, attempt: Attempt) -> Sequence[Part]:
    """Every row of the stream's window, in one file or more."""
    if isinstance(rows, SplitRows):
        if _small(rows.splits):
            batches = (batch for split in rows.splits for batch in _told(split.read(), attempt))
            return [writer.write(0, rows.schema, batches)]
        parts = _write_splits(writer, rows, attempt)
    else:
        parts = _write_dataframe(writer, rows, attempt)
    attempt.progress(sum(part.rows for part in parts))
    # A window without rows still says which columns it has.
    return parts or [writer.write(0, rows.schema, ())]


def _small(splits: Sequence[Split]) -> bool:
    counts = [split.rows for split in splits]
    return all(count is not None for count in counts) and sum(count or 0 for count in counts) <= SMALL_WINDOW


def _told(batches: Iterable[pa.RecordBatch], attempt: Attempt) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        attempt.progress(batch.num_rows)


def _write_splits(writer: PartWriter, rows: SplitRows, attempt: Attempt) -> list[Part]:
    splits, schema = rows.splits, rows.schema

    def task(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from _reported(writer, number, schema, splits[number].read())

    ids = attempt.spark().range(0, len(splits), numPartitions=len(splits))
    return _collected(ids.mapInArrow(task, _RESULT).collect())


def _write_dataframe(writer: PartWriter, rows: Rows, attempt: Attempt) -> list[Part]:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - only where Spark runs

        context = TaskContext.get()
        batches = iter(batches)
        first = next(batches, None)
        if first is not None:
            number = context.partitionId() if context else 0
            yield from _reported(writer, number, first.schema, _chained(first, batches))

    return _collected(rows.dataframe(attempt.spark()).mapInArrow(task, _RESULT).collect())


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _reported(
    writer: PartWriter, number: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What a task tells the driver. Our own errors travel as values: Spark would bury them in a trace."""
    row: dict[str, object] = dict.fromkeys(("name", "rows", "bytes", "error", "message", "hint"))
    try:
        part = writer.write(number, schema, batches)
        row |= {"name": part.name, "rows": part.rows, "bytes": part.bytes}
    except HeadwaterError as error:
        row |= {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    yield pa.RecordBatch.from_pylist([row], schema=_RESULT_ARROW)


def _collected(results: Iterable[tuple[Any, ...]]) -> list[Part]:
    parts = []
    for name, rows, size, error, message, hint in results:
        if error is not None:
            raise getattr(errors, error)(message, hint=hint)
        if rows:
            parts.append(Part(name, rows, size))
    return parts


_RESULT_ARROW = pa.schema(
    [
        ("name", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("error", pa.string()),
        ("message", pa.string()),
        ("hint", pa.string()),
    ]
)
