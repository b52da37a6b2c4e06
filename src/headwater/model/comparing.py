"""The promise of a source that tables can be compared with, row for row, while both are live.

`headwater verify` asks for it. A comparison has one position: a mark of the pipeline, at which the source says what a
table holds that follows it. A polled table can say that of any mark, by the rows that the mark has done. A log cannot:
a snapshot of the database stands at a place of its own, and the pipeline's mark has to come there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from headwater.model.marks import Mark
from headwater.model.rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa

Standing = Literal["before", "here", "past"]


@dataclass(frozen=True)
class Spans:
    """Ranges of a key of one column, each from its first value to its last, both included; None: open."""

    column: str
    bounds: tuple[tuple[object, object], ...]


@dataclass(frozen=True)
class Comparison:
    """One stream: what a table that follows it holds at the mark. Good until the meeting ends; may be read often."""

    # Rows as a first window would bring them: of change capture, the reads of a copy, with the change columns. Their
    # pipeline's transform is applied to them, and only `table_columns` of changes are compared.
    rows: Rows
    # Rows that the source has, but not (or not yet) for the table: read later, or never. A table may hold any version of
    # their keys, or none, and is not judged by it. None: there are none.
    others: Rows | None = None
    # Whether the table forgets what the source deletes. If not, rows that only the table has are no fault of anybody.
    follows_deletes: bool = False
    # Whether all of it is read in one view. If not, what differs is looked at again before it counts.
    one_view: bool = True
    # The same, cheaper, where only some rows are asked for: ranges of the key, or keys (their columns by name). May bring
    # more than was asked for, never less. None: to read everything is as good.
    narrowed: Callable[[Spans | pa.Table], Comparison] | None = None


@dataclass(frozen=True)
class NotCompared:
    """A stream that cannot be compared at the mark, and why: it is just being copied."""

    stream: str
    why: str


class Meeting(Protocol):
    """A place where source and tables are compared."""

    def standing(self, mark: Mark | None) -> Standing:
        """Where a mark of the pipeline stands. `before`: cycles have to bring it on, ours or another process's."""

    def streams(self, mark: Mark) -> Sequence[str]:
        """The streams that have landed up to a mark; their tables are looked at before `compared` is asked. Cheap."""

    def beyond(self, end: str) -> bool:
        """Whether a landing is behind the meeting, by the end of its window as its snapshot says it.

        That is the mark's JSON, or, where that is too long, its text. Only asked when the mark has gone past.
        """

    def compared(self, mark: Mark) -> Sequence[Comparison | NotCompared]:
        """Every stream. Called once, when the mark stands here, or has gone past; `mark` is the one that it found."""


@dataclass(frozen=True)
class Again:
    """What the source has now of some keys of a stream."""

    # Rows to be landed as those of a window are: they make a table right for their keys, and later windows go on from
    # there. Of change capture: a read for every key that is there, and a delete for every one that is not.
    rows: Rows
    absent: pa.Table | None = None  # keys that are not there; None: `rows` say so themselves


@runtime_checkable
class Compares(Protocol):
    """A source that can be compared with what landed of it."""

    def meet(self) -> AbstractContextManager[Meeting]:
        """Choose the place. Whatever views it needs stay open until the block ends. Takes no lease, changes no mark.

        The instance is not used for anything else meanwhile; cycles of the pipeline run on another one.
        """

    def again(self, mark: Mark, keys: Mapping[str, pa.Table]) -> AbstractContextManager[Sequence[Again]]:
        """Rows of these keys, by stream, as the source has them now; readable until the block ends.

        Called by who holds the lease, with the pipeline's mark and no window unfinished. The keys are in the table's
        types, under the table's names of their columns. A row that a coming window brings by itself may be left out. A row
        that cannot be kept is set aside, as in `read`, and its key is not among the absent.
        """
