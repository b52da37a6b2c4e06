"""Rows of some keys, read again for a repair: those that the mark has done, and which keys are not there at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.model.comparing import Again
from headwater.model.errors import UnknownName
from headwater.model.rejects import SetAside
from headwater.model.rows import RejectingSplit, Rows, Split
from headwater.sources.split_rows import ArrowRows
from headwater.sources.sql.comparing import PolledStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLACE = "headwater place"


def read_again(stream: PolledStream, keys: pa.Table) -> Again:
    """A row that a coming window brings is neither among the rows nor absent."""
    schema = stream.relation.schema
    missing = [name for name in keys.column_names if name not in schema.names]
    if missing:
        raise UnknownName(
            f"{stream.relation.stream}: rows cannot be read again by {', '.join(missing)}, which the source does not have",
            hint="rewind the pipeline to before them instead",
        )
    own = keys.cast(pa.schema([schema.field(name).with_nullable(nullable=True) for name in keys.column_names]))
    found = [pa.table(batch).select(own.column_names).cast(own.schema) for batch in stream.present(own)]
    there = pa.concat_tables([own.slice(0, 0), *found])
    absent = own.join(there, keys=own.column_names, join_type="left anti").cast(keys.schema)
    return Again(_keyed(stream.narrowed(own).rows, own), absent)


def _keyed(rows: Rows, keys: pa.Table) -> Rows:
    """Of rows that may be more than were asked for, those that were."""
    if isinstance(rows, ArrowRows):
        return replace(rows, splits=tuple(_split_of(split, keys) for split in rows.splits))
    return KeyedRows(rows, keys)


def _split_of(split: Split, keys: pa.Table) -> Split:
    return KeyedRejectingSplit(split, keys) if isinstance(split, RejectingSplit) else KeyedSplit(split, keys)


@dataclass(frozen=True)
class KeyedSplit:
    """The rows of a split that have one of the keys."""

    split: Split
    keys: pa.Table = field(repr=False)

    @property
    def rows(self) -> int | None:
        return self.split.rows

    def read(self) -> Iterator[pa.RecordBatch]:
        return self._kept(self.split.read())

    def _kept(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            places = _places(batch, self.keys)
            if len(places):
                yield batch.take(places)


@dataclass(frozen=True)
class KeyedRejectingSplit(KeyedSplit):
    """The same; what is set aside on the way is known already, or has one of the keys."""

    def read_setting_aside(self, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        assert isinstance(self.split, RejectingSplit)  # noqa: S101 - so it was made
        return self._kept(self.split.read_setting_aside(set_aside))


def _places(batch: pa.RecordBatch, keys: pa.Table) -> pa.Array:
    names = keys.column_names
    numbered = pa.table([*(batch.column(name) for name in names), pa.array(range(batch.num_rows))], [*names, _PLACE])
    found = numbered.join(keys, keys=names, join_type="left semi").column(_PLACE).combine_chunks()
    return found.take(pa.compute.sort_indices(found))


@dataclass(frozen=True)
class KeyedRows:
    """The same for rows that only Spark reads."""

    all_rows: Rows
    keys: pa.Table = field(repr=False)

    @property
    def stream(self) -> str:
        return self.all_rows.stream

    @property
    def schema(self) -> pa.Schema:
        return self.all_rows.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self.all_rows.key

    @property
    def order(self) -> tuple[str, ...]:
        return self.all_rows.order

    def dataframe(self, spark: SparkSession) -> DataFrame:
        names: Sequence[str] = self.keys.column_names
        return self.all_rows.dataframe(spark).join(spark.createDataFrame(self.keys), on=list(names), how="left_semi")
