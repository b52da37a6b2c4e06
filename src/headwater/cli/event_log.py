"""The log of a run: plain lines in a pipe, a live display on a terminal. Both go to stderr."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self, TextIO

from headwater.cli.output import printable
from headwater.model.secret import masked

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import TaskID

_LINE_INTERVAL_SECONDS = 10.0


def event_log(err: TextIO) -> LineLog | TerminalLog:
    """A live display for a terminal, else lines."""
    return TerminalLog(err) if err.isatty() else LineLog(err)


def event_line(pipeline: str, event: str, fields: dict[str, object]) -> str:
    """`content cycle begins mark="seq = 5" store=sqlite:///…`: one line, masked (G11)."""
    words = [pipeline, event, *(f"{name}={_quoted(value)}" for name, value in fields.items())]
    return masked(printable(" ".join(words)))


class LineLog:
    """One line per event, with the time in UTC; while rows land, one every ten seconds."""

    def __init__(self, err: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._err, self._clock = err, clock
        self._lock = threading.Lock()
        self._paces: dict[str, Pace] = {}
        self._last_line: dict[str, float] = {}

    def event(self, pipeline: str, event: str, **fields: object) -> None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._err.write(f"{now} {event_line(pipeline, event, fields)}\n")  # in one write: threads share the stream
        self._err.flush()
        with self._lock:
            follow(self._paces, pipeline, event, fields)
            self._last_line[pipeline] = self._clock()

    def rows(self, pipeline: str, count: int) -> None:
        with self._lock:
            pace, now = self._paces.get(pipeline), self._clock()
            if pace is None:
                return
            pace.add(count, now)
            if now - self._last_line[pipeline] < _LINE_INTERVAL_SECONDS:
                return
            rates = {
                "rows": pace.rows,
                "of": pace.left_to_land,
                "rows_per_second": pace.rows_per_second,
                "seconds_left": pace.seconds_left,
            }
            activity = pace.activity
        fields = {name: round(value) for name, value in rates.items() if value is not None}
        self.event(pipeline, activity, **fields)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._err.flush()


class TerminalLog:
    """Events scroll; below them one live line per landing pipeline: rows, rate, window, time left."""

    def __init__(self, err: TextIO) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column

        self._lock = threading.Lock()
        self._console = Console(file=err, highlight=False, soft_wrap=True)
        self._display: Display = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
            TextColumn("{task.fields[pace]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            expand=True,  # a narrow terminal cuts the window's text, not the time left
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._paces: dict[str, Pace] = {}

    def event(self, pipeline: str, event: str, **fields: object) -> None:
        with self._lock:
            follow(self._paces, pipeline, event, fields)
            if event in {"landed", "compared", "failed", "cycle begins"} and pipeline in self._tasks:
                self._display.remove_task(self._tasks.pop(pipeline))
        line = event_line(pipeline, event, {name: value for name, value in fields.items() if name != "run"})
        self._console.print(line, style="red" if event == "failed" else "dim", markup=False)
        if event in {"window", "recovering", "comparing"}:
            self.rows(pipeline, 0)  # the live line starts with the window, not with its first rows

    def rows(self, pipeline: str, count: int) -> None:
        with self._lock:
            pace = self._paces.get(pipeline)
            if pace is None:
                return
            pace.add(count, time.monotonic())
            if pipeline not in self._tasks:
                self._tasks[pipeline] = self._display.add_task(
                    f"{pipeline} {pace.window}".rstrip(), total=None, pace=""
                )
            self._display.update(self._tasks[pipeline], pace=pace.text)

    def __enter__(self) -> Self:
        self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()


def follow(paces: dict[str, Pace], pipeline: str, event: str, fields: Mapping[str, object]) -> None:
    """Update the pace of every pipeline with a window in progress."""
    rows = fields.get("rows")
    expected = rows if isinstance(rows, int) else None
    if event in {"window", "recovering"}:
        paces[pipeline] = Pace(str(fields.get("window", "")), expected)
    elif event == "comparing":
        paces[pipeline] = Pace(str(fields.get("table", "")), expected, "comparing")
    elif event == "landed" and pipeline in paces and isinstance(rows, int):
        paces[pipeline].landed(rows)
    elif event in {"failed", "cycle begins", "compared"}:
        paces.pop(pipeline, None)


def _quoted(value: object) -> str:
    text = str(value)
    return f'"{text}"' if not text or any(character.isspace() for character in text) else text


class Pace:
    """The progress of one window, landing by landing: its streams, then those of the next sink."""

    def __init__(self, window: str, expected: int | None, activity: str = "landing") -> None:
        self.window, self.activity = window, activity
        self.rows = 0  # of the current landing
        self._expected = self.left_to_land = expected  # of the whole window, and what this sink still has to land
        self._first: tuple[float, int] | None = None
        self._last = 0.0

    def add(self, rows: int, now: float) -> None:
        if rows == 0:
            return
        self.rows += rows
        self._first, self._last = self._first or (now, self.rows), now

    def landed(self, rows: int) -> None:
        """Start the next landing: of another stream, or in another sink."""
        self.rows, self._first = 0, None
        if self.left_to_land is not None:
            remaining = self.left_to_land - rows
            self.left_to_land = remaining if remaining > 0 else self._expected

    @property
    def rows_per_second(self) -> float | None:
        """Since the first rows: the start of a session is not counted."""
        if self._first is None or self._last <= self._first[0]:
            return None
        return (self.rows - self._first[1]) / (self._last - self._first[0])

    @property
    def seconds_left(self) -> float | None:
        rate = self.rows_per_second
        if not rate or self.left_to_land is None or self.rows >= self.left_to_land:
            return None
        return (self.left_to_land - self.rows) / rate

    @property
    def text(self) -> str:
        """`120,000 of 600,000 rows · 40,000 rows/s · 12 s left`, as far as known."""
        if self.rows == 0:
            return f"of {self.left_to_land:,} rows" if self.left_to_land else ""
        has_total = self.left_to_land is not None and self.rows <= self.left_to_land
        parts = [f"{self.rows:,} of {self.left_to_land:,} rows" if has_total else f"{self.rows:,} rows"]
        if self.rows_per_second is not None:
            parts.append(f"{self.rows_per_second:,.0f} rows/s")
        if self.seconds_left is not None:
            parts.append(f"{self.seconds_left:,.0f} s left")
        return " · ".join(parts)
