"""The progress of one pipeline while its lease is held (G4): the only writer of progress and history.

A cycle, a Python window, a replay, a repair and a rewind all write through it, so that none of them can forget a
step.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from headwater.engine.result import landing_totals
from headwater.model.errors import HeadwaterError, LeaseLost, RunError, StoreUnreachable
from headwater.model.faults import Faults, NoFaults
from headwater.model.landing import Landing
from headwater.model.position.marks import Mark
from headwater.model.position.window import Window
from headwater.model.progress import EntryKind, HistoryEntry, Intent, Lease, PausedStream, Progress
from headwater.model.protocols.source import Claim
from headwater.model.protocols.store import Leases, Store


class HeldLease:
    """A lease that a background thread keeps alive. `ensure` asks the store, so it cannot be fooled by a freeze."""

    def __init__(self, leases: Leases, lease: Lease) -> None:
        self._leases = leases
        self._lock = threading.Lock()
        self._released = threading.Event()
        self.lease = lease
        self._keeper = threading.Thread(target=self._keep, name=f"lease-{lease.pipeline}", daemon=True)
        self._keeper.start()

    def ensure(self) -> None:
        """Return only if the lease is ours right now, with its whole time to live ahead. Raises LeaseLost."""
        with self._lock:
            self.lease = self._leases.renew(self.lease)

    def release(self) -> None:
        self._released.set()
        with self._lock:
            self._leases.release(self.lease)

    def _keep(self) -> None:
        pause = self.lease.ttl_seconds / 3
        while not self._released.wait(pause):
            try:
                self.ensure()
            except LeaseLost:
                return  # the next `ensure` or `swap` of the cycle says so
            except StoreUnreachable:
                continue  # it may answer before the lease expires


@contextmanager
def held_lease(leases: Leases, pipeline: str, owner: str, ttl_seconds: float) -> Iterator[HeldLease]:
    """Take the lease, renew it during the block, release it."""
    lease = HeldLease(leases, leases.acquire(pipeline, owner, ttl_seconds))
    try:
        yield lease
    except BaseException:
        _release_after_failure(lease)
        raise
    lease.release()


def _release_after_failure(lease: HeldLease) -> None:
    # The failure on its way to the user must not be replaced by that of a store which does not answer;
    # the lease then expires by itself.
    try:
        lease.release()
    except HeadwaterError:
        return


class Journal:
    """Store, lease and current progress of one run."""

    def __init__(self, store: Store, lease: HeldLease, owner: str, run: str, faults: Faults) -> None:
        self._store, self._lease, self._owner, self._faults = store, lease, owner, faults
        self._began = time.monotonic()
        self.run = run
        self.progress = store.load(lease.lease.pipeline)

    @property
    def pipeline(self) -> str:
        return self._lease.lease.pipeline

    @property
    def lease(self) -> Lease:
        return self._lease.lease

    @property
    def claim(self) -> Claim:
        """The right to stage what a plan discovers, as this run."""
        return Claim(self.lease, self.run)

    @property
    def mark(self) -> Mark | None:
        return self.progress.mark

    @property
    def intent(self) -> Intent | None:
        return self.progress.intent

    def ensure_lease(self) -> None:
        """Raises LeaseLost unless the lease is ours right now (G4)."""
        self._lease.ensure()

    def require_finished(self) -> None:
        """Raises RunError while a window is unfinished: only a cycle may touch its rows."""
        if self.intent:
            raise RunError(
                f"{self.pipeline}: a window is unfinished ({self.intent.window})",
                hint="finish it first: headwater run FILE --once",
            )

    def intend(self, window: Window) -> Intent:
        """Store the window before anything is read of it (G2, G5)."""
        intent = Intent(self.run, window, dt.datetime.now(dt.UTC))
        self._faults.reach("intend.before")
        self._swap(self.progress.intending(intent))
        self._faults.reach("intend.after")
        return intent

    def note_landings(self, landings: tuple[Landing, ...]) -> None:
        """Store what has landed of the intent, so that a crash repeats nothing, even where a sink cannot tell."""
        if self.intent:
            self._swap(self.progress.intending(replace(self.intent, landed=landings)))

    def note_paused_landings(self, paused: PausedStream, landings: tuple[Landing, ...]) -> None:
        """The same for a paused stream, which has no intent."""
        self._swap(self.progress.with_paused(replace(paused, landed=landings)))

    def advance(
        self,
        window: Window,
        landings: Sequence[Landing],
        *,
        why: Iterable[str] = (),
        paused: Sequence[PausedStream] = (),
        resumed: str | None = None,
    ) -> None:
        """Move the mark to the window's end, or past it: every sink has returned its landing (G1), the mark never moves back (G3).

        One compare-and-swap clears the intent, appends to the history, and pauses or resumes streams.
        """
        end = self.mark.join(window.end) if resumed and self.mark else window.end
        updated = self.progress.with_paused(*paused)
        if resumed:
            updated = updated.without_paused(resumed)
        entry = self._entry("landed", window.start, window.end, why="; ".join(why), landings=landings)
        self._faults.reach("advance.before")
        self._swap(updated.advanced(end), entry)
        self._faults.reach("advance.after")

    def abandon(self, why: str) -> None:
        """Drop the intent, on record. The mark stays (G1)."""
        window = self.intent.window if self.intent else None
        entry = self._entry("abandoned", window.start if window else None, window.end if window else None, why=why)
        self._swap(self.progress.abandoned(), entry)

    def pause(self, stream: PausedStream, error: HeadwaterError | None = None) -> None:
        """Note that the pipeline continues without the stream; an error goes into the history."""
        entry = self._failure(error) if error else None
        self._swap(self.progress.with_paused(stream), entry)

    def resume(self, *streams: str) -> None:
        self._swap(self.progress.without_paused(*streams))

    def rewind(self, to: Mark | None, why: str) -> None:
        """The one move that may take a mark back, on record (G3)."""
        self._swap(self.progress.rewound(to), self._entry("rewound", self.mark, to, why=why))

    def record(self, kind: EntryKind, landings: Sequence[Landing], why: str) -> None:
        """Put landings on record that leave the mark where it stands: a replay, a repair."""
        self._swap(self.progress, self._entry(kind, self.mark, self.mark, why=why, landings=landings))

    def record_failure(self, error: HeadwaterError) -> None:
        """Put the failure on record, once: the same one repeated by every cycle would bury the rest."""
        newest = self._store.history(self.pipeline, 1)
        if newest and newest[0].kind == "failed" and newest[0].error == error.message:
            return
        self.progress = self._store.load(self.pipeline)
        self._swap(self.progress, self._failure(error))

    def _failure(self, error: HeadwaterError) -> HistoryEntry:
        return replace(self._entry("failed", self.mark, None, error=error.message), end="")

    def _swap(self, updated: Progress, entry: HistoryEntry | None = None) -> None:
        self.progress = self._store.swap(self.lease, self.progress, updated, entry)

    def _entry(
        self,
        kind: EntryKind,
        start: Mark | None,
        end: Mark | None,
        *,
        landings: Sequence[Landing] = (),
        why: str = "",
        error: str = "",
    ) -> HistoryEntry:
        return HistoryEntry(
            kind=kind,
            run="" if kind == "rewound" else self.run,
            at=dt.datetime.now(dt.UTC),
            who=self._owner,
            epoch=self.lease.epoch,
            start=str(start or "the beginning"),
            end=str(end or "the beginning"),
            why=why,
            seconds=0.0 if kind in ("rewound", "abandoned") else round(time.monotonic() - self._began, 3),
            error=error,
            **landing_totals(landings),
        )


@contextmanager
def open_journal(
    store: Store, pipeline: str, owner: str, lease_seconds: float, *, run: str = "", faults: Faults | None = None
) -> Iterator[Journal]:
    """Hold the pipeline's lease for the block, and write through the journal. Raises LeaseHeld, StoreUnreachable."""
    faults = faults or NoFaults()
    faults.reach("lease.before")
    with held_lease(store, pipeline, owner, lease_seconds) as lease:
        faults.reach("lease.after")
        yield Journal(store, lease, owner, run or new_run(), faults)


def new_run() -> str:
    """The name of one run in logs, history and tables."""
    return uuid.uuid4().hex[:12]
