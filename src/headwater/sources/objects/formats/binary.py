"""A row per object: its content as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import ObjectFailed
from headwater.sources.objects.formats.decoded import Decoded, Part

_MOST = (1 << 31) - 1  # bytes that Arrow has room for in one value


class BinaryObjects:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def decode(self, contents: Sequence[Content]) -> Decoded:
        column = pa.array([bytes(content) for content in contents], pa.binary())
        rows = pa.RecordBatch.from_arrays([column], schema=self._schema)
        return Decoded([Part(rows, np.arange(len(contents)), np.ones(len(contents), np.int64))])

    def pieces(self, content: Content) -> Iterator[Decoded]:
        if len(content) > _MOST:
            raise ObjectFailed(f"{len(content):,} bytes; a value has at most {_MOST:,}")
        yield self.decode([content[:]])
