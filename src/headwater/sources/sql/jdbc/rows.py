"""Rows that Spark reads through a JDBC driver, each split by its own statement; the driver's values as exact columns."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from headwater.model.errors import ValueNotKept
from headwater.model.rows import OnReject, Rows, Split
from headwater.model.spark.schema import spark_schema
from headwater.model.types import Column, arrow_schema, ddl_type, decimal_digits
from headwater.sources.sql.database import Relation
from headwater.sources.sql.dialects import identifier
from headwater.sources.sql.jdbc.session import JdbcSession

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class JdbcSplit:
    """One statement. Spark reads it on an executor; `read` is for the few rows that this process compares itself."""

    stream: str
    session: JdbcSession = field(repr=False)
    sql: str = field(repr=False)  # holds values of the cursor
    columns: tuple[Column, ...] = field(repr=False)
    flags: int = 0
    rows: int | None = None

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - a value that does not fit raises
        for rows in self.session.rows(self.sql, wire_schema(self.columns, self.flags)):
            yield arrow_batch(rows, self.columns, self.flags, self.stream)

    def dataframe(self, spark: SparkSession) -> DataFrame:
        session = self.session
        options = {
            **session.address.properties,
            "url": session.address.url,
            "driver": session.driver,
            "query": with_wire_names(session.address.vendor.dialect, self.sql, self.columns),
            "customSchema": wire_schema(self.columns, 0),
            "fetchsize": str(session.settings.fetch_rows),
            # The database would compare by its own collation.
            "pushDownPredicate": "false",
        }
        if session.address.vendor.session:
            options["sessionInitStatement"] = session.address.vendor.session
        return spark.read.format("jdbc").options(**options).load().select(*spark_columns(self.columns, self.stream))


def jdbc_rows(relation: Relation, splits: tuple[Split, ...]) -> Rows:
    """One stream's rows of one window, which only Spark reads."""
    frame = _JdbcFrame(splits, relation.schema)
    return Rows(relation.stream, relation.schema, relation.key, (relation.subject.cursor,), frame=frame)


class _JdbcFrame:
    """One partition per split; this process holds the few rows at the mark."""

    def __init__(self, splits: tuple[Split, ...], schema: pa.Schema) -> None:
        self._jdbc_splits = [split for split in splits if isinstance(split, JdbcSplit)]
        self._digest_splits = [split for split in splits if not isinstance(split, JdbcSplit)]
        self._schema = schema

    def __call__(self, spark: SparkSession) -> DataFrame:
        for split in self._jdbc_splits[:1]:
            split.session.use_driver(spark)
        frames = [split.dataframe(spark) for split in self._jdbc_splits]
        compared_rows = self._compared_rows
        if compared_rows.num_rows or not frames:
            frames.append(
                spark.createDataFrame(
                    compared_rows if compared_rows.num_rows else [], schema=spark_schema(compared_rows.schema)
                )
            )
        return functools.reduce(lambda all_, next_: all_.union(next_), frames)

    @functools.cached_property
    def _compared_rows(self) -> pa.Table:
        """Read once: a second sink gets the same rows."""
        import pyarrow as pa

        batches = [batch for split in self._digest_splits for batch in split.read()]
        return pa.Table.from_batches(batches, schema=self._schema)


def with_wire_names(dialect: str, sql: str, columns: tuple[Column, ...]) -> str:
    """The statement with its columns under the names of the wire."""
    names = [
        exp.alias_(exp.column(identifier(column.name)), wire_name(position), quoted=True)
        for position, column in enumerate(columns)
    ]
    inner = exp.Table(this=exp.var(f"({sql})"), alias=exp.TableAlias(this=identifier("headwater_part")))
    return exp.select(*names).from_(inner).sql(dialect=dialect, comments=False)


# The database sends a column as one of a few plain types. Texts are converted only in the exact form of their type;
# anything else (a MySQL '0000-00-00', infinity, a year beyond 9999) stops the read with the column's name (G8).

_DAY = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = _DAY + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
_UTC = r"(Z|[+]00(:00)?)"
_SHAPES = {
    "bool": r"[01]",
    "int32": r"-?[0-9]{1,10}",
    "int64": r"-?[0-9]{1,19}",
    "date": _DAY,
    "timestamp": _TIME,
    "timestamptz": f"{_TIME}{_UTC}?",
}


def wire_name(position: int) -> str:
    """The name of a column on the wire: Spark's quoting would not preserve every name."""
    return f"h{position}"


def wire_schema(columns: Sequence[Column], flags: int) -> str:
    """The types that the database sends, as Spark's DDL."""
    types = [_wire(column) for column in columns] + ["BIGINT"] * flags
    return ", ".join(f"{wire_name(position)} {type_}" for position, type_ in enumerate(types))


def spark_columns(columns: Sequence[Column], stream: str) -> list[SparkColumn]:
    """The exact columns of a DataFrame of the wire's columns."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name; only where Spark is

    spark_values = []
    for position, column in enumerate(columns):
        value, target = F.col(wire_name(position)), ddl_type(column.type)
        if column.as_text and column.type != "string":
            plain = value
            if column.type == "timestamptz":
                plain = F.concat(F.regexp_replace(value, f"{_UTC}$", ""), F.lit("+00:00"))
            fits = value.rlike(f"^{_shape(column.type)}$")
            error = F.raise_error(str(_inexact_error(stream, column)))
            exact = plain.cast("INT").cast(target) if column.type == "bool" else plain.try_cast(target)
            value = F.when(value.isNotNull(), F.coalesce(F.when(fits, exact), error.cast(target)))
        spark_values.append(value.cast(target).alias(column.name))
    return spark_values


def arrow_batch(rows: Sequence[Sequence[Any]], columns: Sequence[Column], flags: int, stream: str) -> pa.RecordBatch:
    """The same in this process; rows as tuples of the wire's values."""
    import pyarrow as pa

    all_columns = [*columns, *(Column(f"headwater_flag_{number}", "int64", nullable=True) for number in range(flags))]
    schema = arrow_schema(all_columns)
    arrays = [
        pa.array(_values(column, (row[position] for row in rows), stream), schema.field(position).type)
        for position, column in enumerate(all_columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _values(column: Column, values: Iterable[Any], stream: str) -> Iterable[Any]:
    if column.type == "binary":
        return [None if value is None else bytes(value) for value in values]
    if not column.as_text or column.type == "string":
        return list(values)
    return [None if value is None else _parse(column, value, stream) for value in values]


def _parse(column: Column, text: str, stream: str) -> Any:
    try:
        value = _value(column.type, text) if re.fullmatch(_shape(column.type), text) else None
    except ValueError:  # a day or an hour that does not exist
        value = None
    if value is None:
        raise _inexact_error(stream, column)
    return value


def _value(type_: str, text: str) -> Any:
    match type_:
        case "bool":
            return text == "1"
        case "int32" | "int64":
            return int(text)
        case "date":
            return dt.date.fromisoformat(text)
        case "timestamp":
            return dt.datetime.fromisoformat(text)
        case "timestamptz":
            return dt.datetime.fromisoformat(re.sub(f"{_UTC}$", "", text)).replace(tzinfo=dt.UTC)
        case _:
            return decimal.Decimal(text)


def _wire(column: Column) -> str:
    if column.as_text:
        return "STRING"
    return "DOUBLE" if column.type == "float32" else ddl_type(column.type)


def _shape(type_: str) -> str:
    digits = decimal_digits(type_)
    if not digits:
        return _SHAPES[type_]
    precision, scale = digits
    fraction = f"([.][0-9]{{1,{scale}}})?" if scale else ""
    return f"-?[0-9]{{1,{max(precision - scale, 1)}}}{fraction}"


def _inexact_error(stream: str, column: Column) -> ValueNotKept:
    return ValueNotKept(
        f"{stream}: column {column.name} ({column.declared or column.type}) has a value that {column.type} cannot hold exactly",
        hint=f"read the column as text (as_text: [{column.name}]), or exclude those rows (where: …)",
    )
