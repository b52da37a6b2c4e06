"""Progress that ends with the process: for experiments, tests, and as the first of several levels."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from headwater.model.progress import HistoryEntry, Progress
from headwater.progress.record_store import Clock, Decision, Record, RecordStore, checked_name, steady_clock


class MemoryProgress(RecordStore):
    """A dictionary under a lock. `close` keeps the content: it is lost only when the process ends."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or steady_clock()
        self._lock = threading.Lock()
        self._records: dict[str, Record] = {}
        self._history: dict[str, list[HistoryEntry]] = {}

    @property
    def address(self) -> str:
        return "memory:"

    def history(self, pipeline: str, limit: int) -> Sequence[HistoryEntry]:
        with self._lock:
            entries = self._history.get(checked_name(pipeline), [])
            return entries[::-1][: max(limit, 0)]

    def pipelines(self) -> Sequence[str]:
        with self._lock:
            return sorted(name for name, record in self._records.items() if record.progress.version > 0)

    def close(self) -> None:
        """Nothing is open."""

    def _read(self, pipeline: str) -> Record:
        with self._lock:
            return self._records.get(pipeline, Record(Progress(pipeline)))

    def _change(self, pipeline: str, decide: Decision, entry: HistoryEntry | None) -> Record:
        with self._lock:
            record = decide(self._records.get(pipeline, Record(Progress(pipeline))), self._clock())
            self._records[pipeline] = record
            if entry is not None:
                self._history.setdefault(pipeline, []).append(entry)
            return record
