"""When the engine tries again: the backoff of failed cycles and of paused streams."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.model.errors import HeadwaterError

_FIRST_BACKOFF_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 300.0


def backoff_seconds(failures: int) -> float:
    """1 s, 2 s, 4 s … 5 minutes after so many failures in a row."""
    return float(min(_FIRST_BACKOFF_SECONDS * 2 ** (failures - 1), _LONGEST_BACKOFF_SECONDS))


def worth_retrying(error: HeadwaterError | None) -> bool:
    """True if the engine should try again without an operator: only what passes by itself."""
    return error is None or error.retry == "later"


@dataclass
class Retries:
    """When this process retries each paused stream: at once, then less and less often."""

    clock: Callable[[], float] = time.monotonic
    _failures: dict[str, int] = field(default_factory=dict)
    _next: dict[str, float] = field(default_factory=dict)

    def is_due(self, stream: str) -> bool:
        return self.clock() >= self._next.get(stream, -math.inf)

    def failed(self, stream: str) -> None:
        self._failures[stream] = self._failures.get(stream, 0) + 1
        self._next[stream] = self.clock() + backoff_seconds(self._failures[stream])

    def done(self, stream: str) -> None:
        self._failures.pop(stream, None)
        self._next.pop(stream, None)
