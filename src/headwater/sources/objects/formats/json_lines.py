"""Many objects of JSON lines in one buffer, and which of them do not belong there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwater.sources.json.fast import odd_lines

_NEWLINE = ord("\n")


@dataclass(frozen=True)
class JoinedLines:
    """Every object ends with a newline, so that none runs into the next."""

    ended: list[bytes]  # each object
    joined: bytes  # all of them
    lines: np.ndarray  # of each object
    odd: list[int]  # objects with lines that do not begin with `{` and end with `}`

    @property
    def plain(self) -> list[int]:
        """All others."""
        odd = set(self.odd)
        return [number for number in range(len(self.ended)) if number not in odd]


def joined_lines(texts: Sequence[bytes]) -> JoinedLines:
    """Raises nothing: what is in the lines has not been looked at."""
    ended = [text if text[-1:] == b"\n" else text + b"\n" for text in texts]
    joined = b"".join(ended)
    if b"\r" in joined:
        ended = [text.replace(b"\r\n", b"\n") for text in ended]
        joined = b"".join(ended)
    ends = np.cumsum(np.fromiter(map(len, ended), np.int64, len(ended)))
    letters = np.frombuffer(joined, np.uint8)
    newlines = np.flatnonzero(letters == _NEWLINE)
    lines = np.diff(np.searchsorted(newlines, ends), prepend=0)
    odd = np.searchsorted(ends, newlines[odd_lines(letters, newlines)], side="right")
    return JoinedLines(ended, joined, lines, np.unique(odd).tolist())
