"""An object as a file that is read here and there, as Parquet is: nothing is fetched that nobody asks for."""

from __future__ import annotations

import io
import os

from headwater.sources.objects.container import Container, ObjectVersion

_LEAST = 64 << 10  # bytes of one request: footers and small columns come in one


class ObjectFile(io.RawIOBase):
    """Raises ObjectGone, ObjectChanged, SourceUnreachable while it is read."""

    def __init__(self, container: Container, version: ObjectVersion) -> None:
        self._container, self._version = container, version
        self._position = 0
        self._begin, self._held = 0, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._version.size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        end = self._version.size if size is None or size < 0 else min(self._position + size, self._version.size)
        if self._position >= end:
            return b""
        if not self._begin <= self._position <= end <= self._begin + len(self._held):
            # Behind the wanted bytes, or before them at the end of the object, where footers are.
            begin = min(self._position, max(self._version.size - _LEAST, 0))
            if end - begin > 2 * _LEAST:
                begin = self._position
            stop = min(max(end, begin + _LEAST), self._version.size)
            self._held, self._begin = self._container.fetch_range(self._version, begin, stop), begin
        found = self._held[self._position - self._begin : end - self._begin]
        self._position = end
        return found
