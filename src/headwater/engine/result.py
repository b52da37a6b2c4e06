"""The result of one cycle, the report that builds it, and the log that receives its events.

Events are lower-case, with fields: never a row's values, never a secret (G11).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypedDict

from headwater.model.errors import HeadwaterError, RunError
from headwater.model.landing import Landing
from headwater.model.position.marks import Json
from headwater.model.position.window import Window
from headwater.model.rows import BY_SINK, REJECTS_SINK
from headwater.model.secret import masked


class Log(Protocol):
    """Receives every event of every pipeline, from several threads."""

    def event(self, pipeline: str, event: str, **fields: object) -> None:
        """One thing that happened."""

    def rows(self, pipeline: str, count: int) -> None:
        """So many more rows were written: for a progress display."""


class NullLog:
    """A log that keeps nothing."""

    def event(self, pipeline: str, event: str, **fields: object) -> None:
        """Drop it."""

    def rows(self, pipeline: str, count: int) -> None:
        """Drop it."""


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
    failed_streams: tuple[str, ...] = ()  # the error concerns these streams only; the others continue

    @property
    def continues(self) -> bool:
        """True if the error concerns single streams only, so the pipeline keeps running."""
        return bool(self.failed_streams)

    @property
    def rows(self) -> int:
        """Rows landed: what the first sink took of every stream (each sink takes the same rows)."""
        return _landed_rows(self.landings)

    @property
    def rejected(self) -> int:
        return _rejected_rows(self.landings)

    @property
    def read(self) -> int:
        """Rows of the source: what the first sink took, and what was rejected before or by it."""
        first = next((landing.sink for landing in self.landings if landing.sink != REJECTS_SINK), "")
        by_sink = [landing.proof.get(BY_SINK, {}) for landing in self.landings if landing.sink == REJECTS_SINK]
        later = sum(int(count) for counts in by_sink for sink, count in counts.items() if sink != first)
        return self.rows + self.rejected - later

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {
            "pipeline": self.pipeline,
            "run": self.run,
            "outcome": self.outcome,
            "window": self._window_json(),
            "rows": {"read": self.read, "landed": self.rows, "rejected": self.rejected},
            "sinks": _sink_totals(self.landings),
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


class CycleReport:
    """What a cycle has done so far: builds its result, and logs on the way."""

    def __init__(self, pipeline: str, run: str, log: Log) -> None:
        self.pipeline, self.run, self._log = pipeline, run, log
        self._began = time.monotonic()
        self._result = CycleResult(pipeline, run, "nothing new")
        self.failed_streams: dict[str, HeadwaterError] = {}  # streams that failed while the others continued

    def event(self, event: str, **fields: object) -> None:
        self._log.event(self.pipeline, event, run=self.run, **fields)

    def warn(self, *sentences: str) -> None:
        for sentence in sentences:
            self.event("warning", message=sentence)
        self._result = replace(self._result, warnings=(*self._result.warnings, *sentences))

    def note_more(self, *, more: bool) -> None:
        """A limit cut the window: the next cycle need not wait."""
        self._result = replace(self._result, more=more)

    def note_landed(self, window: Window, landings: Sequence[Landing], *, recovered: bool = False) -> None:
        self._result = replace(
            self._result,
            outcome="landed",
            windows=(*self._result.windows, window),
            landings=(*self._result.landings, *landings),
            recovered=self._result.recovered or recovered,
        )

    @contextmanager
    def capturing_errors(self) -> Iterator[None]:
        """A cycle raises nothing: what went wrong is part of its result."""
        try:
            yield
        except HeadwaterError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - the border: one pipeline's surprise must not end the others
            surprise = RunError(
                f"{self.pipeline}: {type(error).__name__}: {masked(str(error))}", hint="run with --debug for the trace"
            )
            surprise.__cause__ = error
            self._fail(surprise)

    def result(self) -> CycleResult:
        if self._result.error is None and self.failed_streams:
            first, *others = self.failed_streams.values()
            self.warn(*(error.message for error in others))
            self._fail(first)
            self._result = replace(self._result, failed_streams=tuple(self.failed_streams))
        return replace(self._result, seconds=time.monotonic() - self._began)

    def _fail(self, error: HeadwaterError) -> None:
        # Sources and sinks do not know their pipeline; the command that a hint names should be ready to copy.
        error.hint = error.hint.replace("headwater rewind NAME", f"headwater rewind {self.pipeline}")
        self.event("failed", code=error.code, message=error.message)
        self._result = replace(self._result, outcome="failed", error=error)


class LandingTotals(TypedDict):
    """What the history keeps of landings."""

    rows: int
    rejected: int
    sinks: tuple[dict[str, Json], ...]


def landing_totals(landings: Sequence[Landing]) -> LandingTotals:
    return {
        "rows": _landed_rows(landings),
        "rejected": _rejected_rows(landings),
        "sinks": tuple(_sink_totals(landings)),
    }


def _landed_rows(landings: Sequence[Landing]) -> int:
    landed = [landing for landing in landings if landing.sink != REJECTS_SINK]
    return sum(landing.rows for landing in landed if landing.sink == landed[0].sink)


def _rejected_rows(landings: Sequence[Landing]) -> int:
    return sum(landing.rows for landing in landings if landing.sink == REJECTS_SINK)


def _sink_totals(landings: Sequence[Landing]) -> list[dict[str, Json]]:
    sinks: dict[str, dict[str, Json]] = {}
    for landing in landings:
        if landing.sink == REJECTS_SINK:
            continue
        sink = sinks.setdefault(landing.sink, {"sink": landing.sink, "rows": 0, "seconds": 0.0})
        sink["rows"] += landing.rows
        sink["seconds"] = round(sink["seconds"] + landing.seconds, 3)
    return list(sinks.values())
