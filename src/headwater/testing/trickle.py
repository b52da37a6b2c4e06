"""A source that goes on giving rows until it has been told to end: to look at a landing that is under way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

_PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class TrickleSplit:
    """A batch now and then, until a file appears. Its number of rows is known only afterwards."""

    batch: pa.RecordBatch
    until: Path
    patience_seconds: float = 60.0
    rows: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        deadline = time.monotonic() + self.patience_seconds
        while not self.until.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody made {self.until} within {self.patience_seconds:.0f} s")
            yield self.batch
            time.sleep(_PAUSE_SECONDS)
        yield self.batch
