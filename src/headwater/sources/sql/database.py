"""The promises between the `sql` source and a database: relations, consistent views, and what strategies exchange about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from headwater.config.sources.sql import SqlSourceSettings
from headwater.model.marks import ColumnMark
from headwater.model.rows import RowIdentity, Rows, Split
from headwater.model.types import Column, CursorType, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.sources.sql.dialects import Condition


@dataclass(frozen=True)
class Tuning:
    """How much a mark may hold, and how far a poll may look."""

    max_digests: int = 100_000  # of rows in one mark
    max_pending_transactions: int = 10_000  # in one mark: more unfinished ones delay the newest rows
    max_transactions_per_poll: int = 5_000_000  # whose status one poll asks for
    renew_after_transactions: int = 1 << 29  # a mark without news is renewed after so many
    oldest_transactions: int = 1 << 31  # ages are counted in 31 bits: a mark must not grow older than that
    first_poll_wait_seconds: float = 1.0  # for transactions that are just ending


DEFAULT_TUNING = Tuning()


# How rows that commit late are found (G6).
#   xid     by transaction id: above a low watermark where a ticker numbers the cursor, else over the whole table
#   digest  by digests of the rows at (and shortly below) the mark
#   value   not at all: only the cursor's value counts
LateStrategy = Literal["xid", "digest", "value"]


@dataclass(frozen=True)
class Subject:
    """What is read, as SQL needs it."""

    dialect: str  # sqlglot's name
    cursor: str
    cursor_type: CursorType
    name: tuple[str, ...] = ()  # schema and table
    query: str = ""  # instead of a table
    where: str = ""
    padded: bool = False  # char(n): compared as text, without the padding
    declared: str = ""  # the database's name of the cursor's type, where literals depend on it (JDBC)


@dataclass(frozen=True)
class Ticker:
    """What assigns a cursor's values: a sequence or the clock of the server."""

    kind: Literal["sequence", "instant", "wall clock", "any wall clock", "date"]
    sequence: int = 0  # its oid


@dataclass(frozen=True)
class Relation:
    """One stream's subject, with what the catalog knows about it."""

    stream: str
    subject: Subject
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    nullable_cursor: bool
    late: LateStrategy
    why: str  # this strategy, for `headwater plan`
    ticker: Ticker | None = None
    rows: int | None = None  # the database's own estimate
    pages: int | None = None  # None: cannot be split by pages
    cursor_is_rowid: bool = False  # SQLite
    storage: str = ""  # of the sequence; changes when it was restarted or altered
    warnings: tuple[str, ...] = field(default=())

    @property
    def cursor_declared(self) -> str:
        return next(column.declared for column in self.columns if column.name == self.subject.cursor)

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.columns)

    @property
    def row_identity(self) -> RowIdentity:
        """How rejects identify its rows: by the primary key where all of it is read, else by the cursor."""
        read = {column.name for column in self.columns}
        key = self.key if read.issuperset(self.key) else ()
        return RowIdentity(self.stream, self.columns, key, self.subject.cursor)


@dataclass(frozen=True)
class Limits:
    """How many rows a window takes, and in how many splits it is read."""

    max_rows: int | None
    splits: int | None
    cores: int


@dataclass(frozen=True)
class Stream:
    """One stream at work: what it reads, from which mark on, and within which limits."""

    relation: Relation
    settings: SqlSourceSettings
    start: ColumnMark | None
    limits: Limits
    tuning: Tuning = DEFAULT_TUNING


@dataclass(frozen=True)
class Outcome:
    """What lies after a stream's mark. `end` is None when nothing is new."""

    end: ColumnMark | None
    rows: int | None = None
    more: bool = False
    why: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Division:
    """The rows that are done at a mark, and the rest: sets of conditions, of which no row meets two.

    Digests divide the rows under `compared`.
    """

    done: Sequence[Sequence[Condition]]
    rest: Sequence[Sequence[Condition]]  # rows from before `start:` are on neither side
    compared: Sequence[Condition] = ()
    digests: frozenset[str] = field(default=frozenset(), repr=False)  # of the rows that are done


class View(Protocol):
    """A consistent view of a database: all its answers agree."""

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a small result."""

    def split(self, sql: str, relation: Relation, rows: int | None, flags: int = 0) -> Split:
        """A split that an executor reads in the same view; its rows have
        the columns' exact types, followed by that many flags as int64.
        """

    def rows_of(self, relation: Relation, splits: tuple[Split, ...]) -> Rows:
        """The rows of a window that was cut into these splits."""

    def ranges(
        self, relation: Relation, conditions: Sequence[Condition], rows: int | None, limits: Limits
    ) -> list[tuple[list[Condition], int | None]]:
        """Further conditions that cut the rows under `conditions` into ranges of similar size, with their rows."""


def rows_of(relation: Relation, splits: tuple[Split, ...]) -> Rows:
    """The rows of a window that was cut into these splits, which Arrow reads."""
    return Rows(relation.stream, relation.schema, relation.key, (relation.subject.cursor,), splits)


class Database(Protocol):
    """A kind of database that the `sql` source reads."""

    @property
    def address(self) -> str:
        """Without secrets (G11)."""

    @property
    def shares_views(self) -> bool:
        """Whether executors read in the view of their split, and not each in a view of its own."""

    def unchanged(self, marks: Mapping[str, ColumnMark]) -> bool:
        """Whether nothing at all can be new since these marks. Cheap; False when that is not known."""

    def remember_no_news(self, marks: Mapping[str, ColumnMark]) -> None:
        """Called when the last view had nothing new after these marks."""

    def relations(self) -> list[Relation]:
        """The streams, as the catalog has them now."""

    def view(self, relations: Sequence[Relation], marks: Mapping[str, ColumnMark]) -> View:
        """A new view for planning; it ends the one before."""

    def view_again(self, ends: Mapping[str, ColumnMark]) -> View:
        """A new view for reading windows with these ends that were planned earlier, perhaps by another process.

        Raises SourceChanged when this is not the database that they were planned on (G9).
        """

    def plan_done(self) -> None:
        """Called when a plan is complete: release what blocks writers. The view may still be asked for splits."""

    def end_view(self) -> None:
        """End the current view, if there is one."""

    def close(self) -> None:
        """Close connections; the next use connects again."""


@runtime_checkable
class AssignsTransactionIds(Protocol):
    """A database whose marks hold transaction ids."""

    def has_valid_ids(self, mark: ColumnMark) -> bool:
        """Whether the ids in this mark are of this server and not older than a restore."""


def split_count(rows: int | None, limits: Limits, *, rows_per_split: int = 200_000) -> int:
    """How many splits read a window: enough for the cores, no tiny and no endless ones."""
    if limits.splits is not None:
        return limits.splits
    if rows is None or rows < rows_per_split:
        return 1
    return max(2, min(rows // rows_per_split, limits.cores), rows // 5_000_000)
