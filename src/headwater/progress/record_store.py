"""The record of a pipeline, every decision about it as a pure function, and the store protocol on top of them.

A store reads a record, computes the next one, and writes it, in one transaction. Nothing else decides who may
write, so all stores behave alike.
"""

from __future__ import annotations

import datetime as dt
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from headwater.model.errors import InputError, LeaseHeld, LeaseLost, ProgressConflict, StoreDamaged
from headwater.model.progress import HistoryEntry, Lease, Progress, check_move

Clock = Callable[[], dt.datetime]


def wall_clock() -> dt.datetime:
    """The machine's time: what processes that share a file on one machine agree on."""
    return dt.datetime.now(dt.UTC)


def steady_clock() -> Clock:
    """A clock that never goes back while the process lives."""
    start, origin = dt.datetime.now(dt.UTC), time.monotonic()
    return lambda: start + dt.timedelta(seconds=time.monotonic() - origin)


MAX_NAME_LENGTH = 500  # characters; four bytes each still fit a PostgreSQL index


@dataclass(frozen=True)
class Record:
    """The progress of a pipeline and the lease on it; the epoch of the lease is the progress's."""

    progress: Progress
    owner: str | None = None
    expires_at: dt.datetime | None = None

    def lease(self, ttl_seconds: float) -> Lease:
        """The lease that `acquired` or `renewed` has just written."""
        assert self.owner is not None  # noqa: S101 - for the type checker; both set it
        assert self.expires_at is not None  # noqa: S101
        return Lease(self.progress.pipeline, self.owner, self.progress.epoch, self.expires_at, ttl_seconds)

    def acquired(self, owner: str, ttl_seconds: float, now: dt.datetime) -> Record:
        """Give the lease to `owner`, unless one is alive: an owner's own too, another thread may work under it."""
        if self.owner is not None and _alive(self.expires_at, now):
            raise LeaseHeld(
                f"{self.progress.pipeline}: {self.owner} holds the lease until {self.expires_at} "
                f"(epoch {self.progress.epoch})",
                hint="let it finish; if that process is dead, its lease expires at that time: run again then",
            )
        # The epoch is stored before any work under it, so a crash cannot hand it out twice (G4).
        progress = replace(self.progress, epoch=self.progress.epoch + 1)
        return Record(progress, owner, now + dt.timedelta(seconds=ttl_seconds))

    def renewed(self, lease: Lease, now: dt.datetime) -> Record:
        self.check_lease(lease, now)
        return replace(self, expires_at=now + dt.timedelta(seconds=lease.ttl_seconds))

    def released(self, lease: Lease) -> Record:
        """Without the lease; this very record when the lease is no longer the given one."""
        return replace(self, owner=None, expires_at=None) if self._has(lease) else self

    def swapped(
        self, lease: Lease, expected: Progress, updated: Progress, entry: HistoryEntry | None, now: dt.datetime
    ) -> Record:
        """The record after a compare-and-swap: lease first (G4), then version, then the move itself (G3)."""
        stored = self.progress
        self.check_lease(lease, now)
        if not stored.pipeline == expected.pipeline == updated.pipeline or stored.version != expected.version:
            raise ProgressConflict(
                f"{stored.pipeline}: the store holds version {stored.version} of {stored.pipeline}; version "
                f"{expected.version} of {expected.pipeline} was to be replaced. Nothing was written",
                hint="load the progress again; the next cycle does",
            )
        check_move(stored, updated, entry)
        return replace(self, progress=replace(updated, version=stored.version + 1, epoch=stored.epoch))

    def remember(self, progress: Progress) -> Record:
        """In a front level: the newer of two versions."""
        stale = progress.version < self.progress.version or progress == self.progress
        return self if stale else replace(self, progress=progress)

    def check_lease(self, lease: Lease, now: dt.datetime) -> None:
        """Raises LeaseLost unless this very lease is alive (G4)."""
        if self._has(lease) and _alive(self.expires_at, now):
            return
        if self.progress.epoch > lease.epoch:
            reason = (
                f"was taken over: {self.owner or 'a process that has finished since'} has epoch {self.progress.epoch}"
            )
        elif self._has(lease):
            reason = f"expired at {self.expires_at}, it is {now}"
        else:
            reason = "was released"
        raise LeaseLost(
            f"{lease.pipeline}: the lease of {lease.owner} with epoch {lease.epoch} {reason}. Nothing was written",
            hint="the next cycle takes the lease again; if this repeats, give the pipeline a longer `lease:`",
        )

    def _has(self, lease: Lease) -> bool:
        return self.owner == lease.owner and self.progress.epoch == lease.epoch


def _alive(expires_at: dt.datetime | None, now: dt.datetime) -> bool:
    return expires_at is not None and now < expires_at


def checked_name(pipeline: str) -> str:
    """Any text that every store can hold; all stores refuse the rest alike (G12)."""
    problem = ""
    if not pipeline:
        problem = "is empty"
    elif len(pipeline) > MAX_NAME_LENGTH:
        problem = f"has {len(pipeline)} characters, at most {MAX_NAME_LENGTH} are allowed"
    elif "\x00" in pipeline or any("\ud800" <= character <= "\udfff" for character in pipeline):
        problem = "holds a NUL or half of a surrogate pair"
    if problem:
        raise InputError(f"the pipeline name {pipeline[:40]!r} {problem}", hint="give the pipeline another name")
    return pipeline


Decision = Callable[[Record, dt.datetime], Record]

RESTORE = (
    "restore it from a backup; without one, remove the damaged data and rewind the pipeline to its last good position"
)


class RecordStore(ABC):
    """All of `Store`, for stores that can change one record atomically; also usable as a front level."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Where it is, without secrets (G11)."""

    @abstractmethod
    def _read(self, pipeline: str) -> Record:
        """The stored record, or an empty one if the record is proven absent."""

    @abstractmethod
    def _change(self, pipeline: str, decide: Decision, entry: HistoryEntry | None) -> Record:
        """Lock the record, `decide(record, now)`, write the result and the entry, all or nothing, durably.

        `now` is read from the store's clock after the lock is held. Writes nothing when `decide` returns
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
        """Close connections. The store may be used again afterwards."""

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
        """Store the deciding level's progress, unless this level has a newer one."""
        self._change(checked_name(progress.pipeline), lambda record, _now: record.remember(progress), None)

    @contextmanager
    def _reading(self, subject: str) -> Iterator[None]:
        """Around the parsing of stored data: unreadable data is damage, never absence (W3)."""
        try:
            yield
        except StoreDamaged as damage:
            raise StoreDamaged(f"{self.address}: {subject}: {damage.message}", hint=damage.hint or RESTORE) from damage
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreDamaged(
                f"{self.address}: {subject} cannot be read ({type(error).__name__}: {error})", hint=RESTORE
            ) from error
