"""Rows with what is known of their objects beside them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headwater.sources.objects.container import Container
from headwater.sources.objects.decoding import Reading
from headwater.sources.objects.formats.decoded import Part
from headwater.sources.objects.listed import Listed


def with_metadata(reading: Reading, container: Container, objects: Sequence[Listed], part: Part) -> pa.RecordBatch:
    """In the schema of the stream."""
    owners = [objects[owner].version for owner in part.owners.tolist()] if reading.metadata else []
    columns = [part.rows.column(place) for place in range(len(reading.content))]
    for name, _ in reading.metadata:
        match name:
            case "url":
                columns.append(_repeated([container.url(one.key) for one in owners], part.counts))
            case "etag":
                columns.append(_repeated([one.etag for one in owners], part.counts))
            case "modified":
                moments = np.repeat(np.array([one.modified for one in owners], np.int64), part.counts)
                columns.append(pa.array(moments).cast(pa.timestamp("us", "UTC")))
            case "row":
                columns.append(pa.array(part.row_numbers(), pa.int64()))
    return pa.RecordBatch.from_arrays(columns, schema=reading.schema)


def _repeated(texts: Sequence[str], counts: np.ndarray) -> pa.Array:
    """Each as often as its object has rows; the bytes are laid out as Arrow wants them, not value by value."""
    encoded = [text.encode() for text in texts]
    sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ends = np.cumsum(np.repeat(sizes, counts))
    if len(ends) and ends[-1] > np.iinfo(np.int32).max:
        return pa.array(texts, pa.string()).take(pa.array(np.repeat(np.arange(len(texts)), counts)))
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    data = b"".join([text * count for text, count in zip(encoded, counts.tolist(), strict=True)])
    return pa.Array.from_buffers(pa.string(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
