"""The streams of a window in one sink: one after the other, or several at a time where the sink can."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from headwater.model.rows import Rows
from headwater.model.sink import LandsSideBySide, Sink

T = TypeVar("T")


def side_by_side(sink: Sink, streams: Sequence[Rows], land: Callable[[Rows], T]) -> Iterator[T]:
    """The landings as they come. A stream that fails ends the window when those beside it are done; no other is begun."""
    at_once = min(sink.streams_at_once if isinstance(sink, LandsSideBySide) else 1, len(streams))
    if at_once <= 1:
        yield from map(land, streams)
        return
    with ThreadPoolExecutor(at_once) as threads:
        waiting = [threads.submit(land, stream) for stream in streams]
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            for one in waiting:
                one.cancel()
