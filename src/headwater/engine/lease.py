"""Holding a lease while a cycle works (G4)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.model.errors import HeadwaterError, LeaseLost, StoreUnreachable
from headwater.model.progress import Lease
from headwater.model.store import Leases


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
    """Take the lease, keep it during the block, give it back."""
    held = HeldLease(leases, leases.acquire(pipeline, owner, ttl_seconds))
    try:
        yield held
    except BaseException:
        _release_after_failure(held)
        raise
    held.release()


def _release_after_failure(held: HeldLease) -> None:
    # The failure that is on its way to the user must not be replaced by a store that cannot be told;
    # the lease then expires by itself.
    try:
        held.release()
    except HeadwaterError:
        return
