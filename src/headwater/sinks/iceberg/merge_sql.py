"""The text of a MERGE: for tables in which rows cannot be found and marked as deleted by their position."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal

from headwater.sinks.iceberg.naming import quote
from headwater.sinks.iceberg.types import TableSchema

Bounds = Mapping[str, tuple[object, object]]
_REMOVED = quote("headwater removes")  # a column of the source that no table has


def merge_statement(
    target: str, rows: str, *, schema: TableSchema, key: Sequence[str], order: Sequence[str], bounds: Bounds
) -> str:
    """One row per key: what is there is replaced, what is not is added. `rows` is the view of the batch."""
    columns = [column.name for column in schema.columns]
    on = [f"t.{quote(column)} = s.{quote(column)}" for column in key]
    updates = ", ".join(f"t.{quote(column)} = s.{quote(column)}" for column in columns)
    return (
        f"MERGE INTO {target} AS t\nUSING ({source_statement(schema, rows, key, order)}) AS s\n"
        f"ON {' AND '.join([*on, *_within(bounds)])}\n"
        f"WHEN MATCHED THEN UPDATE SET {updates}\n"
        f"WHEN NOT MATCHED THEN {_insert(columns)}"
    )


def replace_statement(target: str, rows: str, removed: str, *, schema: TableSchema, part: str, bounds: Bounds) -> str:
    """Rows whose part is in the view `removed`, which has one column, go; the rows of the batch are added."""
    columns = [column.name for column in schema.columns]
    batch = ", ".join(_selected(column.name, column.type) for column in schema.columns)
    nothing = ", ".join("NULL" for _ in columns)
    on = [f"t.{quote(part)} = s.{_REMOVED}", *_within(bounds)]
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

    Only those after a position count. `upserts` and `deletes` are views of the batch, `late` of keys that something later happened to, though no row tells.
    """
    names, gone = [column.name for column in schema.columns], _REMOVED
    listed = ", ".join(quote(name) for name in names)
    columns = ", ".join(_selected(column.name, column.type) for column in schema.columns)
    later = f"s.{quote(position)} > t.{quote(position)}"
    on = [f"t.{quote(column)} = s.{quote(column)}" for column in key]
    updates = ", ".join(f"t.{quote(name)} = s.{quote(name)}" for name in names)
    return (
        f"MERGE INTO {target} AS t\n"  # noqa: S608 - identifiers are quoted, values escaped
        f"USING (SELECT * FROM (SELECT {listed}, {gone} FROM (SELECT *, row_number() OVER (PARTITION BY "
        f"{', '.join(quote(column) for column in key)} ORDER BY {quote(position)} DESC) AS `headwater number of row`\n"
        f"FROM (SELECT {columns}, false AS {gone} FROM {quote(upserts)} UNION ALL "
        f"SELECT {columns}, true FROM {quote(deletes)})) WHERE `headwater number of row` = 1\n"
        f"AND {quote(position)} > {literal(Decimal(after))})\n"
        f"LEFT ANTI JOIN {quote(late)} USING ({', '.join(quote(column) for column in key)})) AS s\n"
        f"ON {' AND '.join([*on, *_within(bounds)])}\n"
        f"WHEN MATCHED AND {later} AND s.{gone} THEN DELETE\n"
        f"WHEN MATCHED AND {later} THEN UPDATE SET {updates}\n"
        f"WHEN NOT MATCHED AND NOT s.{gone} THEN {_insert(names)}"
    )


def _within(bounds: Bounds) -> list[str]:
    """The literal bounds of the batch's keys let Iceberg leave out files; a join condition alone does not."""
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


def _selected(name: str, kind: object) -> str:
    if kind != "uuid":
        return quote(name)
    hexed = f"lower(hex({quote(name)}))"  # Spark reads a UUID of a plain Parquet file as bytes, of Iceberg as text
    parts = ", ".join(
        f"substr({hexed}, {start}, {length})" for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    )
    return f"CASE WHEN {quote(name)} IS NOT NULL THEN concat_ws('-', {parts}) END AS {quote(name)}"


def literal(value: object) -> str:
    """A value in Spark SQL."""
    if isinstance(value, dt.datetime):
        kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
        return f"{kind} '{value.isoformat(sep=' ', timespec='microseconds')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return f"{value}BD" if not isinstance(value, int) else str(value)
