"""The rejects that a pipeline's tables hold: to look at, and to take away once they have landed."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.model.rejects import LABEL, Reject
from headwater.sinks.iceberg.catalog import OWNER_PROPERTY, find_table
from headwater.sinks.iceberg.naming import TableName, quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = 1_000  # ids in one DELETE


@dataclass(frozen=True)
class KeptReject:
    """A reject and where it is kept."""

    reject: Reject
    table: TableName
    run: str
    set_aside_at: dt.datetime


def kept_rejects(spark: SparkSession, template: str, pipeline: str) -> Sequence[KeptReject]:
    """All of a pipeline's rejects, oldest first."""
    kept = []
    for table in _tables_of(spark, template, pipeline):
        columns = "reject, run, set_aside_at"
        found = spark.sql(f"SELECT {columns} FROM {table.quoted}").toArrow()  # noqa: S608 - a quoted name
        for row in found.to_pylist():
            reject = Reject.from_json(json.loads(row["reject"]))
            kept.append(KeptReject(reject, table, row["run"], row["set_aside_at"]))
    return sorted(
        kept, key=lambda one: (one.set_aside_at, one.reject.stream, sorted(map(str, one.reject.place.items())))
    )


def take_away(spark: SparkSession, kept: Sequence[KeptReject]) -> None:
    """Remove rejects from their tables."""
    by_table: dict[TableName, list[str]] = {}
    for one in kept:
        by_table.setdefault(one.table, []).append(one.reject.id)
    for table, ids in by_table.items():
        for begin in range(0, len(ids), _AT_ONCE):
            texts = ", ".join(f"'{one}'" for one in ids[begin : begin + _AT_ONCE])  # hexadecimal digits only
            spark.sql(f"DELETE FROM {table.quoted} WHERE id IN ({texts})")  # noqa: S608


def _tables_of(spark: SparkSession, template: str, pipeline: str) -> Iterator[TableName]:
    """Tables that the template can name and that were made for this pipeline's rejects."""
    pattern = re.compile(r"\w+".join(re.escape(text) for text in re.split(r"\{\w+\}", template)))
    catalog, *namespace = template.split(".")[:-1]
    for found in _namespaces(spark, catalog, namespace):
        shown = ".".join(quote(part) for part in (catalog, *found))
        for row in spark.sql(f"SHOW TABLES IN {shown}").collect():
            name = TableName(catalog, tuple(found), row.tableName)
            if pattern.fullmatch(str(name)) and _made_for(spark, name, pipeline):
                yield name


def _namespaces(spark: SparkSession, catalog: str, wanted: Sequence[str]) -> Iterator[Sequence[str]]:
    if not any("{" in part for part in wanted):
        there = spark.catalog.databaseExists(".".join((catalog, *wanted)))
        yield from [wanted] if there else []
        return
    for row in spark.sql(f"SHOW NAMESPACES IN {quote(catalog)}").collect():
        yield row.namespace.split(".")


def _made_for(spark: SparkSession, name: TableName, pipeline: str) -> bool:
    table = find_table(spark, name)
    owner = table.java.properties().get(OWNER_PROPERTY) if table else None
    return owner is not None and json.loads(owner)[:2] == [pipeline, LABEL]
