"""The clocks by which leases expire, for stores that have none of their own."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable

Clock = Callable[[], dt.datetime]


def wall_clock() -> dt.datetime:
    """The machine's time: what processes that share a file on one machine agree on."""
    return dt.datetime.now(dt.UTC)


def steady_clock() -> Clock:
    """A clock that nobody can set back while the process lives."""
    start, origin = dt.datetime.now(dt.UTC), time.monotonic()
    return lambda: start + dt.timedelta(seconds=time.monotonic() - origin)
