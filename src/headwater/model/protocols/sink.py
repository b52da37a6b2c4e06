"""The protocol of a sink, and the optional powers that a sink may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headwater.model.faults import Faults
from headwater.model.landing import Landing
from headwater.model.position.window import Window
from headwater.model.rows import CollectsRejects, Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LandsRejects(CollectsRejects, Protocol):
    """The rejects of one attempt: of the source, and of rows that a sink cannot store exactly (G8)."""

    def land(self, stream: str | None) -> None:
        """Land the rejects so far, of one stream or of all; those that have landed stay."""

    def unread_parts(self) -> frozenset[str]:
        """Parts of the window (`Reject.part`) that brought no row, as far as it has been read."""


@dataclass(frozen=True)
class Attempt:
    """One try at landing one window, and the rights it comes with."""

    pipeline: str
    run: str
    window: Window
    epoch: int
    faults: Faults
    ensure_lease: Callable[[], None]  # raises LeaseLost (G4)
    spark: Callable[[], SparkSession]  # the session starts when a sink first needs it
    progress: Callable[[int], None]  # receives how many more rows are written, for display; from any thread
    rejects: LandsRejects | None = None  # None: a row that cannot be stored exactly stops the landing (G8)
    stream: str | None = None  # the one that lands, behind its own rejects only; None: all of the window

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """The block in which a sink makes the rows visible, when all of them are durable.

        Raises before the block if this process may no longer publish. It may raise behind the block, too: the rows are
        visible then, and the sink must not remove them.
        """
        self.faults.reach("land.written")
        self.clear_to_publish()
        yield
        self.faults.reach("land.published")

    def clear_to_publish(self) -> None:
        """Part of `publishing`. A sink calls it only before it changes what readers see otherwise: columns, tags."""
        if self.rejects:
            self.rejects.land(self.stream)  # G8: before the rows they stood among, so that a crash cannot lose them
        self.ensure_lease()


class Sink(Protocol):
    """A target where rows land durably. One instance serves one pipeline, from one thread at a time."""

    @property
    def id(self) -> str:
        """Unique in its pipeline and stable over restarts: position and type, such as `2:iceberg`."""

    def landed(self, attempt: Attempt, stream: str) -> Landing | None:
        """The landing of this very window if the sink can prove that it holds it, else None (asked in recovery)."""

    def land(self, attempt: Attempt, rows: Rows) -> Landing:
        """Return only when the rows are durable and visible. May be called again with the same window:
        a sink that can tell leaves its content as it is, one that cannot says so in its documentation.

        Publishes inside `attempt.publishing()`, as late as possible.
        """

    def close(self) -> None:
        """Give back connections."""


@runtime_checkable
class LandsSideBySide(Protocol):
    """A sink that lands several streams at a time, each from a thread of its own."""

    @property
    def streams_at_once(self) -> int: ...


@runtime_checkable
class Tags(Protocol):
    """A sink that can keep what it holds now under a name, to be read again later."""

    def tag(self, attempt: Attempt, streams: Sequence[str], labels: Sequence[str]) -> None:
        """Name what each stream's table holds. Called when the window has landed everywhere, before the mark moves.

        May be called again with the same window: names that are there stay where they are. A table that is not there
        yet, or has never held anything, gets none.
        """

    def tagged(self, spark: SparkSession, streams: Sequence[str], label: str) -> Sequence[str]:
        """The tables of these streams where that name is taken."""
