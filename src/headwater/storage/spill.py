"""Record batches that do not fit into memory, or that another process reads: in a local file.

The file is an uncompressed Arrow IPC stream: LZ4 takes three times as long to write, and a memory map reads for free. Each
write appends one batch and closes a named file: a process may have more spills than open files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

MEMORY_BYTES = 64 << 20


class Spill:
    """Batches of one schema, in the order of `add`. Used by one thread.

    Without a path the batches stay in memory up to `memory_bytes`, and then go to a file that vanishes with this object.
    With a path all of them go to that file, which stays until `remove`.
    """

    def __init__(self, schema: pa.Schema, path: Path | None = None, *, memory_bytes: int = MEMORY_BYTES) -> None:
        self._schema, self._path, self._memory_bytes = schema, path, memory_bytes
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._temporary: IO[bytes] | None = None
        self.file_bytes = 0  # where the next batch begins in the file

    def add(self, batch: pa.RecordBatch) -> None:
        """Raises OSError if the disk is full."""
        if batch.num_rows == 0:
            return
        if self._path is not None or self._temporary is not None:
            self._append(batch)
            return
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > self._memory_bytes:
            self._temporary = tempfile.TemporaryFile(prefix="headwater-")  # noqa: SIM115 - closed by `batches`, or with us
            for pending in self._batches:
                self._append(pending)
            self._batches.clear()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches; once, unless there is a path."""
        if self._temporary is not None:
            import pyarrow as pa

            self._temporary.seek(0)
            with self._temporary as file, pa.ipc.open_stream(file) as reader:
                yield from reader
        elif self._path is not None and self.file_bytes:
            yield from read_spill(self._path) or ()
        else:
            yield from self._batches

    def publish(self, path: Path) -> None:
        """Rename the complete file, so that other processes find all of it or nothing."""
        if self._path is not None and self.file_bytes:
            self._path = self._path.rename(path)

    def remove(self) -> None:
        """Remove the file, if there is one."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _append(self, batch: pa.RecordBatch) -> None:
        messages = [batch.serialize()] if self.file_bytes else [self._schema.serialize(), batch.serialize()]
        if self._temporary is not None:
            self._temporary.writelines(messages)
        elif self._path is not None:
            with self._path.open("ab") as file:
                file.writelines(messages)
        self.file_bytes += sum(message.size for message in messages)


def read_spill(path: Path) -> Iterator[pa.RecordBatch] | None:
    """The batches of a published file, mapped into memory; None: this machine has no such file."""
    import pyarrow as pa

    try:
        file = pa.memory_map(str(path))
    except FileNotFoundError:
        return None
    batches: Iterator[pa.RecordBatch] = iter(pa.ipc.open_stream(file))
    return batches
