"""Rows that a first sink has read, kept for the next ones: a source is asked, and its rows are decoded, once per window.

What is kept lies in a folder of this machine, until the window has landed. Where tasks run on other machines the folder
is not there, and every sink reads for itself.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.model.rows import Rows, Split
from headwater.sources.split_rows import ArrowRows

if TYPE_CHECKING:
    import pyarrow as pa


@contextmanager
def kept_for(sinks: int, streams: Sequence[Rows]) -> Iterator[Sequence[Rows]]:
    """The same rows; for several sinks what the first one reads is kept."""
    if sinks < 2:  # noqa: PLR2004 - one sink reads once
        yield streams
        return
    with tempfile.TemporaryDirectory(prefix="headwater-", ignore_cleanup_errors=True) as folder:
        yield [_kept(rows, Path(folder) / str(number)) for number, rows in enumerate(streams)]


def _kept(rows: Rows, folder: Path) -> Rows:
    if not isinstance(rows, ArrowRows):
        return rows
    folder.mkdir()
    splits = [KeptSplit(split, str(folder / str(number))) for number, split in enumerate(rows.splits)]
    return replace(rows, splits=tuple(splits))


@dataclass(frozen=True)
class KeptSplit:
    """A split that is read from its source once."""

    split: Split
    path: str

    @property
    def rows(self) -> int | None:
        return self.split.rows

    def read(self) -> Iterator[pa.RecordBatch]:
        kept = self._open()
        return self._keeping() if kept is None else kept

    def _open(self) -> Iterator[pa.RecordBatch] | None:
        import pyarrow as pa  # noqa: PLC0415 - an idle poll needs no Arrow

        try:
            file = pa.memory_map(self.path)
        except OSError:
            return None  # not read yet, or read on another machine
        reader: Iterator[pa.RecordBatch] = iter(pa.ipc.open_stream(file))
        return reader

    def _keeping(self) -> Iterator[pa.RecordBatch]:
        """Read, and write down on the way. Only a whole split gets its name; a disk that is full ends the keeping."""
        kept = _Keeping(f"{self.path}.{uuid.uuid4().hex}")
        try:
            for batch in self.split.read():
                kept.add(batch)
                yield batch
            kept.finish(self.path)
        finally:
            kept.give_up()


class _Keeping:
    def __init__(self, path: str) -> None:
        self._path, self._failed = path, False
        self._file: pa.OSFile | None = None
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if self._failed:
            return
        try:
            if self._writer is None:
                self._begin(batch.schema)
            assert self._writer is not None  # noqa: S101 - it has begun
            self._writer.write_batch(batch)
        except OSError:
            self._failed = True

    def _begin(self, schema: pa.Schema) -> None:
        import pyarrow as pa  # noqa: PLC0415 - as above

        self._file = pa.OSFile(self._path, "wb")
        self._writer = pa.ipc.new_stream(self._file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))

    def finish(self, path: str) -> None:
        """A split without rows is not kept: it costs nothing to read."""
        if self._writer is None or self._file is None or self._failed:
            return
        try:
            self._writer.close()
            self._file.close()
            Path(self._path).rename(path)
        except OSError:
            self._failed = True

    def give_up(self) -> None:
        Path(self._path).unlink(missing_ok=True)
