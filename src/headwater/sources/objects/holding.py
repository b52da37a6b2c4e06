"""Batches that are held back until it is certain that they count: in memory, and in a temporary file beyond that."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

_IN_MEMORY = 64 << 20


class Held:
    """Batches in the order in which they were added."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._size = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        if self._writer is not None:
            self._writer.write_batch(batch)
            return
        self._batches.append(batch)
        self._size += batch.nbytes
        if self._size > _IN_MEMORY:
            self._to_disk()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All of them, once."""
        if self._writer is None or self._file is None:
            yield from self._batches
            return
        self._writer.close()
        self._file.seek(0)
        with self._file, pa.ipc.open_stream(self._file) as reader:
            yield from reader

    def _to_disk(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="headwater-")  # noqa: SIM115 - closed when it has been read, or with us
        self._writer = pa.ipc.new_stream(self._file, self._schema)
        for batch in self._batches:
            self._writer.write_batch(batch)
        self._batches.clear()
