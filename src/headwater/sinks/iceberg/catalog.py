"""Finding a table in the session's catalog, and making it at the first landing."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.config.partition_field import PartitionField, parse_partition_field
from headwater.config.sinks import IcebergSink as IcebergSettings
from headwater.model.errors import InputError, UnknownName
from headwater.sinks.iceberg.evolution import plan_new
from headwater.sinks.iceberg.java_errors import described
from headwater.sinks.iceberg.java_names import java
from headwater.sinks.iceberg.naming import TableName
from headwater.sinks.iceberg.table import MAIN, LakeTable
from headwater.sinks.iceberg.types import TableSchema, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Format 3 has deletion vectors. Rows are spread over files as they come: sorting and shuffling them is not
# this sink's work. Old metadata files go with the commits that replace them.
_PROPERTIES = {
    "format-version": "3",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.distribution-mode": "none",
    "write.merge.distribution-mode": "none",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
KEY_PROPERTY = "headwater.key"
OWNER_PROPERTY = "headwater.owner"
_KEY_BOUND = "truncate(64)"  # key bounds decide which files an upsert reads; Iceberg's default is 16 characters
_PART_BOUND = "full"  # urls of objects begin alike; what tells them apart comes last


def find_table(spark: SparkSession, name: TableName, branch: str = MAIN) -> LakeTable | None:
    """The table, or None where there is none."""
    catalog = _catalog(spark, name)
    identifier = _identifier(spark, name)
    if not catalog.tableExists(identifier):
        return None
    return LakeTable(spark, name, catalog.loadTable(identifier), branch)


def create_table(
    spark: SparkSession,
    name: TableName,
    rows: pa.Schema,
    *,
    key: tuple[str, ...],
    settings: IcebergSettings,
    owner: Sequence[str],
    part: str = "",
) -> LakeTable:
    """Make the namespace and the table for these rows. A table that somebody else just made is taken as it is."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - needs pyspark

    plan_new(rows).check(str(name))
    schema = table_schema(rows, key)
    catalog, iceberg = _catalog(spark, name), java(spark).org.apache.iceberg
    java_schema = iceberg.SchemaParser.fromJson(schema.to_json())
    spec = iceberg.PartitionSpecParser.fromJson(java_schema, _spec(settings.partition_by, schema, name))
    _make_namespace(spark, catalog, name)
    builder = catalog.buildTable(_identifier(spark, name), java_schema).withPartitionSpec(spec)
    for property_name, value in _properties(settings, key, part, owner).items():
        builder = builder.withProperty(property_name, value)
    try:
        return LakeTable(spark, name, builder.create())
    except Py4JJavaError as error:
        made = find_table(spark, name) if _came_second(error) else None
        if made is None:
            raise
        return made


def _catalog(spark: SparkSession, name: TableName) -> Any:
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs pyspark
    from pyspark.errors import PySparkException  # noqa: PLC0415

    session = spark._jsparkSession  # noqa: SLF001 - PySpark's own way there; it has no public name
    # Spark looks for a catalog that nobody has used yet in the settings of the thread's session: a new thread has none.
    java(spark).org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    try:
        plugin = session.sessionState().catalogManager().catalog(name.catalog)
    except (Py4JError, PySparkException) as error:
        raise UnknownName(
            f"{name}: the Spark session has no catalog {name.catalog!r}",
            hint="begin the sink's table with the lake's name (headwater.yaml: lake.name, by default lake)",
        ) from error
    if "iceberg" not in str(plugin.getClass().getName()):
        raise InputError(f"{name}: the catalog {name.catalog!r} is no Iceberg catalog", hint="use the lake's catalog")
    return plugin.icebergCatalog()


def _identifier(spark: SparkSession, name: TableName) -> Any:
    return java(spark).org.apache.iceberg.catalog.TableIdentifier.of(_namespace(spark, name), name.name)


def _namespace(spark: SparkSession, name: TableName) -> Any:
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    levels = gateway.new_array(java(spark).java.lang.String, len(name.namespace))
    for place, level in enumerate(name.namespace):
        levels[place] = level
    return java(spark).org.apache.iceberg.catalog.Namespace.of(levels)


def _make_namespace(spark: SparkSession, catalog: Any, name: TableName) -> None:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - needs pyspark

    namespace = _namespace(spark, name)
    if not catalog.namespaceExists(namespace):
        try:
            catalog.createNamespace(namespace)
        except Py4JJavaError as error:
            if not _came_second(error) or not catalog.namespaceExists(namespace):
                raise


def _came_second(error: Exception) -> bool:
    """Whether another writer may have made the same thing; a JDBC catalog says it by a broken constraint."""
    classes, _ = described(error)
    return "AlreadyExistsException" in classes or "UncheckedSQLException" in classes


def _properties(settings: IcebergSettings, key: tuple[str, ...], part: str, owner: Sequence[str]) -> Mapping[str, str]:
    bounds = {f"write.metadata.metrics.column.{column}": _KEY_BOUND for column in key}
    bounds |= {f"write.metadata.metrics.column.{part}": _PART_BOUND} if part else {}
    ours = {OWNER_PROPERTY: json.dumps(list(owner)), **({KEY_PROPERTY: json.dumps(key)} if key else {})}
    return {**_PROPERTIES, **bounds, **settings.properties, **ours}


def _spec(fields: Sequence[str], schema: TableSchema, name: TableName) -> str:
    made = []
    for number, field in enumerate(parse_partition_field(text) for text in fields):
        column = schema.column(field.column)
        if column is None:
            raise _unknown_column(field, schema, name)
        made.append(
            {"name": field.name, "transform": field.transform, "source-id": column.id, "field-id": 1000 + number}
        )
    return json.dumps({"spec-id": 0, "fields": made})


def _unknown_column(field: PartitionField, schema: TableSchema, name: TableName) -> UnknownName:
    names = [column.name for column in schema.columns]
    near = difflib.get_close_matches(field.column, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the rows have {', '.join(names)}"
    return UnknownName(f"{name}: partition_by names the column {field.column!r}, which the rows do not have", hint=hint)
