"""A data source of Spark over splits: rows that Arrow reads, as a DataFrame."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headwater.model.spark.schema import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

_FORMAT = "headwater"
_registering = threading.Lock()


ReadSplit = Callable[[int], Iterator["pa.RecordBatch"]]  # of the split with that number


def splits_dataframe(spark: SparkSession, schema: pa.Schema, splits: int, read_split: ReadSplit) -> DataFrame:
    """Lazily, one partition per split."""
    reader = _data_source(schema, splits, read_split)
    _replace_quietly(spark)
    # A format is looked up by its name when it is loaded; two pipelines share the session's one registry.
    with _registering:
        spark.dataSource.register(reader)
        return spark.read.format(_FORMAT).load()


def _data_source(schema: pa.Schema, splits: int, read_split: ReadSplit) -> type[DataSource]:
    """A data source that holds the splits itself: as options they would show their secrets in query plans (G11)."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

    columns = spark_schema(schema)

    class Splits(DataSource):
        @classmethod
        def name(cls) -> str:
            return _FORMAT

        def schema(self) -> StructType:
            return columns

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
            return Reader()

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(splits)] or [InputPartition(-1)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return read_split(partition.value) if partition.value >= 0 else iter(())

    return Splits


def _replace_quietly(spark: SparkSession) -> None:
    """Registering the format anew for each window is meant; Spark would warn each time."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - there is no public way to the JVM
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(
        "org.apache.spark.sql.execution.datasources.DataSourceManager", log4j.Level.ERROR
    )
