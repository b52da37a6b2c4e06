"""What a pipeline is made of, opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.config.pipeline import PythonTransform
from headwater.engine.going_on import Retries
from headwater.engine.log import Log
from headwater.engine.rejects import Rejects
from headwater.engine.transform import apply_transform
from headwater.model.faults import Faults
from headwater.model.rows import Rows
from headwater.model.sink import Sink
from headwater.model.source import Source
from headwater.model.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SinksOnUse:
    """A pipeline's sinks, opened when the first window lands: an idle poll needs none of them."""

    def __init__(self, open_all: Callable[[], Sequence[Sink]]) -> None:
        self._open_all = open_all
        self._sinks: Sequence[Sink] = ()

    def __call__(self) -> Sequence[Sink]:
        self._sinks = self._sinks or self._open_all()
        return self._sinks

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


@dataclass(frozen=True)
class Parts:
    """Everything that the cycles of one pipeline work with."""

    name: str
    source: Source
    transform: str | PythonTransform | None
    sinks: SinksOnUse
    rejects: Rejects
    store: Store
    spark: Callable[[], SparkSession]
    folder: Path
    owner: str
    lease_seconds: float
    faults: Faults
    log: Log
    retries: Retries = field(default_factory=Retries)

    def close(self) -> None:
        """Give back the connections of the source and the sinks."""
        self.source.close()
        self.sinks.close()
        self.rejects.close()

    def transformed(self, rows: Rows) -> Rows:
        """The rows as the pipeline's transform gives them."""
        return apply_transform(rows, self.transform, self.folder, self.spark) if self.transform else rows
