"""What a cycle does with rejects: they land in a table of their own, before the rows they stood among are published.

So a crash leaves either both or neither: if the rows are there, their rejects are. The table has one row per
reject, by its id; to land the same one again changes nothing.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.engine.reject_tray import RejectTray
from headwater.model.landing import Landing
from headwater.model.rejects import BY_SINK, SINK, Reject
from headwater.model.sink import Attempt, Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Postpone = Callable[[Sequence[Reject]], None]


class Rejects:
    """The rejects of one pipeline's windows."""

    def __init__(self, table: str, limit: int, spark: Callable[[], SparkSession]) -> None:
        self.table, self.tray = table, RejectTray(limit, spark)
        self._sink: Sink | None = None
        self._attempt: Attempt | None = None
        self._postpone: Postpone | None = None
        self._postponed: frozenset[str] = frozenset()
        self._landed: dict[str, tuple[frozenset[str], Landing]] = {}  # by stream
        self._settling = threading.Lock()  # streams that land side by side settle together

    def begin(self, attempt: Attempt, postpone: Postpone | None = None) -> None:
        """A new window, or another try at one. Parts of it that bring no row at all are told to `postpone`."""
        self._attempt, self._postpone = attempt, postpone
        self._postponed = frozenset()
        self.tray.begin(attempt.window.id)
        self._landed.clear()

    def settle(self, stream: str | None = None) -> None:
        """Land what has been set aside so far, of one stream or of all. Called before anything of it is published."""
        with self._settling:
            self._settle(stream)

    def _settle(self, only: str | None) -> None:
        self.tray.check(only)
        everything = [reject for reject in self.tray.found() if only in (None, reject.stream)]
        for stream, found in _by_stream([reject for reject in everything if not reject.again]).items():
            ids = frozenset(reject.id for reject in found)
            if stream not in self._landed or self._landed[stream][0] != ids:
                self._landed[stream] = (ids, self._land(stream, found))
        # Afterwards: a part that is postponed is not read again by a retry, and its reject would be missed.
        self._settle_parts([reject for reject in everything if reject.part])

    def _settle_parts(self, parts: Sequence[Reject]) -> None:
        names = frozenset(reject.part for reject in parts)
        if names != self._postponed and self._postpone:
            self._postpone(parts)
            self._postponed = names

    @property
    def postponed(self) -> frozenset[str]:
        """The parts of the window that bring no row to it."""
        return self._postponed

    def landings(self) -> Sequence[Landing]:
        """Of the window so far, one per stream that had rejects."""
        return [landing for _, landing in self._landed.values()]

    def close(self) -> None:
        if self._sink:
            self._sink.close()

    def _land(self, stream: str, rejects: Sequence[Reject]) -> Landing:
        from headwater.engine.reject_rows import reject_rows, reject_sink  # noqa: PLC0415 - rarely needed

        attempt = self._attempt
        if attempt is None:
            raise RuntimeError("rejects of no window")
        self._sink = self._sink or reject_sink(self.table)
        part = hashlib.sha256("".join(sorted(reject.id for reject in rejects)).encode()).hexdigest()[:24]
        own = replace(attempt, window=replace(attempt.window, part=part), progress=lambda _: None)
        landing = self._sink.land(own, reject_rows(stream, rejects, attempt))
        by_sink = Counter(str(reject.place[SINK]) for reject in rejects if SINK in reject.place)
        return replace(landing, window=attempt.window.id, proof={**landing.proof, BY_SINK: dict(by_sink)})


def _by_stream(rejects: Sequence[Reject]) -> dict[str, list[Reject]]:
    found: dict[str, list[Reject]] = {}
    for reject in rejects:
        found.setdefault(reject.stream, []).append(reject)
    return found
