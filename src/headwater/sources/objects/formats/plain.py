"""Text: one row per line, without LF or CRLF; lines that are not UTF-8 are rejects. Binary: one row per object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from headwater.sources.objects.content import BadRow, Content, ObjectFailed
from headwater.sources.objects.formats.base import Decoded, DecodedRows, decode_chunks, decode_each, strip_bom


class TextObjects:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def decode(self, contents: Sequence[Content]) -> Decoded:
        return self._decoded([strip_bom(content[:]) for content in contents])

    def pieces(self, content: Content) -> Iterator[Decoded]:
        return decode_chunks(content, self.lines)

    def lines(self, chunk: bytes) -> Decoded:
        """Lines from the middle of an object."""
        return self._decoded([chunk])

    def _decoded(self, texts: Sequence[bytes]) -> Decoded:
        lines = [_lines(text) for text in texts]
        try:
            rows = self._rows(list(chain.from_iterable(lines)))
        except pa.ArrowInvalid:
            return decode_each(self._decode_strictly, texts)
        return Decoded(
            [
                DecodedRows(
                    rows, np.arange(len(lines)), np.array([len(object_lines) for object_lines in lines], np.int64)
                )
            ]
        )

    def _decode_strictly(self, content: Content) -> Iterator[Decoded]:
        lines = _lines(content[:])
        bad = [
            BadRow(0, number, reason, line) for number, line in enumerate(lines, start=1) if (reason := _fault(line))
        ]
        rejected = {row.number for row in bad}
        numbers = [number for number in range(1, len(lines) + 1) if number not in rejected]
        rows = self._rows([lines[number - 1] for number in numbers])
        yield Decoded([DecodedRows.of_one(rows, np.array(numbers, np.int64))], bad)

    def _rows(self, lines: list[bytes]) -> pa.RecordBatch:
        """Raises ArrowInvalid where one is not UTF-8."""
        return pa.RecordBatch.from_arrays([pa.array(lines, pa.binary()).cast(pa.string())], schema=self._schema)


def _lines(content: bytes) -> list[bytes]:
    lines = content.replace(b"\r\n", b"\n").split(b"\n") if b"\r\n" in content else content.split(b"\n")
    return lines if lines[-1] else lines[:-1]  # the last newline ends the last line


def _fault(line: bytes) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start:,}"
    return ""


_MAX_BYTES = (1 << 31) - 1  # Arrow's limit for one value


class BinaryObjects:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def decode(self, contents: Sequence[Content]) -> Decoded:
        column = pa.array([bytes(content) for content in contents], pa.binary())
        rows = pa.RecordBatch.from_arrays([column], schema=self._schema)
        return Decoded([DecodedRows(rows, np.arange(len(contents)), np.ones(len(contents), np.int64))])

    def pieces(self, content: Content) -> Iterator[Decoded]:
        if len(content) > _MAX_BYTES:
            raise ObjectFailed(f"{len(content):,} bytes; a value has at most {_MAX_BYTES:,}")
        yield self.decode([content[:]])
