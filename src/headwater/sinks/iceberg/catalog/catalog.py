"""Finds a table in the session's catalog, creates it at the first landing, and tags its head."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.config.sinks.iceberg import PartitionField, parse_partition_field
from headwater.model.errors import InputError, JarsMissing, PublishConflict, RunError, UnknownName
from headwater.model.protocols.sink import Attempt
from headwater.sinks.iceberg.catalog.jvm import HeadMoved, describe_error, is_class, java, reaching
from headwater.sinks.iceberg.catalog.table import MAIN, LakeTable, TableName
from headwater.sinks.iceberg.schema import TableSchema, plan_new, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Format 3 has deletion vectors. Rows are written in the order they arrive: this sink neither sorts nor shuffles them.
# Commits remove the metadata files that they replace.
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
_NO_ICEBERG = "does not contain an Iceberg Catalog"  # Iceberg's helper raises it without a class of its own
KEY_PROPERTY = "headwater.key"
OWNER_PROPERTY = "headwater.owner"
_KEY_BOUND = "truncate(64)"  # key bounds decide which files an upsert reads; Iceberg's default is 16 characters
_OBJECT_BOUND = "full"  # urls of objects share long prefixes


def find_table(spark: SparkSession, name: TableName, branch: str = MAIN) -> LakeTable | None:
    """The table; None: it does not exist."""
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
    owner: Sequence[str],
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    object_column: str = "",
) -> LakeTable:
    """Create the namespace and the table for these rows. A table that another writer just created is used as it is."""
    from py4j.protocol import Py4JJavaError

    plan_new(rows).check(str(name))
    schema = table_schema(rows, key)
    catalog, iceberg = _catalog(spark, name), java(spark).org.apache.iceberg
    java_schema = iceberg.SchemaParser.fromJson(schema.to_json())
    spec = iceberg.PartitionSpecParser.fromJson(java_schema, _spec(partition_by, schema, name))
    _create_namespace(spark, catalog, name)
    builder = catalog.buildTable(_identifier(spark, name), java_schema).withPartitionSpec(spec)
    ours = _properties(properties or {}, key, object_column, owner)
    for property_name, value in ours.items():
        builder = builder.withProperty(property_name, value)
    try:
        return LakeTable(spark, name, builder.create())
    except Py4JJavaError as error:
        table = find_table(spark, name) if _may_exist(error) else None
        if table is None:
            raise
        return table


def _catalog(spark: SparkSession, name: TableName) -> Any:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    session = spark._jsparkSession  # noqa: SLF001 - PySpark has no public name for it
    # Spark looks up a catalog at its first use in the settings of the thread's session, and a new thread has none.
    java(spark).org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    util = java(spark).org.apache.iceberg.spark.Spark3Util
    if not is_class(util):
        raise JarsMissing(
            f"{name}: this Spark session does not have Iceberg's runtime",
            hint="start the session with the jars that headwater jars show lists",
        )
    try:
        return util.loadIcebergCatalog(session, name.catalog)
    except (Py4JError, PySparkException) as error:
        if _NO_ICEBERG in str(error):
            raise InputError(
                f"{name}: {name.catalog!r} is not an Iceberg catalog", hint="use the lake's catalog"
            ) from error
        raise UnknownName(
            f"{name}: the Spark session has no catalog {name.catalog!r}",
            hint="start table: of the sink with the lake's name (headwater.yaml: lake.name, by default lake)",
        ) from error


def _identifier(spark: SparkSession, name: TableName) -> Any:
    return java(spark).org.apache.iceberg.catalog.TableIdentifier.of(_namespace(spark, name), name.name)


def _namespace(spark: SparkSession, name: TableName) -> Any:
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    levels = gateway.new_array(java(spark).java.lang.String, len(name.namespace))
    for index, level in enumerate(name.namespace):
        levels[index] = level
    return java(spark).org.apache.iceberg.catalog.Namespace.of(levels)


def _create_namespace(spark: SparkSession, catalog: Any, name: TableName) -> None:
    from py4j.protocol import Py4JJavaError

    namespace = _namespace(spark, name)
    if not catalog.namespaceExists(namespace):
        try:
            catalog.createNamespace(namespace)
        except Py4JJavaError as error:
            if not _may_exist(error) or not catalog.namespaceExists(namespace):
                raise


def _may_exist(error: Exception) -> bool:
    """True if another writer may have created the same; a JDBC catalog reports a broken constraint."""
    classes, _ = describe_error(error)
    return "AlreadyExistsException" in classes or "UncheckedSQLException" in classes


def _properties(
    settings: Mapping[str, str], key: tuple[str, ...], object_column: str, owner: Sequence[str]
) -> Mapping[str, str]:
    bounds = {f"write.metadata.metrics.column.{column}": _KEY_BOUND for column in key}
    bounds |= {f"write.metadata.metrics.column.{object_column}": _OBJECT_BOUND} if object_column else {}
    ours = {OWNER_PROPERTY: json.dumps(list(owner)), **({KEY_PROPERTY: json.dumps(key)} if key else {})}
    return {**_PROPERTIES, **bounds, **settings, **ours}


def _spec(fields: Sequence[str], schema: TableSchema, name: TableName) -> str:
    spec = []
    for number, field in enumerate(parse_partition_field(text) for text in fields):
        column = schema.column(field.column)
        if column is None:
            raise _unknown_column(field, schema, name)
        spec.append(
            {"name": field.name, "transform": field.transform, "source-id": column.id, "field-id": 1000 + number}
        )
    return json.dumps({"spec-id": 0, "fields": spec})


def _unknown_column(field: PartitionField, schema: TableSchema, name: TableName) -> UnknownName:
    names = [column.name for column in schema.columns]
    near = difflib.get_close_matches(field.column, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the rows have {', '.join(names)}"
    return UnknownName(f"{name}: the rows have no column {field.column!r}, which partition_by: names", hint=hint)


_TRIES = 5


def tag_head(table: LakeTable, attempt: Attempt, labels: Sequence[str]) -> None:
    """Add all labels in one commit. Existing tags of the head's history stay; a table without snapshots gets none."""
    for _ in range(_TRIES):
        with reaching(table.name):
            metadata = table.metadata
            head = table.newest(metadata)
            new = [label for label in labels if not is_tagged(table, label)]
        if head is None or not new:
            return
        attempt.clear_to_publish()  # G4
        try:
            with reaching(table.name):
                table.operations.commit(metadata, _with_tags(table, metadata, int(head.snapshotId()), new))
        except HeadMoved:
            with reaching(table.name):
                table.refresh()
        else:
            return
    raise PublishConflict(
        f"{table.name}: other writers published {_TRIES} times while the tags {', '.join(labels)} were added",
        hint="the next cycle tries again",
    )


def has_ref(table: LakeTable, label: str) -> bool:
    """True if the table has a tag or a branch of that name."""
    return table.metadata.ref(label) is not None


def is_tagged(table: LakeTable, label: str) -> bool:
    """True if an earlier try added the tag. Raises if the name belongs to another history."""
    ref = table.metadata.ref(label)
    if ref is None:
        return False
    if ref.isTag() and _may_be_ancestor(table, int(ref.snapshotId())):
        return True
    ref_type = "tag" if ref.isTag() else "branch"
    raise RunError(
        f"{table.name}: the {ref_type} {label} exists and is not in the history of the table's head",
        hint=f"check what uses it; to free the name: ALTER TABLE {table.name.quoted} DROP {ref_type.upper()} `{label}`",
    )


def _may_be_ancestor(table: LakeTable, snapshot: int) -> bool:
    """True also where snapshots in between have expired: only a rollback makes another history."""
    snapshots = table.metadata_json()["snapshots"]
    parents = {entry["snapshot-id"]: entry.get("parent-snapshot-id") for entry in snapshots}
    ancestor = table.head
    while ancestor is not None and ancestor != snapshot:
        if ancestor not in parents:
            return True
        ancestor = parents[ancestor]
    return ancestor is not None


def _with_tags(table: LakeTable, metadata: Any, snapshot: int, labels: Sequence[str]) -> Any:
    iceberg = table.jvm.org.apache.iceberg
    builder = iceberg.TableMetadata.buildFrom(metadata)
    for label in labels:
        builder = builder.setRef(label, iceberg.SnapshotRef.tagBuilder(snapshot).build())
    return builder.build()
