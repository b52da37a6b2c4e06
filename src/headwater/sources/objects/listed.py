"""Objects of a window as they travel to tasks: many of them as one small piece of Arrow.

Every task is sent all splits of a window, so an object must cost next to nothing until its own task unpacks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headwater.sources.objects.container import ObjectVersion

COLUMNS = ("key", "etag", "size", "modified", "tries")


@dataclass(frozen=True)
class Listed:
    """An object, or a piece of one that is too large for a task."""

    version: ObjectVersion
    tries: int = 0  # that failed, of this version
    piece: tuple[int, int] | None = None  # from, up to: bytes of lines, row groups of Parquet


def pack(objects: pa.Table) -> bytes:
    """Bookmarks, or pieces of objects with `begin` and `end`, for `unpack`."""
    stream = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(stream, objects.schema, options=options) as writer:
        writer.write_table(objects.combine_chunks())
    return bytes(stream.getvalue())


def unpack(data: bytes) -> Iterator[Listed]:
    table = pa.ipc.open_stream(data).read_all()
    pieces = (
        zip(*(table[name].to_pylist() for name in ("begin", "end")), strict=True)
        if "begin" in table.schema.names
        else None
    )
    for key, etag, size, modified, tries in zip(*(table[name].to_pylist() for name in COLUMNS), strict=True):
        yield Listed(ObjectVersion(key, etag, size, modified), tries, next(pieces) if pieces else None)
