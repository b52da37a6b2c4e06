"""What a store keeps of a pipeline, and every decision about it as a pure function.

A store reads a record, asks it for the next one, and writes that, in one transaction. Nothing else decides
who may write, so all stores behave alike.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace

from headwater.model.errors import InputError, LeaseHeld, LeaseLost, ProgressConflict
from headwater.model.progress import HistoryEntry, Lease, Progress, check_move

LONGEST_NAME = 500  # characters; four bytes each still fit a PostgreSQL index


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
                hint="let it finish; if that process is gone, its lease ends by itself at that time: run again then",
            )
        # The epoch is stored before anybody works under it, so a crash cannot give it out twice (G4).
        progress = replace(self.progress, epoch=self.progress.epoch + 1)
        return Record(progress, owner, now + dt.timedelta(seconds=ttl_seconds))

    def renewed(self, lease: Lease, now: dt.datetime) -> Record:
        self.check_lease(lease, now)
        return replace(self, expires_at=now + dt.timedelta(seconds=lease.ttl_seconds))

    def released(self, lease: Lease) -> Record:
        """Without the lease; this very record when the lease is no longer the given one."""
        return replace(self, owner=None, expires_at=None) if self._is(lease) else self

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

    def remembering(self, progress: Progress) -> Record:
        """As a level in front of the deciding one: keep the newer of two versions."""
        stale = progress.version < self.progress.version or progress == self.progress
        return self if stale else replace(self, progress=progress)

    def check_lease(self, lease: Lease, now: dt.datetime) -> None:
        """Raises LeaseLost unless this very lease is alive (G4)."""
        if self._is(lease) and _alive(self.expires_at, now):
            return
        if self.progress.epoch > lease.epoch:
            what = (
                f"was taken over: {self.owner or 'a process that has finished since'} has epoch {self.progress.epoch}"
            )
        elif self._is(lease):
            what = f"expired at {self.expires_at}, it is {now}"
        else:
            what = "was given back"
        raise LeaseLost(
            f"{lease.pipeline}: the lease of {lease.owner} with epoch {lease.epoch} {what}. Nothing was written",
            hint="the next cycle takes the lease again; if this repeats, give the pipeline a longer `lease:`",
        )

    def _is(self, lease: Lease) -> bool:
        return self.owner == lease.owner and self.progress.epoch == lease.epoch


def _alive(expires_at: dt.datetime | None, now: dt.datetime) -> bool:
    return expires_at is not None and now < expires_at


def checked_name(pipeline: str) -> str:
    """Any text that every store can keep; the rest is refused alike by all of them (G12)."""
    problem = ""
    if not pipeline:
        problem = "is empty"
    elif len(pipeline) > LONGEST_NAME:
        problem = f"has {len(pipeline)} characters, at most {LONGEST_NAME} can be kept"
    elif "\x00" in pipeline or any("\ud800" <= character <= "\udfff" for character in pipeline):
        problem = "holds a NUL or half of a surrogate pair"
    if problem:
        raise InputError(f"the pipeline name {pipeline[:40]!r} {problem}", hint="give the pipeline another name")
    return pipeline
