"""A try at a window, with the rights it comes with."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headwater.engine.lease import HeldLease
from headwater.engine.parts import Parts
from headwater.model.sink import Attempt
from headwater.model.source import Postpones
from headwater.model.window import Window


def attempt_at(parts: Parts, lease: HeldLease, run: str, window: Window) -> Attempt:
    """For the sinks of one try. Whatever they publish, they publish behind the lease and behind the window's rejects."""
    attempt = Attempt(
        pipeline=parts.name,
        run=run,
        window=window,
        epoch=lease.lease.epoch,
        faults=parts.faults,
        clear_to_publish=lease.ensure,
        spark=parts.spark,
        progress=lambda count: parts.log.rows(parts.name, count),
    )
    source = parts.source
    postpone = partial(source.postpone, window, lease=lease.lease) if isinstance(source, Postpones) else None
    parts.rejects.begin(attempt, postpone)

    def clear_to_publish() -> None:
        parts.rejects.settle()  # G8: before the rows they stood among, so that a crash cannot lose them
        lease.ensure()

    tray = parts.rejects.tray
    return replace(
        attempt,
        clear_to_publish=clear_to_publish,
        set_aside=tray.for_sinks(),
        parts_aside=lambda: frozenset(reject.part for reject in tray.found() if reject.part),
    )


def for_stream(parts: Parts, lease: HeldLease, attempt: Attempt, stream: str) -> Attempt:
    """The same try for one stream, which publishes behind its own rejects: those of another are no matter of it."""

    def clear_to_publish() -> None:
        parts.rejects.settle(stream)
        lease.ensure()

    return replace(attempt, clear_to_publish=clear_to_publish)
