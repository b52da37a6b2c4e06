"""A stream that its pipeline went on without is tried again, over the very window that it failed in."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.engine.going_on import part_of
from headwater.engine.landing import Lander, Landings
from headwater.engine.lease import HeldLease
from headwater.engine.parts import Parts
from headwater.model.errors import HeadwaterError, is_of_one_stream
from headwater.model.progress import Progress, Waiting
from headwater.model.window import Window


@dataclass(frozen=True)
class Tried:
    """What came of it."""

    progress: Progress
    waiting: Waiting  # with all that has landed
    part: Window  # what the stream brings to the window
    error: HeadwaterError | None = None  # its own; None: it has landed everywhere


def try_again(parts: Parts, lease: HeldLease, run: str, progress: Progress, waiting: Waiting) -> Tried:
    """What landed of the stream before is known by the window's id (G2), so it is the whole one; only a part is read."""
    window, lander = waiting.window, Lander(parts, lease, run)
    assert window is not None  # noqa: S101 - a stream without one waits for the source
    part = part_of(parts.source, window, waiting.stream)
    tried = Tried(progress, waiting, part)

    def save(landed: Landings, _: int) -> None:
        nonlocal tried
        now = replace(waiting, landed=landed)
        stored = parts.store.swap(lease.lease, tried.progress, tried.progress.with_waiting(now), None)
        tried = Tried(stored, now, part)

    try:
        lander.land(lander.attempt_at(window), part, waiting.landed, save)
    except HeadwaterError as error:
        if not is_of_one_stream(error):
            raise
        return replace(tried, error=error)  # what it has to read may be gone by now
    return replace(tried, error=lander.failed.get(waiting.stream))
