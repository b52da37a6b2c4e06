"""A row per line, without its line feed or its carriage return and line feed. What is not UTF-8 is a reject."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import BadRow
from headwater.sources.objects.formats.decoded import Decoded, Part, one_by_one
from headwater.sources.objects.formats.lines import in_chunks, unmarked


class TextObjects:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def decode(self, contents: Sequence[Content]) -> Decoded:
        return self._decoded([unmarked(content[:]) for content in contents])

    def pieces(self, content: Content) -> Iterator[Decoded]:
        return in_chunks(content, self.lines)

    def lines(self, chunk: bytes) -> Decoded:
        """Lines from the midst of an object."""
        return self._decoded([chunk])

    def _decoded(self, texts: Sequence[bytes]) -> Decoded:
        lines = [_lines(text) for text in texts]
        try:
            rows = self._rows(list(chain.from_iterable(lines)))
        except pa.ArrowInvalid:
            return one_by_one(self._closer, texts)
        return Decoded([Part(rows, np.arange(len(lines)), np.array([len(found) for found in lines], np.int64))])

    def _closer(self, content: Content) -> Iterator[Decoded]:
        lines = _lines(content[:])
        bad = [BadRow(0, number, why, line) for number, line in enumerate(lines, start=1) if (why := _fault(line))]
        without = {row.number for row in bad}
        numbers = [number for number in range(1, len(lines) + 1) if number not in without]
        rows = self._rows([lines[number - 1] for number in numbers])
        yield Decoded([Part.of_one(rows, np.array(numbers, np.int64))], bad)

    def _rows(self, lines: list[bytes]) -> pa.RecordBatch:
        """Raises ArrowInvalid where one is not UTF-8."""
        return pa.RecordBatch.from_arrays([pa.array(lines, pa.binary()).cast(pa.string())], schema=self._schema)


def _lines(content: bytes) -> list[bytes]:
    lines = content.replace(b"\r\n", b"\n").split(b"\n") if b"\r\n" in content else content.split(b"\n")
    return lines if lines[-1] else lines[:-1]  # nothing stands behind the last newline


def _fault(line: bytes) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start:,}"
    return ""
