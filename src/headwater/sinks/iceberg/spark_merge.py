"""Carries out Spark's MERGE on a staging branch, in a session of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.sinks.iceberg.java_errors import reaching
from headwater.sinks.iceberg.naming import quote
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PROPERTY = "spark.sql.iceberg.snapshot-property"


def merge_on_branch(
    session: SparkSession,
    table: LakeTable,
    statement: Callable[..., str],
    *,
    stamp: Stamp,
    branch: str,
    rows: Sequence[Sequence[str]],
    more: Sequence[pa.Table] = (),
    first: Callable[[str], str] | None = None,
) -> None:
    """Run a MERGE on a new branch at main's head, as one snapshot that carries the stamp.

    The statement is made of the names of its target and of its views: the rows of Parquet files, list by list, and more
    tables. `first` is another statement for the same target, which comes before it.
    `session` belongs to the sink alone: its settings and views are seen by no other pipeline.
    """
    with reaching(table.name), ExitStack() as views:
        manage = table.java.manageSnapshots()
        base = table.head
        (manage.createBranch(branch) if base is None else manage.createBranch(branch, base)).commit()
        schema = _file_schema(session, table)
        batches = [
            session.read.schema(schema).parquet(*some) if some else session.createDataFrame([], schema) for some in rows
        ]
        frames = [*batches, *(session.createDataFrame(one) for one in more)]
        names = [views.enter_context(_view(frame)) for frame in frames]
        target = f"{table.name.quoted}.{quote(f'branch_{branch}')}"
        if first:
            session.sql(first(target))
        for name, value in stamp.properties().items():
            session.conf.set(f"{_PROPERTY}.{name}", value)
        session.sql(statement(target, *names))


@contextmanager
def _view(frame: DataFrame) -> Iterator[str]:
    name = f"headwater_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        frame.sparkSession.catalog.dropTempView(name)


def _file_schema(session: SparkSession, table: LakeTable) -> StructType:
    """What Spark reads of a Parquet file of this table: Spark knows no UUIDs there, only their bytes."""
    from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: PLC0415 - needs pyspark

    uuids = {column.name for column in table.schema.columns if column.type == "uuid"}
    fields = session.table(table.name.quoted).schema.fields
    return StructType([StructField(f.name, BinaryType() if f.name in uuids else f.dataType) for f in fields])
