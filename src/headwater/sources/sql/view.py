"""The promises between the `sql` source and a database: a consistent look, and how windows are worked out on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from headwater.config.sql_source import SqlSource
from headwater.model.marks import ColumnMark
from headwater.model.rows import Rows, Split
from headwater.sources.sql.relation import Relation

if TYPE_CHECKING:
    from headwater.sources.sql.cursor_sql import Condition


@dataclass(frozen=True)
class Limits:
    """How much a window takes, and in how many parts it is read."""

    max_rows: int | None
    splits: int | None
    cores: int


@dataclass(frozen=True)
class Stream:
    """One stream at work: what it reads, from which mark on, and within which limits."""

    relation: Relation
    settings: SqlSource
    start: ColumnMark | None
    limits: Limits


@dataclass(frozen=True)
class Outcome:
    """What lies after a stream's mark. `end` is None when nothing is new."""

    end: ColumnMark | None
    rows: int | None = None
    more: bool = False
    why: str = ""
    warnings: tuple[str, ...] = ()


class View(Protocol):
    """A consistent look at a database: everything asked of one view agrees."""

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a small result."""

    def split(self, sql: str, relation: Relation, rows: int | None, flags: int = 0) -> Split:
        """A part of a window that an executor reads in the same view; its rows have
        the columns' exact types, followed by that many flags as int64.
        """

    def parts(
        self, relation: Relation, conditions: Sequence[Condition], rows: int | None, limits: Limits
    ) -> list[tuple[list[Condition], int | None]]:
        """Further conditions that cut the rows under `conditions` into parts of similar size, with their rows."""


@runtime_checkable
class ReadBySpark(Protocol):
    """A view whose splits only Spark can read, on a driver of its own."""

    def rows_of(self, relation: Relation, splits: tuple[Split, ...]) -> Rows:
        """The rows of a window that was cut into these splits."""


class Database(Protocol):
    """A kind of database that the `sql` source reads."""

    @property
    def address(self) -> str:
        """Without secrets (G11)."""

    @property
    def shares_views(self) -> bool:
        """Whether executors read in the view that they were given a split of, and not each in its own."""

    def unchanged(self, marks: Mapping[str, ColumnMark]) -> bool:
        """Whether nothing at all can be new since these marks. Cheap; False when that is not known."""

    def found_nothing(self, marks: Mapping[str, ColumnMark]) -> None:
        """Told when the last look brought nothing new after these marks."""

    def relations(self) -> list[Relation]:
        """The streams, as the catalog has them now."""

    def look(self, relations: Sequence[Relation], marks: Mapping[str, ColumnMark]) -> View:
        """A new view for planning; it ends the one before."""

    def look_again(self, ends: Mapping[str, ColumnMark]) -> View:
        """A new view for reading windows with these ends that were planned earlier, perhaps by another process.

        Raises SourceChanged when this is not the database that they were planned on (G9).
        """

    def planned(self) -> None:
        """Told when a plan is done: let go of what would hinder writers. The view may still be asked for splits."""

    def end_view(self) -> None:
        """End the current view, if there is one."""

    def close(self) -> None:
        """Give back connections; the next use connects again."""


@runtime_checkable
class NumbersTransactions(Protocol):
    """A database whose marks hold numbers of transactions."""

    def knows(self, mark: ColumnMark) -> bool:
        """Whether the numbers in this mark mean something here: not on another server, nor after a restore."""


def part_count(rows: int | None, limits: Limits, *, rows_each: int = 200_000) -> int:
    """How many parts a window is read in: enough for the cores, none of them tiny, none of them endless."""
    if limits.splits is not None:
        return limits.splits
    if rows is None or rows < rows_each:
        return 1
    return max(2, min(rows // rows_each, limits.cores), rows // 5_000_000)
