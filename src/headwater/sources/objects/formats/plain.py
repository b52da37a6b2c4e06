"""Text: one row per line, without LF or CRLF; lines that are not UTF-8 are rejects. Binary: one row per object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from headwater.sources.objects.content import Content, ObjectFailed
from headwater.sources.objects.formats.base import Decoded, DecodedRows, decode_chunks, strip_bom
from headwater.sources.values import TextValues


class TextObjects:
    def __init__(self, schema: pa.Schema) -> None:
        self._values = TextValues(schema)

    def decode(self, contents: Sequence[Content]) -> Decoded:
        return self._decoded([strip_bom(content[:]) for content in contents])

    def pieces(self, content: Content) -> Iterator[Decoded]:
        return decode_chunks(content, self.lines)

    def lines(self, chunk: bytes) -> Decoded:
        """Lines from the middle of an object."""
        return self._decoded([chunk])

    def _decoded(self, texts: Sequence[bytes]) -> Decoded:
        lines = [_lines(text) for text in texts]
        values = list(chain.from_iterable(lines))
        parsed = self._values.parse(values)
        if parsed.rejected:
            locations = [(owner, number) for owner, some in enumerate(lines) for number in range(1, len(some) + 1)]
            return Decoded().add_parsed(parsed, values, locations)
        counts = np.fromiter(map(len, lines), np.int64, len(lines))
        return Decoded([DecodedRows(parsed.batches[0], np.arange(len(lines)), counts)])


def _lines(content: bytes) -> list[bytes]:
    lines = content.replace(b"\r\n", b"\n").split(b"\n") if b"\r\n" in content else content.split(b"\n")
    return lines if lines[-1] else lines[:-1]  # the last newline ends the last line


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
