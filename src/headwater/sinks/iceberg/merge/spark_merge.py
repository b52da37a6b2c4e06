"""Spark's MERGE on a staging branch, in a session of its own."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.sinks.iceberg.catalog.jvm import reaching
from headwater.sinks.iceberg.catalog.publish import Stamp
from headwater.sinks.iceberg.catalog.table import LakeTable, quote
from headwater.sinks.iceberg.schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PROPERTY = "spark.sql.iceberg.snapshot-property"


def merge_session(shared: SparkSession) -> SparkSession:
    """A session for statements that need settings: those of the shared one belong to all pipelines.

    A new session knows what its JVM was started with; a user's may have got its catalogs since.
    """
    session = shared.newSession()
    inherited = session.conf.getAll
    for name, value in shared.conf.getAll.items():
        if name.startswith("spark.sql.") and inherited.get(name) != value:
            session.conf.set(name, value)
    return session


def run_merge(
    session: SparkSession,
    table: LakeTable,
    statement: Callable[..., str],
    *,
    stamp: Stamp,
    branch: str,
    files: Sequence[Sequence[str]] = (),
    tables: Sequence[pa.Table] = (),
    first: Callable[[str], str] | None = None,
) -> None:
    """Run a MERGE on a new branch at main's head, as one snapshot that carries the stamp.

    `statement` gets the names of its target and of its views: one for each list of Parquet files, one for each table.
    `first` makes a statement for the same target that runs before it.
    `session` belongs to the sink alone: other pipelines see neither its settings nor its views.
    """
    with reaching(table.name), ExitStack() as views:
        manage = table.java.manageSnapshots()
        base = table.head
        (manage.createBranch(branch) if base is None else manage.createBranch(branch, base)).commit()
        schema = _file_schema(session, table)
        batches = [
            session.read.schema(schema).parquet(*group) if group else session.createDataFrame([], schema)
            for group in files
        ]
        frames = [*batches, *(session.createDataFrame(table_rows) for table_rows in tables)]
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
    """The schema by which Spark reads a Parquet file of this table: it reads UUIDs as bytes."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    uuids = {column.name for column in table.schema.columns if column.type == "uuid"}
    fields = session.table(table.name.quoted).schema.fields
    return StructType([StructField(f.name, BinaryType() if f.name in uuids else f.dataType) for f in fields])


Bounds = Mapping[str, tuple[object, object]]
_REMOVED = quote("headwater removes")  # a column that no table has


def merge_statement(
    target: str, rows: str, *, schema: TableSchema, key: Sequence[str], order: Sequence[str], bounds: Bounds
) -> str:
    """One row per key: existing rows are replaced, others added. `rows` is the view of the batch."""
    columns = [column.name for column in schema.columns]
    on = [f"t.{quote(column)} = s.{quote(column)}" for column in key]
    updates = ", ".join(f"t.{quote(column)} = s.{quote(column)}" for column in columns)
    return (
        f"MERGE INTO {target} AS t\nUSING ({source_statement(schema, rows, key, order)}) AS s\n"
        f"ON {' AND '.join([*on, *_within(bounds)])}\n"
        f"WHEN MATCHED THEN UPDATE SET {updates}\n"
        f"WHEN NOT MATCHED THEN {_insert(columns)}"
    )


def replace_statement(
    target: str, rows: str, removed: str, *, schema: TableSchema, object_column: str, bounds: Bounds
) -> str:
    """Remove the rows of the objects in the view `removed`, which has one column, and add those of the batch."""
    columns = [column.name for column in schema.columns]
    batch = ", ".join(_selected(column.name, column.type) for column in schema.columns)
    nothing = ", ".join("NULL" for _ in columns)
    on = [f"t.{quote(object_column)} = s.{_REMOVED}", *_within(bounds)]
    return (
        f"MERGE INTO {target} AS t\n"  # noqa: S608 - identifiers are quoted, values escaped
        f"USING (SELECT {batch}, CAST(NULL AS STRING) AS {_REMOVED} FROM {quote(rows)}\n"
        f"UNION ALL SELECT {nothing}, * FROM {quote(removed)}) AS s\n"
        f"ON {' AND '.join(on)}\n"
        f"WHEN MATCHED THEN DELETE\n"
        f"WHEN NOT MATCHED AND s.{_REMOVED} IS NULL THEN {_insert(columns)}"
    )


def changes_statement(
    target: str,
    upserts: str,
    deletes: str,
    late: str,
    *,
    schema: TableSchema,
    key: Sequence[str],
    position: str,
    after: int,
    bounds: Bounds,
) -> str:
    """The last change of each key, if it is later than the table's row.

    Only changes after the position `after` count. `upserts` and `deletes` are views of the batch; `late` is a view of
    keys that a later change removed from the table.
    """
    names = [column.name for column in schema.columns]
    listed = ", ".join(quote(name) for name in names)
    columns = ", ".join(_selected(column.name, column.type) for column in schema.columns)
    later = f"s.{quote(position)} > t.{quote(position)}"
    on = [f"t.{quote(column)} = s.{quote(column)}" for column in key]
    updates = ", ".join(f"t.{quote(name)} = s.{quote(name)}" for name in names)
    return (
        f"MERGE INTO {target} AS t\n"  # noqa: S608 - identifiers are quoted, values escaped
        f"USING (SELECT * FROM (SELECT {listed}, {_REMOVED} FROM (SELECT *, row_number() OVER (PARTITION BY "
        f"{', '.join(quote(column) for column in key)} ORDER BY {quote(position)} DESC) AS `headwater number of row`\n"
        f"FROM (SELECT {columns}, false AS {_REMOVED} FROM {quote(upserts)} UNION ALL "
        f"SELECT {columns}, true FROM {quote(deletes)})) WHERE `headwater number of row` = 1\n"
        f"AND {quote(position)} > {literal(Decimal(after))})\n"
        f"LEFT ANTI JOIN {quote(late)} USING ({', '.join(quote(column) for column in key)})) AS s\n"
        f"ON {' AND '.join([*on, *_within(bounds)])}\n"
        f"WHEN MATCHED AND {later} AND s.{_REMOVED} THEN DELETE\n"
        f"WHEN MATCHED AND {later} THEN UPDATE SET {updates}\n"
        f"WHEN NOT MATCHED AND NOT s.{_REMOVED} THEN {_insert(names)}"
    )


def _within(bounds: Bounds) -> list[str]:
    """Literal bounds of the batch's keys, by which Iceberg skips files; a join condition alone does not."""
    return [f"t.{quote(column)} BETWEEN {literal(low)} AND {literal(high)}" for column, (low, high) in bounds.items()]


def _insert(columns: Sequence[str]) -> str:
    names = ", ".join(quote(column) for column in columns)
    values = ", ".join(f"s.{quote(column)}" for column in columns)
    return f"INSERT ({names}) VALUES ({values})"  # noqa: S608 - identifiers are quoted


def source_statement(schema: TableSchema, view: str, key: Sequence[str], order: Sequence[str]) -> str:
    """The batch in the table's columns, reduced to the latest row per key."""
    columns = ", ".join(_selected(column.name, column.type) for column in schema.columns)
    keys = ", ".join(quote(column) for column in key)
    latest = ", ".join(f"{quote(column)} DESC NULLS LAST" for column in order) or keys
    names = ", ".join(quote(column.name) for column in schema.columns)
    return (
        f"SELECT {names} FROM (SELECT {columns}, row_number() OVER (PARTITION BY {keys} ORDER BY {latest}) "  # noqa: S608 - as above
        f"AS `headwater number of row` FROM {quote(view)}) WHERE `headwater number of row` = 1"
    )


def _selected(name: str, data_type: object) -> str:
    if data_type != "uuid":
        return quote(name)
    digits = f"lower(hex({quote(name)}))"  # Spark reads a UUID of a plain Parquet file as bytes, of Iceberg as text
    parts = ", ".join(
        f"substr({digits}, {start}, {length})" for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    )
    return f"CASE WHEN {quote(name)} IS NOT NULL THEN concat_ws('-', {parts}) END AS {quote(name)}"


def literal(value: object) -> str:
    """A value in Spark SQL."""
    if isinstance(value, dt.datetime):
        sql_type = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
        return f"{sql_type} '{value.isoformat(sep=' ', timespec='microseconds')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return f"{value}BD" if not isinstance(value, int) else str(value)
