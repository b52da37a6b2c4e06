"""Splits that the first sink reads, cached for the next ones: a source is read and decoded once per window.

The cache lies in a folder of this machine until the window has landed; tasks on other machines do not see it and read
for themselves.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.model.rows import OnReject, Rows, Split
from headwater.storage.spill import Spill, read_spill

if TYPE_CHECKING:
    import pyarrow as pa


@contextmanager
def cached_splits(sinks: int, streams: Sequence[Rows]) -> Iterator[Sequence[Rows]]:
    """The same rows; for several sinks, what the first one reads is cached."""
    if sinks < 2:  # noqa: PLR2004 - one sink reads once
        yield streams
        return
    with tempfile.TemporaryDirectory(prefix="headwater-", ignore_cleanup_errors=True) as folder:
        yield [_cached(rows, Path(folder) / str(number)) for number, rows in enumerate(streams)]


def _cached(rows: Rows, folder: Path) -> Rows:
    if rows.splits is None:
        return rows
    folder.mkdir()
    return replace(rows, splits=tuple(CachedSplit(split, folder / str(n)) for n, split in enumerate(rows.splits)))


@dataclass(frozen=True)
class CachedSplit:
    """A split that is read from its source once. One without rows is not cached: it costs nothing to read."""

    split: Split
    path: Path

    @property
    def rows(self) -> int | None:
        return self.split.rows

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        cached = read_spill(self.path)
        return self._read_and_cache(on_reject) if cached is None else cached

    def _read_and_cache(self, on_reject: OnReject | None) -> Iterator[pa.RecordBatch]:
        """Only a whole split gets its name. A full disk ends the caching, not the window."""
        unnamed = Path(f"{self.path}.{uuid.uuid4().hex}")  # several tasks may read the split
        spill: Spill | None = None
        complete = True
        try:
            for batch in self.split.read(on_reject):
                spill = spill or Spill(batch.schema, unnamed)
                complete = complete and _fits(partial(spill.add, batch))
                yield batch
            if spill and complete:
                _fits(partial(spill.publish, self.path))
        finally:
            unnamed.unlink(missing_ok=True)


def _fits(write: Callable[[], None]) -> bool:
    """False if the disk is full, or the folder is gone."""
    try:
        write()
    except OSError:
        return False
    return True
