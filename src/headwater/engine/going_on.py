"""A pipeline goes on without a stream that failed by itself: which errors are a stream's own, and when it is tried again."""

from __future__ import annotations

import datetime as dt
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from headwater.engine.schedule import backoff_seconds
from headwater.model.errors import HeadwaterError, is_of_one_stream
from headwater.model.progress import Intent, Waiting
from headwater.model.source import Separates, Source
from headwater.model.window import Window

T = TypeVar("T")


class OwnFailures:
    """Errors of single streams of one window, while the others land. Streams may come from several threads."""

    def __init__(self, source: Source, window: Window) -> None:
        self._apart = isinstance(source, Separates) and source.apart(window, frozenset()) is not None
        self._noting = threading.Lock()
        self.found: dict[str, HeadwaterError] = {}

    def noting(self, stream: str, work: Callable[[], T]) -> T | None:
        """What the work gives; None where it failed in a way that is no matter of the others."""
        try:
            return work()
        except HeadwaterError as error:
            if not (self._apart and is_of_one_stream(error)):
                raise
            with self._noting:
                self.found[stream] = error
            return None


def rest_of(source: Source, window: Window, failed: Mapping[str, HeadwaterError]) -> Window:
    """The window without these streams."""
    parts = source.apart(window, frozenset(failed)) if failed and isinstance(source, Separates) else None
    return parts[1] if parts else window


def part_of(source: Source, window: Window, stream: str) -> Window:
    """What one stream brings to the window."""
    parts = source.apart(window, frozenset([stream])) if isinstance(source, Separates) else None
    return parts[0] if parts else window


def left_by(intent: Intent, failed: Mapping[str, HeadwaterError]) -> list[Waiting]:
    """The streams that wait from now on: over this very window, with what has landed of it (G2)."""
    now = dt.datetime.now(dt.UTC)
    return [
        Waiting(
            stream,
            now,
            error.code,
            error.message,
            intent.window,
            tuple(landing for landing in intent.landed if landing.stream == stream),
        )
        for stream, error in failed.items()
    ]


@dataclass
class Retries:
    """When streams that wait are tried again by this process: at once, then less and less often."""

    clock: Callable[[], float] = time.monotonic
    _tries: dict[str, int] = field(default_factory=dict)
    _next: dict[str, float] = field(default_factory=dict)

    def is_due(self, stream: str) -> bool:
        return self.clock() >= self._next.get(stream, -math.inf)

    def failed(self, stream: str) -> None:
        self._tries[stream] = self._tries.get(stream, 0) + 1
        self._next[stream] = self.clock() + backoff_seconds(self._tries[stream])

    def done(self, stream: str) -> None:
        self._tries.pop(stream, None)
        self._next.pop(stream, None)
