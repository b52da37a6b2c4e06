"""`headwater sql`: Spark SQL on the lake."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.output import Output, table
from headwater.model.errors import InputError, RunError
from headwater.model.position.marks import Json
from headwater.model.secret import masked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFAULT_LIMIT = 100


def sql(
    out: Output,
    flags: ProjectFlags,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One statement: SELECT, SHOW, DESCRIBE, CALL …")],
    *,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=0, help=f"Show at most this many rows; 0: all. Default: {_DEFAULT_LIMIT}, with --json all."
        ),
    ] = None,
) -> None:
    """Run Spark SQL on the lake. With --json a list of objects: dates in ISO form, decimals as text."""
    from headwater.cli.project import open_project

    row_limit = limit if limit is not None else 0 if out.json else _DEFAULT_LIMIT
    with open_project(flags, out) as project:
        columns, rows = run_query(project.session(), query, row_limit + 1 if row_limit else None)
    has_more = bool(row_limit) and len(rows) > row_limit
    rows = rows[:row_limit] if row_limit else rows
    texts = [[_cell(value) for value in row] for row in rows]
    count = f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"
    summary = f"the first {count} of more: --limit 0 shows all" if has_more else count
    out.value([dict(zip(columns, row, strict=True)) for row in rows], table(columns, texts) if columns else "done")
    if columns:
        out.say(summary)


def run_query(spark: SparkSession, query: str, row_limit: int | None) -> tuple[list[str], list[list[Json]]]:
    """The names of a query's columns, and its rows as JSON values, exactly; at most so many."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        frame = spark.sql(query)
        # Through Arrow: collect() would convert timestamps to the machine's time zone.
        result = (frame if row_limit is None else frame.limit(row_limit)).toArrow()
    except (AnalysisException, ParseException) as error:
        hint = "list the tables: headwater sql 'SHOW TABLES IN lake.NAMESPACE'"
        raise InputError(masked(_first_lines(error)), hint=hint) from error
    except PySparkException as error:
        raise RunError(masked(_first_lines(error))) from error
    columns = [[json_value(value) for value in column.to_pylist()] for column in result.columns]
    return list(result.column_names), [list(row) for row in zip(*columns, strict=True)]


def json_value(value: object) -> Json:
    """A value of Arrow as JSON, exactly: dates in ISO form, decimals as text, bytes in base64."""
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: json_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON has no NaN
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _cell(value: Json) -> Json:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _first_lines(error: Exception) -> str:
    # Below them Spark prints its query plan.
    text = str(error).split("\n\nJVM stacktrace")[0]
    return " ".join(line.strip() for line in text.split(";\n")[0].splitlines() if line.strip())
