"""Rows that Spark reads through a JDBC driver, each part of the window by its own statement."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.model.rows import Split
from headwater.sources.sql.cursor_sql import identifier
from headwater.sources.sql.jdbc_session import JdbcSession
from headwater.sources.sql.jdbc_wire import arrow_batch, spark_columns, wire_name, wire_schema
from headwater.sources.sql.relation import Column, Relation

if TYPE_CHECKING:
    import pyarrow as pa
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

    def read(self) -> Iterator[pa.RecordBatch]:
        for rows in self.session.rows(self.sql, wire_schema(self.columns, self.flags)):
            yield arrow_batch(rows, self.columns, self.flags, self.stream)

    def dataframe(self, spark: SparkSession) -> DataFrame:
        session = self.session
        options = {
            **session.address.properties,
            "url": session.address.url,
            "driver": session.driver,
            "query": under_way(session.address.kind.dialect, self.sql, self.columns),
            "customSchema": wire_schema(self.columns, 0),
            "fetchsize": str(session.settings.fetch_rows),
            # The database would compare by its own collation.
            "pushDownPredicate": "false",
        }
        if session.address.kind.session:
            options["sessionInitStatement"] = session.address.kind.session
        return spark.read.format("jdbc").options(**options).load().select(*spark_columns(self.columns, self.stream))


@dataclass(frozen=True)
class JdbcRows:
    """One stream's rows of one window."""

    relation: Relation
    splits_: tuple[Split, ...] = field(repr=False)

    @property
    def stream(self) -> str:
        return self.relation.stream

    @property
    def schema(self) -> pa.Schema:
        return self.relation.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self.relation.key

    @property
    def order(self) -> tuple[str, ...]:
        return (self.relation.subject.cursor,)

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """Lazily, one partition per part; the rows at the mark, which are few, are held by this process."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

        parts = [split for split in self.splits_ if isinstance(split, JdbcSplit)]
        for split in parts[:1]:
            split.session.use_driver(spark)
        frames = [split.dataframe(spark) for split in parts]
        held = self._held
        if held.num_rows or not frames:
            exact = from_arrow_schema(held.schema, prefer_timestamp_ntz=True)
            frames.append(spark.createDataFrame(held if held.num_rows else [], schema=exact))
        return functools.reduce(lambda all_, next_: all_.union(next_), frames)

    @functools.cached_property
    def _held(self) -> pa.Table:
        """Read once: a second sink gets the very same rows."""
        import pyarrow as pa  # noqa: PLC0415

        compared = [split for split in self.splits_ if not isinstance(split, JdbcSplit)]
        return pa.Table.from_batches([batch for split in compared for batch in split.read()], schema=self.schema)


def under_way(dialect: str, sql: str, columns: tuple[Column, ...]) -> str:
    """The statement with its columns under names that any quoting keeps."""
    shown = [
        exp.alias_(exp.column(identifier(column.name)), wire_name(position), quoted=True)
        for position, column in enumerate(columns)
    ]
    inner = exp.Subquery(this=exp.var(sql), alias=exp.TableAlias(this=identifier("headwater_part")))
    return exp.select(*shown).from_(inner).sql(dialect=dialect, comments=False)
