"""An opened pipeline: source, sinks, store and all else that its cycles work with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.config.pipeline import PythonTransformSettings
from headwater.engine.rejects.landing import PipelineRejects
from headwater.engine.result import Log
from headwater.engine.retry import Retries
from headwater.engine.spark.transform import apply_transform
from headwater.model.faults import Faults
from headwater.model.position.marks import Mark
from headwater.model.protocols.sink import Sink
from headwater.model.protocols.source import Acknowledges, Source
from headwater.model.protocols.store import Store
from headwater.model.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LazySinks:
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
class OpenPipeline:
    """Everything that the cycles of one pipeline work with."""

    name: str
    source: Source
    transform: str | PythonTransformSettings | None
    sinks: LazySinks
    rejects: PipelineRejects
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

    def acknowledge(self, mark: Mark | None) -> None:
        if mark:
            acknowledge(self.source, mark, self.faults)

    def transformed(self, rows: Rows) -> Rows:
        """The rows after the pipeline's transform."""
        return apply_transform(rows, self.transform, self.folder, self.spark) if self.transform else rows


def acknowledge(source: Source, mark: Mark, faults: Faults) -> None:
    """Tell a source that keeps data until it has landed: it may forget only now (G10)."""
    if isinstance(source, Acknowledges):
        faults.reach("acknowledge.before")
        source.acknowledge(mark)
        faults.reach("acknowledge.after")
