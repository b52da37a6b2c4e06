"""Arrow arrays of Python's values for an idle poll: `pa.array` and `pa.scalar` load pandas, which takes half a second."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def texts(values: Sequence[str]) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415 - loaded when there is something to list

    builder = pa.lib.StringBuilder()
    builder.append_values(values)
    return builder.finish()


def integers(values: Iterable[int]) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415

    numbers = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def integer(value: int) -> pa.Scalar:
    return integers([value])[0]


def listing_page(keys: Sequence[str], etags: Sequence[str], sizes: Iterable[int], modified: pa.Array) -> pa.RecordBatch:
    """A page as `LISTING_COLUMNS` says."""
    import pyarrow as pa  # noqa: PLC0415

    columns = {"key": texts(keys), "etag": texts(etags), "size": integers(sizes), "modified": modified}
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
