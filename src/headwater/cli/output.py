"""The output of a command: data to stdout as text or JSON, messages to stderr; the public shapes of marks, windows and lag."""

from __future__ import annotations

import json
import sys
import traceback
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from headwater.model.errors import HeadwaterError, SettingsError
from headwater.model.json_codec import to_json
from headwater.model.position.marks import ColumnMark, Json, Mark, StreamsMark
from headwater.model.position.window import Window
from headwater.model.secret import masked

if TYPE_CHECKING:
    from headwater.api import Pipeline
    from headwater.model.protocols.source import Lag

_REPORT = "this is a bug in Headwater; please report it with the output of the same command and --debug"


@dataclass(frozen=True)
class Output:
    """Renders the values of commands. With `json`, stdout carries only JSON."""

    json: bool = False
    debug: bool = False
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)

    def value(self, data: Json, text: str) -> None:
        """The result of the command: `data` for machines, `text` for people."""
        self.out.write((json.dumps(data, ensure_ascii=False) if self.json else text.rstrip("\n")) + "\n")
        self.out.flush()

    def say(self, text: str) -> None:
        """A message, which is not part of the result."""
        self.err.write(masked(text) + "\n")
        self.err.flush()

    def failure(self, error: HeadwaterError) -> None:
        """The error and its remedy. A stack trace only with --debug."""
        if self.debug:
            self.say("".join(traceback.format_exception(error)))
        if self.json:
            self.value({"error": error_json(error)}, "")
        self.say(error_text(error))

    def surprise(self, error: Exception) -> None:
        """An untranslated exception: one line, and how to get the stack trace."""
        if self.debug:
            self.say("".join(traceback.format_exception(error)))
        message = f"{type(error).__name__}: {masked(str(error))}"
        if self.json:
            self.value({"error": {"code": "bug", "message": message, "hint": _REPORT}}, "")
        self.say(f"error: {message}\n  → {_REPORT}")


def error_json(error: HeadwaterError) -> dict[str, Json]:
    data: dict[str, Json] = {"code": error.code, "message": masked(error.message), "hint": masked(error.hint)}
    if isinstance(error, SettingsError) and error.problems:
        data["problems"] = to_json(error.problems)
    return data


def error_text(error: HeadwaterError) -> str:
    """Settings problems begin with file and line, as compilers' do; other errors with `error:`."""
    return str(error) if isinstance(error, SettingsError) and error.problems else f"error: {error}"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Aligned columns, numbers to the right; nothing is cut or wrapped."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [
        max(display_width(text) for text in (column, *(row[i] for row in cells))) for i, column in enumerate(columns)
    ]
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in rows)
        for i in range(len(columns))
    ]
    lines = [columns, ["─" * width for width in widths], *cells]
    return "\n".join(_line(line, widths, numeric) for line in lines)


def printable(cell: object) -> str:
    """One cell on one line; control characters in a value are escaped."""
    if cell is None:
        return "–"
    text = f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def display_width(text: str) -> int:
    """The width of a text on a terminal; wide letters take two columns."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = []
    for cell, width, right in zip(cells, widths, numeric, strict=True):
        space = " " * (width - display_width(cell))
        padded.append(space + cell if right else cell + space)
    return "  ".join(padded).rstrip()


def mark_json(mark: Mark | None) -> Json:
    """`{"kind": "column", "column", "type", "value"}`, one such per stream, or null."""
    if mark is None:
        return None
    if isinstance(mark, StreamsMark):
        return {"kind": mark.kind, "streams": {name: mark_json(inner) for name, inner in sorted(mark.marks.items())}}
    data = mark.to_json()
    if isinstance(mark, ColumnMark):
        return {name: data[name] for name in ("kind", "column", "type", "value")}
    return {name: value for name, value in data.items() if name != "version"}


def window_json(window: Window | None) -> Json:
    return None if window is None else {"start": mark_json(window.start), "end": mark_json(window.end)}


_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def lag_of(pipeline: Pipeline, out: Output) -> Sequence[Lag] | None:
    """None where the source reports no lag, or does not answer: then the reason goes to stderr."""
    try:
        return pipeline.lag()
    except HeadwaterError as error:
        out.say(f"{pipeline.name}: lag unknown: {error.message}")
        return None


def lag_json(lags: Sequence[Lag] | None) -> Json:
    """`{"messages", "seconds", "partitions": […]}`, or null."""
    if lags is None:
        return None
    return {
        "messages": sum(lag.behind for lag in lags),
        "seconds": _oldest(lags),
        "partitions": [
            {
                "stream": lag.stream,
                "partition": lag.part,
                "position": lag.position,
                "end": lag.end,
                "messages": lag.behind,
                "seconds": None if lag.seconds is None else round(lag.seconds, 3),
            }
            for lag in lags
        ],
    }


def lag_table(lags: Sequence[Lag]) -> str:
    rows = [(lag.stream, lag.part, lag.position, lag.end, lag.behind, _age(lag.seconds)) for lag in lags]
    return table(("stream", "partition", "position", "end", "behind", "oldest unread"), rows)


def lag_line(lags: Sequence[Lag] | None) -> str:
    """`1,234, oldest 3 s`, for one cell."""
    if lags is None:
        return "–"
    messages = sum(lag.behind for lag in lags)
    return f"{messages:,}, oldest {_age(_oldest(lags))}" if messages else "0"


def _oldest(lags: Sequence[Lag]) -> float | None:
    ages = [lag.seconds for lag in lags if lag.seconds is not None]
    return round(max(ages), 3) if ages else None


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} s"
