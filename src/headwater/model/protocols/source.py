"""The protocol of a source, and its optional powers: isolation, lag, replay, labels, verification."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from headwater.model.errors import HeadwaterError, InputError
from headwater.model.position.marks import Mark
from headwater.model.position.window import Window
from headwater.model.progress import Lease
from headwater.model.rows import Reject, Rows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class StreamPlan:
    """What one stream brings to a window."""

    stream: str
    window: Window
    rows: int | None = None  # exact or estimated; None: unknown
    why: str = ""  # how late rows are looked for, how the read is split: shown by `headwater plan`


@dataclass(frozen=True)
class Plan:
    """The next window, or nothing new (`window` is None)."""

    window: Window | None
    streams: tuple[StreamPlan, ...] = ()
    more: bool = False  # the window was cut by a limit: the next cycle need not wait
    warnings: tuple[str, ...] = ()  # what an operator should know: NULL cursors, a scan chosen, a long transaction
    refused: Mapping[str, HeadwaterError] = field(default_factory=dict)  # streams that the window leaves out, and why


@dataclass(frozen=True)
class Claim:
    """The right of one run to stage what a plan discovers (G4)."""

    lease: Lease
    run: str


class Source(Protocol):
    """A system that is read in windows. One instance serves one pipeline, from one thread at a time."""

    @property
    def address(self) -> str:
        """Where it is, for logs and messages, without secrets (G11)."""

    def plan(self, mark: Mark | None, *, claim: Claim | None = None, skip: frozenset[str] = frozenset()) -> Plan:
        """What lies after `mark`. Cheap, starts no Spark job; raises SourceUnreachable, SourceChanged.

        Without a `claim` it only looks; with one, a source that keeps a ledger stages there what it discovered.
        `skip`: paused streams, planned as if they had nothing new; only for a source that IsolatesStreams.
        """

    def read(self, window: Window) -> AbstractContextManager[Sequence[Rows]]:
        """The rows of a window, one Rows per stream that has any, readable until the block ends.

        Called for a window that `plan` just gave, or for one that an earlier process planned and did not
        finish: both give exactly the same window (G5).
        """

    def position(self, text: str, mark: Mark | None) -> Mark | None:
        """The mark that an operator's text names, in a rewind: a value, `start`, `latest`. Raises BadPosition."""

    def close(self) -> None:
        """Give back connections."""


@dataclass(frozen=True)
class Lag:
    """How far the mark is behind the source, for one part of a stream."""

    stream: str
    part: str  # in the source's words: a partition
    position: int  # what comes next
    end: int  # where the source ends now
    seconds: float | None  # how long the oldest that is unread has been there; None: nothing is unread, or unknown

    @property
    def behind(self) -> int:
        """What is unread, in the source's units."""
        return max(self.end - self.position, 0)


@runtime_checkable
class IsolatesStreams(Protocol):
    """A source of streams that move on their own: its pipeline continues without one that cannot be read or kept."""

    def apart(self, window: Window, streams: frozenset[str]) -> tuple[Window, Window] | None:
        """What these streams bring to the window, and the rest of it, in which they stay where it starts.

        Each, when it is read, yields exactly the rows that it has in the whole (G5), and the join of the two ends is the
        end of the whole. None: the pipeline has one stream only.
        """


@runtime_checkable
class MeasuresLag(Protocol):
    """A source that can say how much it holds beyond a mark without reading it."""

    def lag(self, mark: Mark | None) -> Sequence[Lag]:
        """Per part of each stream. Cheap and quick to give up: people wait for it. Raises SourceUnreachable."""


@runtime_checkable
class Acknowledges(Protocol):
    """A source that keeps data until it is acknowledged (a slot, a consumer group)."""

    def acknowledge(self, mark: Mark) -> None:
        """The mark is durable in every sink and in the progress store; called last (G10), may be repeated."""


@runtime_checkable
class Replays(Protocol):
    """A source that can make rows of its rejects."""

    def replay(self, rejects: Sequence[Reject], mark: Mark) -> AbstractContextManager[Sequence[Rows]]:
        """The rejects as rows, under the settings as they are now, one Rows per stream. The mark is the pipeline's.

        Those that still cannot be kept are rejected again, as in `read`. What the source no longer has is left out,
        and so is a row whose cursor moved: a window brings it, or has brought it, by itself.
        """


@runtime_checkable
class Abandons(Protocol):
    """A source whose unfinished windows can lose what they were to be read from: a snapshot that ended with its process."""

    def abandoned(self, window: Window) -> str:
        """Why this window cannot be read any more, and is left as it is; empty: it can.

        Only for windows that the next plan brings whole again, in place of whatever of them has landed (G2).
        """


@runtime_checkable
class Labels(Protocol):
    """A source whose log takes names for moments (`model/protocols/source.py`); a window ends where it finds one."""

    def label(self, text: str) -> str:
        """Write the name into the log and return its position there. Durable when it returns. Needs no lease."""


@runtime_checkable
class DefersParts(Protocol):
    """A source that defers parts of a window (unreadable objects) to a later one."""

    def postpone(self, window: Window, parts: Sequence[Reject], lease: Lease) -> None:
        """These parts bring no row to this window, in no sink and no later try at it.

        Called before anything of the window is published, so that a crash cannot make them pass for landed.
        """

    def bring_again(self, parts: Sequence[Reject], lease: Lease) -> int:
        """Let the next window bring parts that were given up; return how many. One that changed since comes anyway."""


# `headwater verify` asks for it. A comparison has one position: a mark of the pipeline, at which the source says what a
# table holds that follows it. A polled table can say that of any mark, by the rows that the mark has done. A log cannot:
# a snapshot of the database has an LSN of its own, which the pipeline's mark has to reach.

Standing = Literal["before", "here", "past"]


@dataclass(frozen=True)
class KeyRanges:
    """Ranges of a key of one column, each from its first value to its last, both included; None: open."""

    column: str
    bounds: tuple[tuple[object, object], ...]


@dataclass(frozen=True)
class Comparison:
    """One stream: what a table that follows it holds at the mark. Valid until `comparison_point` ends; may be read often."""

    # Rows as a first window would bring them: of change capture, the reads of a copy, with the change columns. Their
    # pipeline's transform is applied to them, and only `table_columns` of changes are compared.
    rows: Rows
    # Rows that the source has, but not (or not yet) for the table: read later, or never. A table may hold any version of
    # their keys, or none, and is not judged by it. None: there are none.
    others: Rows | None = None
    # Whether the table forgets what the source deletes. If not, rows that only the table has are no difference.
    follows_deletes: bool = False
    # Whether all of it is read in one view. If not, what differs is looked at again before it counts.
    one_view: bool = True
    # The same, cheaper, where only some rows are asked for: ranges of the key, or keys (their columns by name). May bring
    # more than was asked for, never less. None: to read everything is as good.
    narrowed: Callable[[KeyRanges | pa.Table], Comparison] | None = None


@dataclass(frozen=True)
class NotCompared:
    """A stream that cannot be compared at the mark, and why: it is just being copied."""

    stream: str
    why: str


class ComparisonPoint(Protocol):
    """The position at which source and tables are compared."""

    def standing(self, mark: Mark | None) -> Standing:
        """Where a mark of the pipeline stands. `before`: cycles have to bring it on, ours or another process's."""

    def streams(self, mark: Mark) -> Sequence[str]:
        """The streams that have landed up to a mark; their tables are looked at before `compared` is asked. Cheap."""

    def beyond(self, end: str) -> bool:
        """Whether a landing is past this point, by the end of its window in the snapshot's summary.

        That is the mark's JSON, or, where that is too long, its text. Only asked when the mark has gone past.
        """

    def compared(self, mark: Mark) -> Sequence[Comparison | NotCompared]:
        """Every stream. Called once, when the mark stands here, or has gone past; `mark` is the one that it found."""


@dataclass(frozen=True)
class CurrentRows:
    """What the source has now of some keys of a stream."""

    # Rows to be landed as those of a window are: they make a table right for their keys, and later windows continue from
    # there. Of change capture: a read for every key that is there, and a delete for every one that is not.
    rows: Rows
    absent: pa.Table | None = None  # keys that are not there; None: `rows` say so themselves


@runtime_checkable
class Verifiable(Protocol):
    """A source that can be compared with what landed of it."""

    def comparison_point(self) -> AbstractContextManager[ComparisonPoint]:
        """Choose the position. Views that it needs stay open until the block ends. Takes no lease, changes no mark.

        The instance is not used for anything else meanwhile; cycles of the pipeline run on another one.
        """

    def current_rows(self, mark: Mark, keys: Mapping[str, pa.Table]) -> AbstractContextManager[Sequence[CurrentRows]]:
        """Rows of these keys, by stream, as the source has them now; readable until the block ends.

        Called under the lease, with the pipeline's mark and no window unfinished. The keys are in the table's
        types, under the table's names of their columns. A row that a coming window brings by itself may be left out. A row
        that cannot be kept is rejected, as in `read`, and its key is not among the absent.
        """


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_BRANCHES = ("main", "hw_")  # the tables' own, and those that a landing stands on for a moment


def check_label(text: str) -> None:
    """Raise InputError for a text that cannot be a tag's name, or would not be found by it."""
    problem = label_problem(text)
    if problem:
        raise InputError(f"{text!r} cannot be a label: {problem}", hint="write for example month-end-2026-03")


def label_problem(text: str) -> str:
    """What is wrong with it; empty: nothing."""
    if not _NAME.fullmatch(text):
        return "it has 1 to 128 letters (a-z), digits, '.', '_' or '-', and begins with a letter or a digit"
    if text.isdigit():
        return "engines take a number for the number of a snapshot"  # SELECT … VERSION AS OF '42'
    if text.lower() == _BRANCHES[0] or text.startswith(_BRANCHES[1]):
        return "branches of the tables have such names"
    return ""
