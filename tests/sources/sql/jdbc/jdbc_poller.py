"""The Poller for sources that only Spark can read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.config.pipeline import SourceSettings
from headwater.model.position.window import Window
from headwater.sources.open import SourceContext, open_source
from tests.sources.sql.poller import Poller, stored_window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JdbcPoller(Poller):
    """Reads by DataFrames; all else as its parent does."""

    def __init__(self, spark: SparkSession, url: str, *, folder: Path = Path(), **settings: object) -> None:
        self.settings = SourceSettings.model_validate({"sql": {"url": url, **settings}})
        self.spark, self.folder = spark, folder
        self.source = open_source(self.settings, folder, 2, SourceContext(spark=lambda: spark))
        self.mark, self.warnings, self.plan = None, [], None

    def read(self, window: Window) -> dict[str, list[dict]]:
        with self.source.read(stored_window(window)) as streams:
            return {rows.stream: self._table(rows).to_pylist() for rows in streams}

    def in_another_process(self) -> JdbcPoller:
        other = JdbcPoller.__new__(JdbcPoller)
        other.__dict__.update(self.__dict__)
        other.source = open_source(self.settings, self.folder, 2, SourceContext(spark=lambda: self.spark))
        other.warnings, other.plan = [], None
        return other

    def _table(self, rows) -> pa.Table:
        """In the schema that the rows promise; a cast that would change a value fails."""
        return rows.dataframe(self.spark).toArrow().cast(rows.schema)
