"""A pipeline's transform: Spark SQL over `rows`, or a Python function from DataFrame to DataFrame.

Lazy: nothing runs before a sink asks. A Python function must stay lazy too, and must give the same rows for
the same window: a retry applies it again. Its module is loaded from the pipeline's folder once per process
and travels to Spark's workers by value, with the modules beside it, so UDFs need nothing installed there.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.config.pipeline import PythonTransform
from headwater.engine.transform_module import imports_from, load_function, sent_by_value
from headwater.model.changes import CHANGE_COLUMNS, ChangeRows, EventRows
from headwater.model.errors import TransformFailed
from headwater.model.rows import ReplacingRows, Rows
from headwater.model.secret import masked

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_LONGEST_REASON = 400


def apply_transform(
    rows: Rows, transform: str | PythonTransform, folder: Path, spark: Callable[[], SparkSession]
) -> Rows:
    """The rows as the transform gives them; `folder` is the pipeline file's."""
    kind = TransformedChanges if isinstance(rows, ChangeRows) else TransformedRows
    return kind(rows, transform, folder, spark)


class TransformedRows:
    """Rows seen through a transform. Only Spark can read them."""

    def __init__(
        self, rows: Rows, transform: str | PythonTransform, folder: Path, spark: Callable[[], SparkSession]
    ) -> None:
        self._rows, self._transform, self._folder, self._spark = rows, transform, folder, spark
        self._made: tuple[SparkSession, DataFrame] | None = None

    @property
    def stream(self) -> str:
        return self._rows.stream

    @cached_property
    def schema(self) -> pa.Schema:
        """What Spark's analysis says; no job runs for it."""
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - an idle poll must not import Spark

        return to_arrow_schema(self.dataframe(self._spark()).schema)

    @property
    def key(self) -> tuple[str, ...]:
        return self._surviving(self._rows.key)

    @property
    def order(self) -> tuple[str, ...]:
        return self._surviving(self._rows.order)

    @property
    def part_column(self) -> str:
        """Asked for by sinks that replace an object's rows; these cannot do without it."""
        column = self._rows.part_column if isinstance(self._rows, ReplacingRows) else ""
        if column and column not in self.schema.names:
            raise TransformFailed(
                f"the transform of {self.stream} leaves out or renames {column!r}, which names the object of a row; "
                f"a sink with mode: replace_object needs it",
                hint=f"select {column} too, as it is; the transform gives {', '.join(self.schema.names)}",
            )
        return column

    @property
    def earlier(self) -> tuple[str, ...]:
        return self._rows.earlier if isinstance(self._rows, ReplacingRows) else ()

    @property
    def part_prefix(self) -> str:
        return self._rows.part_prefix if isinstance(self._rows, ReplacingRows) else ""

    def dataframe(self, spark: SparkSession) -> DataFrame:
        # Made once per session: the user's function is called once per window, however many sinks there are.
        if self._made is None or self._made[0] is not spark:
            self._made = (spark, self._make(spark))
        return self._made[1]

    def _make(self, spark: SparkSession) -> DataFrame:
        frame = self._rows.dataframe(spark)
        if isinstance(self._transform, PythonTransform):
            return _through_function(frame, self._transform.python, self._folder, self.stream)
        return _through_sql(frame, self._transform, spark, self.stream)

    def _surviving(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        return columns if set(columns) <= set(self.schema.names) else ()


class TransformedChanges(TransformedRows):
    """Changes stay changes where the transform leaves what Headwater knows of them; their values may become others."""

    @property
    def table_columns(self) -> tuple[str, ...]:
        rows, names = self._rows, self.schema.names
        assert isinstance(rows, ChangeRows)  # noqa: S101 - so it was made
        lost = [name for name in (*CHANGE_COLUMNS, *rows.key) if name not in names]
        if lost:
            raise TransformFailed(
                f"the transform of {self.stream} leaves out or renames {', '.join(lost)}, without which a change is none",
                hint="begin it with SELECT *, or select these columns too, as they are",
            )
        around = {*CHANGE_COLUMNS, *(name for name in rows.schema.names if name not in rows.table_columns)}
        return tuple(name for name in names if name not in around)

    @property
    def event_key(self) -> tuple[str, ...]:
        return self._surviving(self._rows.event_key) if isinstance(self._rows, EventRows) else ()

    @property
    def arrival(self) -> str:
        arrival = self._rows.arrival if isinstance(self._rows, EventRows) else ""
        return arrival if arrival in self.schema.names else ""


def _through_sql(frame: DataFrame, text: str, spark: SparkSession, stream: str) -> DataFrame:
    from pyspark.errors import PySparkException  # noqa: PLC0415

    # The view has a name of its own, so that pipelines in other threads never meet it; `rows` is a name
    # only inside this query. In parentheses nothing but a query can stand: a transform changes no table.
    view = f"headwater_rows_{uuid.uuid4().hex}"
    query = text.strip().rstrip(";")
    frame.createTempView(view)
    try:
        return spark.sql(f"WITH rows AS (SELECT * FROM {view}) SELECT * FROM ({query}\n)")  # noqa: S608 - the user's own
    except PySparkException as error:
        raise TransformFailed(
            f"the transform of {stream} is no query that Spark understands: {_first_line(error).replace(view, 'rows')}",
            hint=f"rows has the columns {', '.join(frame.columns)}",
        ) from error
    finally:
        spark.catalog.dropTempView(view)


def _through_function(frame: DataFrame, reference: str, folder: Path, stream: str) -> DataFrame:
    from pyspark.sql import DataFrame  # noqa: PLC0415

    function = load_function(reference, folder)
    try:
        with imports_from(folder), sent_by_value(folder):
            given = function(frame)
            if isinstance(given, DataFrame):
                given.schema  # noqa: B018 - Spark's analysis happens here, and so do its errors
                return given
    except Exception as error:
        raise TransformFailed(
            f"the transform {reference} failed on {stream}: {type(error).__name__}: {_first_line(error)}",
            hint=f"it got the columns {', '.join(frame.columns)}",
        ) from error
    raise TransformFailed(
        f"the transform {reference} gave {type(given).__name__} for {stream}, and must give a DataFrame",
        hint="end it with: return df",
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    line = re.sub(r"\s*SQLSTATE: \w+.*$", "", lines[0]) if lines else "no reason given"
    return masked(line)[:_LONGEST_REASON]
