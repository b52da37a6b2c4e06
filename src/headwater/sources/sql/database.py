"""The protocols between the `sql` source and a database: relations, consistent views, and the values that strategies exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from headwater.config.sources.sql import SqlSourceSettings
from headwater.model.position.marks import ColumnMark
from headwater.model.rows import RowIdentity, Rows, Split
from headwater.model.types import Column, CursorType, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.sources.sql.dialects import Condition


@dataclass(frozen=True)
class Tuning:
    """Limits of a mark and of a poll."""

    max_digests: int = 100_000  # of rows in one mark
    max_pending_transactions: int = 10_000  # in one mark; more of them delay the newest rows
    max_transactions_per_poll: int = 5_000_000  # whose status one poll reads
    renew_after_transactions: int = 1 << 29  # a mark without new rows is renewed after so many
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
    """The table or query of a stream, as SQL needs it."""

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
    """One stream's subject with its facts of the catalog."""

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
    """The most rows of a window, and the number of its splits."""

    max_rows: int | None
    splits: int | None
    cores: int


@dataclass(frozen=True)
class Stream:
    """One stream in one plan: its relation, its start and its limits."""

    relation: Relation
    settings: SqlSourceSettings
    start: ColumnMark | None
    limits: Limits
    tuning: Tuning = DEFAULT_TUNING


@dataclass(frozen=True)
class Outcome:
    """The plan of one stream. `end` is None when nothing is new."""

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
        """A split that an executor reads in the same view: columns in their exact types, then so many int64 flags."""

    def rows_of(self, relation: Relation, splits: tuple[Split, ...]) -> Rows:
        """The rows of a window with these splits."""

    def ranges(
        self, relation: Relation, conditions: Sequence[Condition], rows: int | None, limits: Limits
    ) -> list[tuple[list[Condition], int | None]]:
        """Conditions that cut the rows under `conditions` into ranges of similar size, with their row counts."""


def rows_of(relation: Relation, splits: tuple[Split, ...]) -> Rows:
    """The rows of a window with these splits, which Arrow reads."""
    return Rows(relation.stream, relation.schema, relation.key, (relation.subject.cursor,), splits)


class Database(Protocol):
    """A kind of database that the `sql` source reads."""

    @property
    def address(self) -> str:
        """Without secrets (G11)."""

    @property
    def shares_views(self) -> bool:
        """True if executors read in the view of the plan, not each in a view of its own."""

    def is_unchanged(self, marks: Mapping[str, ColumnMark]) -> bool:
        """True if nothing can be new since these marks; False if unknown. Cheap."""

    def remember_unchanged(self, marks: Mapping[str, ColumnMark]) -> None:
        """The source calls it when the last view had nothing new after these marks."""

    def relations(self) -> list[Relation]:
        """The streams, as the catalog has them now."""

    def view(self, relations: Sequence[Relation], marks: Mapping[str, ColumnMark]) -> View:
        """A new view for planning; ends the previous one."""

    def reopen_view(self, ends: Mapping[str, ColumnMark]) -> View:
        """A new view for reading windows of an earlier plan, perhaps of another process, with these ends.

        Raises SourceChanged if this is not the database of that plan (G9).
        """

    def finish_plan(self) -> None:
        """The source calls it after a plan: release what blocks writers. The view still makes splits."""

    def end_view(self) -> None:
        """End the current view, if there is one."""

    def close(self) -> None:
        """Close connections; the next use connects again."""


@runtime_checkable
class AssignsTransactionIds(Protocol):
    """A database whose marks hold transaction ids."""

    def has_valid_ids(self, mark: ColumnMark) -> bool:
        """True if the ids in this mark are of this server and not older than a restore."""


_MIN_SPLIT_ROWS, _MAX_SPLIT_ROWS = 200_000, 5_000_000


def split_count(rows: int | None, limits: Limits) -> int:
    """The number of splits of a window: enough for the cores, neither tiny nor huge."""
    if limits.splits is not None:
        return limits.splits
    if rows is None or rows < _MIN_SPLIT_ROWS:
        return 1
    return max(2, min(rows // _MIN_SPLIT_ROWS, limits.cores), rows // _MAX_SPLIT_ROWS)
