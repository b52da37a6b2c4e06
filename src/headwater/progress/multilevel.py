"""Several stores as one: quick ones in front, and a last one that decides.

Leases, compare-and-swap and history belong to the last level alone; a write counts when it is durable
there, and only then the front levels are updated, if they answer. So a front level can never move a mark or
win a swap. Front levels serve reads: while this process holds the lease, no other process can write, and the
first level with the version that the last level confirmed answers. Without the lease the last level answers,
because any process may have written since; if it does not, that is an outage (W3), whatever the front levels
hold.

Front levels are also witnesses. They learn a version only after the last level has it; if one of them has a
newer version than the last level, the last level has lost writes and the pipeline stops.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from headwater.model.bookmarks import BookmarkAdmin, HasLedger, no_ledger
from headwater.model.errors import HeadwaterError, StoreDamaged
from headwater.model.progress import HistoryEntry, Lease, Progress
from headwater.model.protocols.store import Store

_log = logging.getLogger(__name__)


class FrontLevel(Protocol):
    """A store in front of the deciding one."""

    @property
    def address(self) -> str:
        """Where it is, without secrets."""

    def load(self, pipeline: str) -> Progress:
        """What this level stores."""

    def remember(self, progress: Progress) -> None:
        """Store this, unless this level has a higher version."""

    def close(self) -> None:
        """Close connections."""


class MultilevelProgress:
    """Reads the first level that may be trusted, back-fills those before it, writes the last level first."""

    def __init__(self, fronts: Sequence[FrontLevel], last: Store) -> None:
        self._fronts = tuple(fronts)
        self._last = last
        self._lock = threading.Lock()
        self._epochs: dict[str, int] = {}  # of leases that were acquired here and not released
        self._confirmed: dict[str, tuple[int, int]] = {}  # epoch and version that the last level had under our lease

    @property
    def address(self) -> str:
        return " → ".join([*(level.address for level in self._fronts), self._last.address])

    def load(self, pipeline: str) -> Progress:
        with self._lock:
            confirmed = self._confirmed.get(pipeline) if pipeline in self._epochs else None
        cached = [self._load_front(level, pipeline) for level in self._fronts]
        if confirmed is not None:
            epoch, version = confirmed
            for position, progress in enumerate(cached):
                if progress is not None and progress.version == version:
                    self._update(self._fronts[:position], progress)
                    return replace(progress, epoch=epoch)
        # In this order: a front level that was read before the last level cannot be ahead of it.
        progress = self._last.load(pipeline)
        self._check_witnesses(progress, cached)
        self._confirm(progress)
        self._update(self._fronts, progress)
        return progress

    def swap(self, lease: Lease, expected: Progress, updated: Progress, entry: HistoryEntry | None) -> Progress:
        try:
            progress = self._last.swap(lease, expected, updated, entry)
        except BaseException:
            # Refused, or unknown: only the last level knows whether the swap counts.
            with self._lock:
                self._confirmed.pop(lease.pipeline, None)
            raise
        self._confirm(progress)
        self._update(self._fronts, progress)
        return progress

    def acquire(self, pipeline: str, owner: str, ttl_seconds: float) -> Lease:
        lease = self._last.acquire(pipeline, owner, ttl_seconds)
        with self._lock:
            epoch, version = self._confirmed.pop(pipeline, (-1, 0))
            # Epochs are consecutive: the next one after ours means that no other process wrote in between.
            if lease.epoch == epoch + 1:
                self._confirmed[pipeline] = (lease.epoch, version)
            self._epochs[pipeline] = lease.epoch
        return lease

    def renew(self, lease: Lease) -> Lease:
        return self._last.renew(lease)

    def release(self, lease: Lease) -> None:
        with self._lock:
            if self._epochs.get(lease.pipeline) == lease.epoch:
                del self._epochs[lease.pipeline]
        self._last.release(lease)

    def history(self, pipeline: str, limit: int) -> Sequence[HistoryEntry]:
        return self._last.history(pipeline, limit)

    def pipelines(self) -> Sequence[str]:
        return self._last.pipelines()

    def ledger(self, pipeline: str) -> BookmarkAdmin:
        """Bookmarks belong to the last level, which decides."""
        if not isinstance(self._last, HasLedger):
            raise no_ledger(self._last.address)
        return self._last.ledger(pipeline)

    def close(self) -> None:
        for level in self._fronts:
            level.close()
        self._last.close()

    def _confirm(self, progress: Progress) -> None:
        with self._lock:
            if self._epochs.get(progress.pipeline) == progress.epoch:
                self._confirmed[progress.pipeline] = (progress.epoch, progress.version)
            else:
                self._confirmed.pop(progress.pipeline, None)

    def _check_witnesses(self, progress: Progress, cached: Sequence[Progress | None]) -> None:
        for level, witness in zip(self._fronts, cached, strict=True):
            if witness is not None and witness.version > progress.version:
                raise StoreDamaged(
                    f"{progress.pipeline}: {level.address} knows version {witness.version} ({witness.mark or 'no mark'}), "
                    f"but {self._last.address}, which decides, holds version {progress.version} "
                    f"({progress.mark or 'no mark'})",
                    hint="the last level lost writes or is a new one: restore or fill it; to continue from what it holds, "
                    "leave out the levels in front or empty them",
                )

    def _load_front(self, level: FrontLevel, pipeline: str) -> Progress | None:
        try:
            return level.load(pipeline)
        except HeadwaterError as error:
            _log.warning("front level does not answer", extra={"level": level.address, "error": error.code})
            return None

    def _update(self, levels: Sequence[FrontLevel], progress: Progress) -> None:
        for level in levels:
            try:
                level.remember(progress)
            except HeadwaterError as error:
                _log.warning("front level did not store", extra={"level": level.address, "error": error.code})
