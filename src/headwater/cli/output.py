"""Where a command's value goes: data to stdout as text or JSON, talk to stderr."""

from __future__ import annotations

import json
import sys
import traceback
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from headwater.model.errors import HeadwaterError, SettingsError
from headwater.model.marks import Json
from headwater.model.secret import masked

_TRACKER = "this is a bug in Headwater; please report it with the output of the same command and --debug"


@dataclass(frozen=True)
class Output:
    """Renders what commands compute. With `json` stdout carries nothing but JSON."""

    json: bool = False
    debug: bool = False
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)

    def value(self, data: Json, text: str) -> None:
        """The result of the command: `data` for machines, `text` for people."""
        self.out.write((json.dumps(data, ensure_ascii=False) if self.json else text.rstrip("\n")) + "\n")
        self.out.flush()

    def say(self, text: str) -> None:
        """Something on the way; never part of the result."""
        self.err.write(masked(text) + "\n")
        self.err.flush()

    def failure(self, error: HeadwaterError) -> None:
        """What went wrong and what to do. A stack trace only when asked for."""
        if self.debug:
            self.say("".join(traceback.format_exception(error)))
        if self.json:
            self.value({"error": error_json(error)}, "")
        self.say(error_text(error))

    def surprise(self, error: Exception) -> None:
        """An exception that nobody translated: one line, and how to get the rest."""
        if self.debug:
            self.say("".join(traceback.format_exception(error)))
        message = f"{type(error).__name__}: {masked(str(error))}"
        if self.json:
            self.value({"error": {"code": "bug", "message": message, "hint": _TRACKER}}, "")
        self.say(f"error: {message}\n  → {_TRACKER}")


def error_json(error: HeadwaterError) -> dict[str, Json]:
    data: dict[str, Json] = {"code": error.code, "message": masked(error.message), "hint": masked(error.hint)}
    if isinstance(error, SettingsError) and error.problems:
        data["problems"] = [
            {"file": p.file, "line": p.line, "column": p.column, "path": p.path, "message": p.message}
            for p in error.problems
        ]
    return data


def error_text(error: HeadwaterError) -> str:
    """Settings problems begin with their place, as compilers do; everything else with `error:`."""
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
    """One cell on one line; nothing in a value may move the cursor or pass for a line of its own."""
    if cell is None:
        return "–"
    text = f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def display_width(text: str) -> int:
    """The columns of a terminal that a text takes; wide letters take two."""
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
