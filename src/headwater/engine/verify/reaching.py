"""The place where source and tables are compared: a mark, and the tables as they were when it stood there.

No lease is needed. A mark, read before and after the tables were looked at, and the same both times, says which landings
they may hold: all but those of the window that is under way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from headwater.engine.cycle import run_cycle
from headwater.engine.parts import Parts
from headwater.model.comparing import Meeting
from headwater.model.errors import LeaseHeld, RunError
from headwater.model.marks import Mark
from headwater.model.progress import Progress
from headwater.sinks.iceberg.stamp import Stamp

Looked = TypeVar("Looked")
Beyond = Callable[[Stamp], bool]
_PAUSE_SECONDS = 0.1


def reach(
    parts: Parts, meeting: Meeting, look: Callable[[Mark], Looked], wait_seconds: float
) -> tuple[Mark, Looked, Beyond]:
    """The mark, what `look` saw of the tables, and which of their landings are beyond it."""
    deadline = time.monotonic() + wait_seconds
    while True:
        before = parts.store.load(parts.name)
        if before.mark is None:
            raise RunError(
                f"{parts.name}: nothing has landed yet, so there is nothing to compare",
                hint="run the pipeline first: headwater run FILE --once",
            )
        standing = meeting.standing(before.mark)
        if standing == "past":
            return before.mark, look(before.mark), lambda stamp: meeting.beyond(stamp.end)
        if standing == "here":
            looked = look(before.mark)
            after = parts.store.load(parts.name)
            if after.mark == before.mark:
                return before.mark, looked, _under_way(before, after)
        else:
            _bring_on(parts)
        if time.monotonic() > deadline:
            raise RunError(
                f"{parts.name}: the mark did not come to where the source can be compared in {wait_seconds:g} s",
                hint="run the pipeline, or give it more time: --wait 10m",
            )


def _under_way(*seen: Progress) -> Beyond:
    """Landings of windows that are not finished, for all streams or for one that waits."""
    windows = {one.intent.window.id for one in seen if one.intent}
    waiting = {(left.stream, left.window.id) for one in seen for left in one.waiting if left.window}
    return lambda stamp: stamp.window in windows or (stamp.stream, stamp.window) in waiting


def _bring_on(parts: Parts) -> None:
    """One cycle of ours, or the time that another process needs for one of its own."""
    result = run_cycle(parts)
    if result.error and not result.goes_on and not isinstance(result.error, LeaseHeld):
        raise result.error
    if result.outcome != "landed":
        time.sleep(_PAUSE_SECONDS)
