"""Rows with what is known of their objects beside them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headwater.sources.objects.columns import texts
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


def _repeated(values: Sequence[str], counts: np.ndarray) -> pa.Array:
    """Each as often as its object has rows."""
    numbers = np.repeat(np.arange(len(values)), counts)
    return texts(values).take(pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)]))
