"""Rows → files: one in this process when the window is small, else one per part, in Spark's tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain

import pyarrow as pa

from headwater.model.rows import Rows, SplitRows
from headwater.model.sink import Attempt
from headwater.sinks.files.formats import ENDINGS, Format, writer_for
from headwater.sinks.files.places import Place, storage_errors
from headwater.sinks.files.record import Part
from headwater.sinks.over_rows import is_small, run_over_rows
from headwater.sinks.setting_aside import RowsAside
from headwater.sinks.tally import Tally, counted


@dataclass(frozen=True)
class PartWriter:
    """How one attempt writes a file; the same in this process and in a task."""

    place: Place
    prefix: str  # makes the names unique where attempts share a folder
    format: Format
    aside: RowsAside

    def write(self, number: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Part:
        """One whole, durable file, named by its number."""
        name = f"{self.prefix}part-{number:05d}.{ENDINGS[self.format]}"
        rows, aside = 0, self.aside.part(number)
        with storage_errors(self.place):
            file = self.place.create(name)
            writer = writer_for(self.format, schema, file)
        for batch in batches:  # errors of the source pass as they are
            with storage_errors(self.place):
                rows += aside.keep(batch, writer.write)
        with storage_errors(self.place):
            writer.close()
            return Part(name, rows, self.place.finish(file, name))


def write_parts(writer: PartWriter, rows: Rows, attempt: Attempt) -> Sequence[Part]:
    """Every row of the stream's window, in one file or more."""
    tally = Tally(attempt.progress)
    if isinstance(rows, SplitRows) and is_small(rows):
        splits = (counted(split.read(), number, tally.part) for number, split in enumerate(rows.splits))
        return [writer.write(0, rows.schema, chain.from_iterable(splits))]
    doing = f"{rows.stream}: writing to {writer.place}"
    results = run_over_rows(rows, partial(_write_part, writer), attempt.spark, doing, tally)
    parts = [Part(**json.loads(result)) for result in results]
    tally.at_least(sum(part.rows for part in parts))
    # A window without rows still says which columns it has.
    return parts or [writer.write(0, rows.schema, ())]


def _write_part(writer: PartWriter, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    batches = (batch for batch in batches if batch.num_rows)
    first = next(batches, None)
    if first is not None:
        part = writer.write(number, first.schema, chain([first], batches))
        yield json.dumps(asdict(part)).encode()
