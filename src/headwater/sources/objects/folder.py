"""A folder on a disk as a container of objects."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from headwater.model.errors import InputError, SourceUnreachable
from headwater.sources.objects.columns import integers, listing_page
from headwater.sources.objects.container import ObjectChanged, ObjectGone, ObjectRefused, ObjectVersion
from headwater.sources.objects.folder_walk import walk
from headwater.sources.objects.selection import Selection

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
_OF_ONE_FILE = (errno.EACCES, errno.EPERM, errno.EIO)  # the others may well be readable
_NO_SEGMENTS = {"", ".", ".."}  # they would lead elsewhere


@dataclass(frozen=True)
class Folder:
    """Keys are paths below the folder. `min_age` is by this machine's clock: a disk has none of its own."""

    path: str  # absolute
    selection: Selection
    page_size: int = 10_000

    @property
    def address(self) -> str:
        return f"file://{self.path.rstrip('/')}/"

    def url(self, key: str) -> str:
        return self.address + key

    def listing(self, start_after: str | None = None) -> Iterator[pa.RecordBatch]:
        self._look_at_the_folder()
        files = walk(self.path.rstrip("/"), self.selection, start_after or "")
        while found := list(islice(files, self.page_size)):
            states = [state for _, state in found]
            page = listing_page(
                [key for key, _ in found],
                [etag(state) for state in states],
                [state.st_size for state in states],
                integers([state.st_mtime_ns // 1000 for state in states]),
            )
            page = self.selection.keep(page, time.time_ns() // 1000)
            if page.num_rows:
                yield page

    def of_any_age(self) -> Folder:
        return replace(self, selection=replace(self.selection, min_age=0))

    def look(self, key: str) -> ObjectVersion | None:
        if not _NO_SEGMENTS.isdisjoint(key.split("/")) or not self.selection.includes(key):
            return None
        try:
            found = os.stat(self._file(key))  # noqa: PTH116 - as the walk does
        except OSError as error:
            if error.errno in _NOT_THERE:
                self._look_at_the_folder()
                return None
            raise self._unreadable(error) from error
        modified = found.st_mtime_ns // 1000
        if not stat.S_ISREG(found.st_mode) or (
            self.selection.min_age and modified > time.time_ns() // 1000 - self.selection.min_age
        ):
            return None
        return ObjectVersion(key, etag(found), found.st_size, modified)

    def fetch(self, version: ObjectVersion) -> bytes:
        return self.fetch_range(version, 0, version.size)

    def fetch_range(self, version: ObjectVersion, start: int, end: int) -> bytes:
        try:
            file = os.open(self._file(version.key), os.O_RDONLY | os.O_CLOEXEC)
            try:
                content = _read(file, start, min(end, version.size))
                found = os.fstat(file)  # afterwards: it may have been written to while we read
            finally:
                os.close(file)
        except OSError as error:
            if error.errno in _NOT_THERE:
                self._look_at_the_folder()
                raise ObjectGone(f"{self.url(version.key)} is no longer there") from error
            if error.errno in _OF_ONE_FILE:
                raise ObjectRefused(f"{self.url(version.key)}: {error.strerror}") from error
            raise self._unreadable(error) from error
        if etag(found) != version.etag:
            raise ObjectChanged(f"{self.url(version.key)} was changed since it was listed")
        return content

    def _file(self, key: str) -> str:
        return f"{self.path}/{key}"

    def _look_at_the_folder(self) -> None:
        """Tell a folder that is not there (a disk that is not mounted) from an empty one."""
        try:
            found = os.stat(self.path)  # noqa: PTH116
        except OSError as error:
            raise SourceUnreachable(
                f"{self.address}: {error.strerror}", hint="make the folder, mount its disk, or correct url"
            ) from error
        if not stat.S_ISDIR(found.st_mode):
            raise InputError(
                f"{self.path} is a file, and url names the folder that is watched",
                hint="write the folder as url, and the file's name as pattern",
            )

    def _unreadable(self, error: OSError) -> SourceUnreachable:
        return SourceUnreachable(
            f"{error.filename}: {error.strerror}", hint="give the account that runs the pipeline the right to read it"
        )


def etag(found: os.stat_result) -> str:
    """Changes when the file is written to (its time, in ns), and when another takes its place (its inode)."""
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"


def _read(file: int, start: int, end: int) -> bytes:
    """One `pread` gives 2 GB at most."""
    parts = []
    while start < end and (part := os.pread(file, end - start, start)):
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
