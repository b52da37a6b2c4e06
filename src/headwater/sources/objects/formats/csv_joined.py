"""Many small objects of CSV in one, where that is safe: the same first line, and a record on every line.

To open a parser costs more than to parse ten kilobytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwater.config.objects_source import CsvSettings
from headwater.sources.objects.contents import Content
from headwater.sources.objects.formats.lines import unmarked


@dataclass(frozen=True)
class JoinedCsv:
    """Objects under one header."""

    content: bytes
    owners: np.ndarray  # which objects they are
    ends: np.ndarray  # how many rows there are up to the end of each
    first: int  # the number of an object's first row

    def places(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of rows by their numbers in all: the object of each, and its number there."""
        rows = numbers - self.first
        places = np.searchsorted(self.ends, rows, side="right")
        begins = np.concatenate(([0], self.ends))[places]
        return self.owners[places], rows - begins + self.first


def join(contents: Sequence[Content], settings: CsvSettings) -> tuple[list[JoinedCsv], list[int]]:
    """Objects put together, and the numbers of those that stay alone."""
    alike: dict[bytes, list[tuple[int, bytes]]] = {}
    alone = []
    for number, content in enumerate(contents):
        text = _one_record_a_line(content, settings)
        if text is None:
            alone.append(number)
            continue
        first = text[: text.find(b"\n")]
        # Without a header it is the number of columns that must be the same.
        key = first if settings.header else b"%d" % first.count(settings.delimiter.encode())
        alike.setdefault(key, []).append((number, text))
    alone += [group[0][0] for group in alike.values() if len(group) == 1]
    return [_joined(group, settings) for group in alike.values() if len(group) > 1], sorted(alone)


def _one_record_a_line(content: Content, settings: CsvSettings) -> bytes | None:
    """The object with a newline behind each record, or None where that is not certain."""
    text = unmarked(content[:])
    if settings.quote.encode() in text or (settings.escape and settings.escape.encode() in text):
        return None
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    if not text or b"\r" in text or text[:1] == b"\n" or b"\n\n" in text:
        return None
    return text if text[-1:] == b"\n" else text + b"\n"


def _joined(group: list[tuple[int, bytes]], settings: CsvSettings) -> JoinedCsv:
    header = len(group[0][1][: group[0][1].find(b"\n") + 1]) if settings.header else 0
    bodies = [text[header:] for _, text in group]
    counts = np.fromiter((body.count(b"\n") for body in bodies), np.int64, len(bodies))
    owners = np.array([number for number, _ in group])
    content = b"".join([group[0][1][:header], *bodies])
    return JoinedCsv(content, owners, np.cumsum(counts), 2 if settings.header else 1)
