"""The content of one object, whole: fetched, decompressed, in memory, or in a temporary file where it is large.

Bad compression is found here, before a row of the object exists.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator

import pyarrow as pa

from headwater.sources.objects.container import Container, ObjectChanged, ObjectGone, ObjectRefused, ObjectVersion
from headwater.sources.objects.failures import SHOWN, ObjectFailed, ObjectMoved

Content = bytes | mmap.mmap

IN_MEMORY = 64 << 20  # bytes of one object
_STEP = 8 << 20
_ENDINGS = {".gz": "gzip", ".zst": "zstd"}


def load(container: Container, version: ObjectVersion, compression: str) -> Content:
    """Raises ObjectFailed where there is no content to be had, SourceUnreachable where the store does not answer."""
    kind = compression_of(version.key, compression)
    try:
        stored = _stored(container, version)
    except ObjectGone as gone:
        raise ObjectMoved(f"gone since it was listed ({gone})") from gone
    except ObjectChanged as changed:
        raise ObjectMoved(f"changed since it was listed ({changed})") from changed
    except ObjectRefused as refused:
        raise ObjectFailed(f"not given by the store ({refused})") from refused
    if len(stored) != version.size:
        raise ObjectMoved(f"{len(stored):,} bytes came, {version.size:,} were listed", stored[:SHOWN])
    return _decompressed(stored, kind) if kind and stored else stored


def compression_of(key: str, compression: str) -> str | None:
    """`gzip`, `zstd`, or None."""
    if compression == "auto":
        return _ENDINGS.get(key[key.rfind(".") :].lower())
    return None if compression == "none" else compression


def kept(parts: Iterator[bytes]) -> Content:
    """Their bytes in one piece, however many."""
    held, size = [], 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size > IN_MEMORY:
            return _on_disk(held, parts)
    return held[0] if len(held) == 1 else b"".join(held)


def _on_disk(held: list[bytes], parts: Iterator[bytes]) -> Content:
    # The file has no name, and is gone with the mapping.
    with tempfile.TemporaryFile(prefix="headwater-") as file:
        for part in held:
            file.write(part)
        held.clear()
        for part in parts:
            file.write(part)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _stored(container: Container, version: ObjectVersion) -> Content:
    if version.size <= IN_MEMORY:
        return container.fetch(version)
    steps = range(0, version.size, _STEP)
    return kept(container.fetch_range(version, at, min(at + _STEP, version.size)) for at in steps)


def _decompressed(stored: Content, kind: str) -> Content:
    stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(stored)), kind)
    try:
        return kept(iter(lambda: stream.read(_STEP), b""))
    except OSError as error:
        raise ObjectFailed(f"bad {kind}: {error}", stored[:SHOWN]) from None
