"""What a run tells on its way: plain lines in a pipe, a live display on a terminal. Both go to stderr."""

from __future__ import annotations

import datetime as dt
import threading
import time
from typing import TYPE_CHECKING, Self, TextIO

from headwater.cli.output import printable
from headwater.model.secret import masked

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import TaskID


def event_log(err: TextIO) -> LineLog | TerminalLog:
    """The log that suits the stream."""
    return TerminalLog(err) if err.isatty() else LineLog(err)


def event_line(pipeline: str, event: str, fields: dict[str, object]) -> str:
    """`content cycle begins mark="seq = 5" store=sqlite:///…`: one line, masked (G11)."""
    words = [pipeline, event, *(f"{name}={_quoted(value)}" for name, value in fields.items())]
    return masked(printable(" ".join(words)))


class LineLog:
    """One line per event, with the time in UTC."""

    def __init__(self, err: TextIO) -> None:
        self._err = err

    def event(self, pipeline: str, event: str, **fields: object) -> None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._err.write(f"{now} {event_line(pipeline, event, fields)}\n")  # in one piece: threads share the stream
        self._err.flush()

    def rows(self, pipeline: str, count: int) -> None:
        """Lines are for events; the count comes with `landed`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._err.flush()


class TerminalLog:
    """Events scroll by; below them one live line per pipeline that is landing rows: rows, rate, window, time left."""

    def __init__(self, err: TextIO) -> None:
        from rich.console import Console  # noqa: PLC0415 - only a terminal pays for it
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        self._lock = threading.Lock()
        self._console = Console(file=err, highlight=False, soft_wrap=True)
        self._display: Display = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}
        self._count: dict[str, int] = {}
        self._expected: dict[str, int | None] = {}
        self._window: dict[str, str] = {}

    def event(self, pipeline: str, event: str, **fields: object) -> None:
        if event in {"window", "recovering"}:
            rows = fields.get("rows")
            self._window[pipeline] = str(fields.get("window", ""))
            self._expected[pipeline] = rows if isinstance(rows, int) else None
        if event in {"landed", "failed", "cycle begins"}:
            self._forget(pipeline)
        line = event_line(pipeline, event, {name: value for name, value in fields.items() if name != "run"})
        self._console.print(line, style="red" if event == "failed" else "dim", markup=False)
        if event in {"window", "recovering"}:
            self.rows(pipeline, 0)  # the live line begins with the work, not with the first rows

    def rows(self, pipeline: str, count: int) -> None:
        with self._lock:
            if pipeline not in self._tasks:
                self._began[pipeline], self._count[pipeline] = time.monotonic(), 0
                label = f"{pipeline} {self._window.get(pipeline, '')}".rstrip()
                self._tasks[pipeline] = self._display.add_task(label, total=None, rate="")
            self._count[pipeline] += count
            seconds = max(time.monotonic() - self._began[pipeline], 0.001)
            self._display.update(
                self._tasks[pipeline],
                rate=landing_rate(self._count[pipeline], seconds, self._expected.get(pipeline)),
            )

    def __enter__(self) -> Self:
        self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()

    def _forget(self, pipeline: str) -> None:
        with self._lock:
            if pipeline in self._tasks:
                self._display.remove_task(self._tasks.pop(pipeline))


def landing_rate(count: int, seconds: float, expected: int | None) -> str:
    """`120,000 rows · 40,000 rows/s · 12 s left`."""
    if count == 0:
        return f"of {expected:,} rows" if expected else ""
    rate = count / seconds
    text = f"{count:,} rows · {rate:,.0f} rows/s"
    if expected and count < expected and rate > 0:
        text += f" · {(expected - count) / rate:,.0f} s left"
    return text


def _quoted(value: object) -> str:
    text = str(value)
    return f'"{text}"' if not text or any(character.isspace() for character in text) else text
