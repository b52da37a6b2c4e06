"""Rows that are read in splits as Arrow, and the DataFrame over them: the same for every source."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.model.rows import Split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

_FORMAT = "headwater"
_registering = threading.Lock()


@dataclass(frozen=True)
class ArrowRows:
    """One stream's rows of one window."""

    stream: str
    schema: pa.Schema
    key: tuple[str, ...]
    order: tuple[str, ...]
    splits: tuple[Split, ...]
    part_column: str = ""  # the column that names the part of the source (the object) which a row came from
    earlier: tuple[str, ...] = ()  # its values whose earlier rows these replace, or remove
    part_prefix: str = ""  # what its values begin with, before the part's name

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """Lazily, one partition per split, through a Python data source."""
        reader = _data_source(self.schema, self.splits)
        _replace_quietly(spark)
        # A format is looked up by its name when it is loaded; two pipelines share the session's one registry.
        with _registering:
            spark.dataSource.register(reader)
            return spark.read.format(_FORMAT).load()


@dataclass(frozen=True)
class ArrowChangeRows(ArrowRows):
    """The same where rows are changes (`model/changes.py`)."""

    table_columns: tuple[str, ...] = ()
    event_key: tuple[str, ...] = ()
    arrival: str = ""
    is_copy: bool = False


def _data_source(schema: pa.Schema, splits: tuple[Split, ...]) -> type[DataSource]:
    """A data source that holds the splits itself: as options they would show their secrets in query plans (G11)."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition  # noqa: PLC0415
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    spark_schema = from_arrow_schema(schema, prefer_timestamp_ntz=True)

    class Splits(DataSource):
        @classmethod
        def name(cls) -> str:
            return _FORMAT

        def schema(self) -> StructType:
            return spark_schema

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
            return Reader()

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(len(splits))] or [InputPartition(-1)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return splits[partition.value].read() if partition.value >= 0 else iter(())

    return Splits


def _replace_quietly(spark: SparkSession) -> None:
    """Registering the format anew for each window is meant; Spark would warn each time."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - there is no public way to the JVM
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(
        "org.apache.spark.sql.execution.datasources.DataSourceManager", log4j.Level.ERROR
    )
