"""What one cycle came to."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

from headwater.model.errors import HeadwaterError
from headwater.model.landing import Landing
from headwater.model.marks import Json
from headwater.model.progress import HistoryEntry
from headwater.model.rejects import BY_SINK
from headwater.model.rejects import LABEL as REJECTS
from headwater.model.window import Window

Outcome = Literal["landed", "nothing new", "failed"]


@dataclass(frozen=True)
class CycleResult:
    """One cycle of one pipeline. Windows are in order: a recovered one first, then a new one."""

    pipeline: str
    run: str
    outcome: Outcome
    windows: tuple[Window, ...] = ()
    landings: tuple[Landing, ...] = ()
    seconds: float = 0.0
    recovered: bool = False
    more: bool = False  # a limit cut the window; the next cycle need not wait
    warnings: tuple[str, ...] = ()
    error: HeadwaterError | None = None
    failed_streams: tuple[str, ...] = ()  # by themselves; where nothing else failed, the pipeline goes on

    @property
    def goes_on(self) -> bool:
        """Whether the other streams are not concerned by what failed."""
        return bool(self.failed_streams)

    @property
    def rows(self) -> int:
        """Rows landed: what the first sink took of every stream (each sink takes the same rows)."""
        landed = [landing for landing in self.landings if landing.sink != REJECTS]
        return sum(landing.rows for landing in landed if landing.sink == landed[0].sink)

    @property
    def rejected(self) -> int:
        """Rows set aside."""
        return sum(landing.rows for landing in self.landings if landing.sink == REJECTS)

    @property
    def read(self) -> int:
        """Rows of the source: what the first sink took, and what was set aside before or by it."""
        first = next((landing.sink for landing in self.landings if landing.sink != REJECTS), "")
        by_sink = [landing.proof.get(BY_SINK, {}) for landing in self.landings if landing.sink == REJECTS]
        later = sum(int(count) for counts in by_sink for sink, count in counts.items() if sink != first)
        return self.rows + self.rejected - later

    def entry(self, who: str, epoch: int, *, why: str) -> HistoryEntry:
        """What the history keeps of a landing."""
        start, end = self.windows[0].start, self.windows[-1].end
        return HistoryEntry(
            kind="landed",
            run=self.run,
            at=dt.datetime.now(dt.UTC),
            who=who,
            epoch=epoch,
            start=str(start or "the beginning"),
            end=str(end),
            why=why,
            rows=self.rows,
            rejected=self.rejected,
            seconds=round(self.seconds, 3),
            sinks=tuple(self._sinks_json()),
        )

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {
            "pipeline": self.pipeline,
            "run": self.run,
            "outcome": self.outcome,
            "window": self._window_json(),
            "rows": {"read": self.read, "landed": self.rows, "rejected": self.rejected},
            "sinks": self._sinks_json(),
            "seconds": round(self.seconds, 3),
            "recovered": self.recovered,
            "warnings": list(self.warnings),
        }
        if self.error:
            data["error"] = {"code": self.error.code, "message": self.error.message, "hint": self.error.hint}
        if self.failed_streams:
            data["failed_streams"] = list(self.failed_streams)
        return data

    def _window_json(self) -> dict[str, Json] | None:
        if not self.windows:
            return None
        start = self.windows[0].start
        return {"start": start.to_json() if start else None, "end": self.windows[-1].end.to_json()}

    def _sinks_json(self) -> list[dict[str, Json]]:
        sinks: dict[str, dict[str, Json]] = {}
        for landing in self.landings:
            if landing.sink == REJECTS:
                continue
            sink = sinks.setdefault(landing.sink, {"sink": landing.sink, "rows": 0, "seconds": 0.0})
            sink["rows"] += landing.rows
            sink["seconds"] = round(sink["seconds"] + landing.seconds, 3)
        return list(sinks.values())
