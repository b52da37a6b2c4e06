"""What a cycle hands to a sink: the rows of one stream's window, not yet read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headwater.model.rejects import SetAside

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class Split(Protocol):
    """A small picklable part of a window; the splits of a stream together are exactly its window.

    `repr` never shows a secret (G11).
    """

    @property
    def rows(self) -> int | None:
        """About how many rows it holds, if known."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow, every batch in the stream's schema. Runs on an executor, without Spark.

        May be called again: a task can be retried, and a second sink reads again.
        """


@runtime_checkable
class RejectingSplit(Split, Protocol):
    """A split that can go on where a row has no place in the schema."""

    def read_setting_aside(self, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        """As `read`, which raises at such a row; this one hands it to `set_aside` and goes on with the next."""


class Rows(Protocol):
    """The rows of one stream in one window."""

    @property
    def stream(self) -> str: ...

    @property
    def schema(self) -> pa.Schema:
        """The exact types; a field's nullability is true to the source."""

    @property
    def key(self) -> tuple[str, ...]:
        """The source's primary key, if it has one: no two rows share it."""

    @property
    def order(self) -> tuple[str, ...]:
        """Columns by which the later of two rows with one key can be told (the cursor)."""

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """The rows as a DataFrame, lazily."""


@runtime_checkable
class SplitRows(Rows, Protocol):
    """Rows that Arrow can read in splits: a sink may land them without Spark's row machinery."""

    @property
    def splits(self) -> tuple[Split, ...]: ...


@runtime_checkable
class ReplacingRows(Rows, Protocol):
    """Rows that come in parts, objects, of which a newer version stands for all rows of the older one."""

    @property
    def part_column(self) -> str:
        """The column that names the part a row came from; empty: the rows have none."""

    @property
    def earlier(self) -> tuple[str, ...]:
        """Values of that column whose earlier rows, if the sink has any, these rows replace.

        A part that is gone, or has no rows any more, is among them and brings none.
        """

    @property
    def part_prefix(self) -> str:
        """What stands before a part's name (`Reject.part`) in that column: a bucket's url before an object's key."""
