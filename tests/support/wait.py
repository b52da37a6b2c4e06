"""Waiting for what another thread, process or server does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(
    condition: Callable[[], object], seconds: float = 30.0, state: Callable[[], object] | None = None
) -> None:
    """Poll with a deadline; a failure shows `state`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, state() if state else "the condition did not come true in time"
        time.sleep(0.02)
