"""What the engine needs of a lake: tables of a sink, their landings, their rows at a mark, a rebuild."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headwater.model.landing import Landing
from headwater.model.protocols.sink import Attempt, Sink
from headwater.model.rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Range = tuple[int, int]
"""Bounds of an integer, a decimal or a time in its smallest units, both inclusive."""


@dataclass(frozen=True)
class LakeTableInfo:
    """A table of a stream."""

    name: str
    quoted: str  # in Spark SQL
    columns: tuple[str, ...]
    key: tuple[str, ...]  # empty: the table has none


@dataclass(frozen=True)
class LandedWindow:
    """A landing in a table's history."""

    snapshot: int
    stream: str
    window: str  # its id
    end: str  # its mark, as JSON


@dataclass(frozen=True)
class FileStats:
    """A data file of a snapshot."""

    rows: int
    bounds: Range | None  # of the column that was asked for; None: unknown


class MergeChoice(Protocol):
    """How rows would be merged into a table."""

    @property
    def strategy(self) -> str: ...

    @property
    def why(self) -> str: ...


class LakeSnapshot(Protocol):
    """A table at one snapshot. Later landings do not change what it reads."""

    @property
    def name(self) -> str:
        """The table's name."""

    @property
    def snapshot(self) -> int | None:
        """None: before the first."""

    def files(self, column: str = "") -> Sequence[FileStats]:
        """The data files, with the bounds of a column."""

    def schema_for(self, source: Rows) -> pa.Schema:
        """The source's columns in the types that the table has, or will have after its next landing.

        Raises SchemaRefused if the table cannot take them.
        """

    def rows(self, source: Rows, schema: pa.Schema, within: Sequence[Range] | None = None, column: str = "") -> Rows:
        """The current rows of the table in these columns; or at least those with `column` within the ranges.

        Rows of a history that are no longer current, and rows marked as deleted, are left out where the source's rows
        are changes.
        """


class LakeHistory(Protocol):
    """A table at its head, as it was when the history was read, and the landings of one pipeline up to there."""

    def before(self, later: Callable[[LandedWindow], bool]) -> LakeSnapshot:
        """The table before the earliest landing that is `later`; its head if none is."""


class Rebuild(Protocol):
    """A table that is built again on an empty branch, beside what readers see."""

    @property
    def table(self) -> LakeTableInfo:
        """As readers see it."""

    @property
    def sink(self) -> Sink:
        """Lands on the branch."""

    def publish(self, attempt: Attempt) -> None:
        """Replace the table's content with the branch's, in one commit. Raises if another writer published meanwhile."""


class Lake(Protocol):
    """The tables of one sink in one session. Called by the engine outside of landings."""

    def table(self, stream: str) -> LakeTableInfo | None:
        """The stream's table; None: it does not exist yet."""

    def history(self, pipeline: str, stream: str) -> LakeHistory | None:
        """The history of the stream's table up to now; None: it does not exist yet."""

    def remove_keys(self, attempt: Attempt, stream: str, keys: pa.Table) -> Landing:
        """Publish the table without these keys: recognised, fenced and one snapshot, like any landing."""

    def rebuild(self, stream: str, branch: str) -> AbstractContextManager[Rebuild]:
        """A rebuild; the branch is removed at the end, published or not.

        Raises InputError if the table does not exist or was never filled.
        """

    def tables_of(self, pipeline: str) -> Sequence[LakeTableInfo]:
        """All tables that this sink created for the pipeline, of any stream."""


@runtime_checkable
class LakeSink(Sink, Protocol):
    """A sink whose tables can be read again."""

    @property
    def mode(self) -> str: ...

    def table_name(self, stream: str) -> str:
        """Known before the table exists."""

    def key_of(self, rows: Rows) -> tuple[str, ...]:
        """The columns that identify a row in the table; empty where rows are appended and lack one of them.

        Raises as a landing does if the mode needs a key and these columns cannot be it.
        """

    def for_repair(self) -> Sink:
        """The same sink, for rows whose keys the table may have, whatever the settings promise of a window's."""

    def explain_merge(self, spark: SparkSession, stream: str, rows: int | None) -> MergeChoice | None:
        """How so many rows would be merged; None: the mode has no choice."""

    def lake(self, spark: SparkSession) -> Lake: ...
