"""Carries out Spark's MERGE on a staging branch, in a session of its own."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.sinks.iceberg.java_errors import reaching
from headwater.sinks.iceberg.landing_files import LandingFiles
from headwater.sinks.iceberg.merge_sql import merge_statement, source_statement
from headwater.sinks.iceberg.merging import MergeOrder
from headwater.sinks.iceberg.naming import quote
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_PROPERTY = "spark.sql.iceberg.snapshot-property"


def merge_on_branch(
    session: SparkSession,
    table: LakeTable,
    files: LandingFiles,
    order: MergeOrder,
    *,
    stamp: Stamp,
    branch: str,
    bounds: Mapping[str, tuple[object, object]],
) -> None:
    """Merge the files' rows into a new branch at main's head, as one snapshot that carries the stamp.

    `session` belongs to the sink alone: its settings and views are seen by no other pipeline.
    """
    with reaching(table.name):
        manage = table.java.manageSnapshots()
        base = table.head
        (manage.createBranch(branch) if base is None else manage.createBranch(branch, base)).commit()
    view = f"headwater_{uuid.uuid4().hex}"
    schema = table.schema
    with reaching(table.name):
        batch = session.read.schema(_file_schema(session, table)).parquet(*files.locations)
        batch.createOrReplaceTempView(view)
        for name, value in stamp.properties().items():
            session.conf.set(f"{_PROPERTY}.{name}", value)
        source = f"({source_statement(schema, view, order.key, order.order)})"
        target = f"{table.name.quoted}.{quote(f'branch_{branch}')}"
        columns = [column.name for column in schema.columns]
        session.sql(merge_statement(target, source, columns, order.key, bounds))
        session.catalog.dropTempView(view)


def _file_schema(session: SparkSession, table: LakeTable) -> StructType:
    """What Spark reads of a Parquet file of this table: Spark knows no UUIDs there, only their bytes."""
    from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: PLC0415 - needs pyspark

    uuids = {column.name for column in table.schema.columns if column.type == "uuid"}
    fields = session.table(table.name.quoted).schema.fields
    return StructType([StructField(f.name, BinaryType() if f.name in uuids else f.dataType) for f in fields])
