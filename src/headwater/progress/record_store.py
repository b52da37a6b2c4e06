"""The store protocol on top of two moves: read a record, and change a record under its lock."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from headwater.model.errors import StoreDamaged
from headwater.model.progress import HistoryEntry, Lease, Progress
from headwater.progress.record import Record, checked_name

Decision = Callable[[Record, dt.datetime], Record]

RESTORE = (
    "restore it from a backup; without one, remove what is damaged and rewind the pipeline to where it should go on"
)


class RecordStore(ABC):
    """All of `Store`, for stores that can change one record atomically; also fit to be a level in front."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Where it is, without secrets (G11)."""

    @abstractmethod
    def _read(self, pipeline: str) -> Record:
        """The stored record, or an empty one where it is proven that there is none."""

    @abstractmethod
    def _change(self, pipeline: str, decide: Decision, entry: HistoryEntry | None) -> Record:
        """Lock the record, `decide(record, now)`, write the result and the entry, all or nothing, durably.

        `now` is read from the store's clock after the lock is held. Writes nothing when `decide` gives back
        the same record or raises. May call `decide` again when nothing was written.
        """

    @abstractmethod
    def history(self, pipeline: str, limit: int) -> Sequence[HistoryEntry]:
        """The newest entries, newest first."""

    @abstractmethod
    def pipelines(self) -> Sequence[str]:
        """The names of all pipelines that have progress, sorted."""

    @abstractmethod
    def close(self) -> None:
        """Give back connections. The store may be used again afterwards."""

    def load(self, pipeline: str) -> Progress:
        return self._read(checked_name(pipeline)).progress

    def swap(self, lease: Lease, expected: Progress, updated: Progress, entry: HistoryEntry | None) -> Progress:
        def decide(record: Record, now: dt.datetime) -> Record:
            return record.swapped(lease, expected, updated, entry, now)

        return self._change(checked_name(lease.pipeline), decide, entry).progress

    def acquire(self, pipeline: str, owner: str, ttl_seconds: float) -> Lease:
        def decide(record: Record, now: dt.datetime) -> Record:
            return record.acquired(owner, ttl_seconds, now)

        return self._change(checked_name(pipeline), decide, None).lease(ttl_seconds)

    def renew(self, lease: Lease) -> Lease:
        def decide(record: Record, now: dt.datetime) -> Record:
            return record.renewed(lease, now)

        return self._change(checked_name(lease.pipeline), decide, None).lease(lease.ttl_seconds)

    def release(self, lease: Lease) -> None:
        self._change(checked_name(lease.pipeline), lambda record, _now: record.released(lease), None)

    def remember(self, progress: Progress) -> None:
        """Keep what the deciding level holds, unless something newer is kept here."""
        self._change(checked_name(progress.pipeline), lambda record, _now: record.remembering(progress), None)

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Around the parsing of stored data: whatever cannot be understood is damage, never absence (W3)."""
        try:
            yield
        except StoreDamaged as damage:
            raise StoreDamaged(f"{self.address}: {what}: {damage.message}", hint=damage.hint or RESTORE) from damage
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreDamaged(
                f"{self.address}: {what} cannot be read ({type(error).__name__}: {error})", hint=RESTORE
            ) from error
