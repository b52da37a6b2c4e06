"""The promise of a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from headwater.model.errors import HeadwaterError
from headwater.model.marks import Mark
from headwater.model.progress import Lease
from headwater.model.rejects import Reject
from headwater.model.rows import Rows
from headwater.model.window import Window


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
    refused: Mapping[str, HeadwaterError] = field(default_factory=dict)  # streams that the window goes without, and why


class Source(Protocol):
    """A system that is read in windows. One instance serves one pipeline, from one thread at a time."""

    @property
    def address(self) -> str:
        """Where it is, for logs and messages, without secrets (G11)."""

    def plan(self, mark: Mark | None) -> Plan:
        """What lies after `mark`. Cheap, starts no Spark job; raises SourceUnreachable, SourceChanged."""

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
    seconds: float | None  # how long the oldest that is unread has been there; None: nothing is, or nobody knows

    @property
    def behind(self) -> int:
        """What is unread, in the source's units."""
        return max(self.end - self.position, 0)


@runtime_checkable
class Separates(Protocol):
    """A source of streams that move on their own: its pipeline goes on without one that cannot be read or kept."""

    def plan_without(self, mark: Mark | None, streams: frozenset[str]) -> Plan:
        """As `plan`, as if these streams had nothing new."""

    def apart(self, window: Window, streams: frozenset[str]) -> tuple[Window, Window] | None:
        """What these streams bring to the window, and the rest of it, in which they stay where it starts.

        Each, when it is read, gives exactly the rows that it has in the whole (G5), and the join of the two ends is the
        end of the whole. None: the pipeline has one stream, and nothing to go on with.
        """


@runtime_checkable
class MeasuresLag(Protocol):
    """A source that can say how much it holds beyond a mark without reading it."""

    def lag(self, mark: Mark | None) -> Sequence[Lag]:
        """Per part of each stream. Cheap and quick to give up: people wait for it. Raises SourceUnreachable."""


@runtime_checkable
class Acknowledges(Protocol):
    """A source that keeps data until it is told (a slot, a consumer group)."""

    def acknowledge(self, mark: Mark) -> None:
        """The mark is durable in every sink and in the progress store; called last (G10), may be repeated."""


@runtime_checkable
class Replays(Protocol):
    """A source that can make rows of what it once set aside."""

    def replay(self, rejects: Sequence[Reject], mark: Mark) -> AbstractContextManager[Sequence[Rows]]:
        """The rejects as rows, under the settings as they are now, one Rows per stream. The mark is the pipeline's.

        Those that still cannot be kept are set aside again, as in `read`. What the source no longer has is left out,
        and so is a row whose cursor moved: a window brings it, or has brought it, by itself.
        """


@runtime_checkable
class Stages(Protocol):
    """A source whose windows are written down before they are read, in a ledger beside the mark."""

    def stage(self, mark: Mark | None, lease: Lease, run: str) -> Plan:
        """As `plan`, which only looks; this one writes what is new into the ledger, under the lease (G4)."""


@runtime_checkable
class Abandons(Protocol):
    """A source whose unfinished windows can lose what they were to be read from: a snapshot that ended with its process."""

    def abandoned(self, window: Window) -> str:
        """Why this window cannot be read any more, and is left as it is; empty: it can.

        Only for windows that the next plan brings whole again, in place of whatever of them has landed (G2).
        """


@runtime_checkable
class Labels(Protocol):
    """A source whose log takes names for moments (`model/label.py`); a window ends where it finds one."""

    def label(self, text: str) -> str:
        """Write the name into the log, as of now, and give its place there. Durable when it returns. Needs no lease."""


@runtime_checkable
class Postpones(Protocol):
    """A source that goes on without parts of a window, and brings them later."""

    def postpone(self, window: Window, parts: Sequence[Reject], lease: Lease) -> None:
        """These parts bring no row to this window, in no sink and no later try at it.

        Called before anything of the window is published, so that a crash cannot make them pass for landed.
        """

    def bring_again(self, parts: Sequence[Reject], lease: Lease) -> int:
        """Let a coming window bring parts that were given up; gives how many. One that changed since needs no help."""
