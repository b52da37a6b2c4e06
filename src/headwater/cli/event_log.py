"""What a run tells on its way: plain lines in a pipe, a live display on a terminal. Both go to stderr."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self, TextIO

from headwater.cli.output import printable
from headwater.cli.pace import Pace
from headwater.model.secret import masked

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import TaskID

_SECONDS_BETWEEN_LINES = 10.0


def event_log(err: TextIO) -> LineLog | TerminalLog:
    """The log that suits the stream."""
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
        self._said: dict[str, float] = {}

    def event(self, pipeline: str, event: str, **fields: object) -> None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._err.write(f"{now} {event_line(pipeline, event, fields)}\n")  # in one piece: threads share the stream
        self._err.flush()
        with self._lock:
            follow(self._paces, pipeline, event, fields)
            self._said[pipeline] = self._clock()

    def rows(self, pipeline: str, count: int) -> None:
        with self._lock:
            pace, now = self._paces.get(pipeline), self._clock()
            if pace is None:
                return
            pace.add(count, now)
            if now - self._said[pipeline] < _SECONDS_BETWEEN_LINES:
                return
            facts = {
                "rows": pace.rows,
                "of": pace.left_to_land,
                "rows_per_second": pace.rows_per_second,
                "seconds_left": pace.seconds_left,
            }
            doing = pace.doing
        known = {name: round(value) for name, value in facts.items() if value is not None}
        self.event(pipeline, doing, **known)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._err.flush()


class TerminalLog:
    """Events scroll by; below them one live line per pipeline that is landing rows: rows, rate, window, time left."""

    def __init__(self, err: TextIO) -> None:
        from rich.console import Console  # noqa: PLC0415 - only a terminal pays for it
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
        from rich.table import Column  # noqa: PLC0415

        self._lock = threading.Lock()
        self._console = Console(file=err, highlight=False, soft_wrap=True)
        self._display: Display = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
            TextColumn("{task.fields[pace]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            expand=True,  # where it is narrow, the window's text is cut, not the time left
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
            self.rows(pipeline, 0)  # the live line begins with the work, not with the first rows

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
    """Keep the pace of every pipeline whose window is under way."""
    rows = fields.get("rows")
    expected = rows if isinstance(rows, int) else None
    if event in {"window", "recovering"}:
        paces[pipeline] = Pace(str(fields.get("window", "")), expected)
    elif event == "comparing":
        paces[pipeline] = Pace(str(fields.get("table", "")), expected, "looking through")
    elif event == "landed" and pipeline in paces and isinstance(rows, int):
        paces[pipeline].landed(rows)
    elif event in {"failed", "cycle begins", "compared"}:
        paces.pop(pipeline, None)


def _quoted(value: object) -> str:
    text = str(value)
    return f'"{text}"' if not text or any(character.isspace() for character in text) else text
