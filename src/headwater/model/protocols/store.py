"""The protocol of a progress store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headwater.model.progress import HistoryEntry, Lease, Progress


class ProgressStore(Protocol):
    """Remembers how far each pipeline got. Every implementation passes `headwater.testing.progress_contract`.

    A store that does not answer raises StoreUnreachable, one that cannot be read raises StoreDamaged;
    neither is ever reported as absence (W3). Pipeline names are any non-empty text. Safe to use from
    several threads and from several processes at once.
    """

    @property
    def address(self) -> str:
        """Where it is, for logs and messages, without secrets (W4, G11)."""

    def load(self, pipeline: str) -> Progress:
        """What is stored. A pipeline that was never written has version 0: only that proves a first run."""

    def swap(self, lease: Lease, expected: Progress, updated: Progress, entry: HistoryEntry | None) -> Progress:
        """Replace `expected` by `updated` and append `entry`, all or nothing; return what is stored now.

        Durable when it returns. Raises LeaseLost when the lease expired or a higher epoch was given out (G4),
        ProgressConflict when the stored version is not `expected.version`, MarkMovedBack by `check_move` (G3).
        The stored version is `expected.version + 1` and the stored epoch the lease's.
        """

    def history(self, pipeline: str, limit: int) -> Sequence[HistoryEntry]:
        """The newest entries, newest first."""

    def pipelines(self) -> Sequence[str]:
        """The names of all pipelines that have progress, sorted."""

    def close(self) -> None:
        """Give back connections. The store may be used again afterwards."""


class Leases(Protocol):
    """The part of a store that lets one process at a time run a pipeline. Time is the store's own clock."""

    def acquire(self, pipeline: str, owner: str, ttl_seconds: float) -> Lease:
        """Take the lease with an epoch above every earlier one. Raises LeaseHeld while another's is alive.

        The epoch is never given out twice, not even after a crash between `acquire` and the first `swap`.
        """

    def renew(self, lease: Lease) -> Lease:
        """Extend it by its time to live. Raises LeaseLost when it expired or was taken over."""

    def release(self, lease: Lease) -> None:
        """Give it back. Does nothing when it is no longer ours."""


class Store(ProgressStore, Leases, Protocol):
    """What the engine needs: progress and leases in one place, fenced by one epoch."""
