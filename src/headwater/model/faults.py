"""The named points of a cycle where a crash, a freeze or an outage is rehearsed.

Production code only calls `reach`; the caller that passes the faults in decides what happens there.
`headwater.testing.faults` documents how to make the command line fail at a point.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Protocol

from headwater.model.errors import SinkUnreachable, SourceUnreachable, StoreUnreachable

# In the order in which a cycle passes them. `land` is passed once per sink and stream.
FAULT_POINTS = (
    "lease.before",
    "lease.after",
    "intend.before",
    "intend.after",
    "read.before",
    "read.after",
    "land.before",
    "land.written",  # rows are in the sink's storage, not yet visible
    "land.published",  # readers see them, the engine does not know yet
    "land.after",
    "label.before",  # where the window ends at a label
    "label.after",
    "advance.before",
    "advance.after",
    "acknowledge.before",
    "acknowledge.after",
)

# What every cycle passes that has a window; the others depend on what the source wants and brings.
EVERY_CYCLE = tuple(point for point in FAULT_POINTS if not point.startswith(("label.", "acknowledge.")))

VARIABLE = "HEADWATER_FAULT"

_OUTAGES = {"store": StoreUnreachable, "source": SourceUnreachable, "sink": SinkUnreachable}


class Faults(Protocol):
    """Called at each fault point, with the point's name."""

    def reach(self, point: str) -> None:
        """Return to continue; raise, stop or kill the process to rehearse a failure."""


class NoFaults:
    """What production runs with."""

    def reach(self, point: str) -> None:
        """Continue."""


class RehearsedFault:
    """Fails at the nth passage of one point: `kill`, `stop` (SIGSTOP), or an outage of store, source or sink."""

    def __init__(self, point: str, action: str, passage: int) -> None:
        self._point, self._action, self._left = point, action, passage

    def reach(self, point: str) -> None:
        if point != self._point:
            return
        self._left -= 1
        if self._left != 0:
            return
        sys.stderr.flush()
        if self._action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            raise _OUTAGES[self._action](f"rehearsed outage of the {self._action} at {point}")


def faults_from(environment: Mapping[str, str]) -> Faults:
    """`HEADWATER_FAULT=land.written:kill` or `land.before:sink:2` (the second passage); unset: none."""
    text = environment.get(VARIABLE, "")
    if not text:
        return NoFaults()
    point, _, rest = text.partition(":")
    action, _, passage = rest.partition(":")
    if point not in FAULT_POINTS or action not in {"kill", "stop", *_OUTAGES}:
        raise ValueError(
            f"{VARIABLE}={text!r}: expected POINT:kill|stop|store|source|sink[:N], POINT one of {FAULT_POINTS}"
        )
    return RehearsedFault(point, action, int(passage or 1))
