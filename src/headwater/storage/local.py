"""A folder on a local disk as an object container: listed in key order, with bounded memory."""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from headwater.model.errors import InputError, SourceUnreachable
from headwater.storage.container import (
    ObjectChanged,
    ObjectGone,
    ObjectRefused,
    ObjectVersion,
    Selection,
    integers,
    listing_page,
    texts,
)

if TYPE_CHECKING:
    import pyarrow as pa

_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
_ONE_FILE = (errno.EACCES, errno.EPERM, errno.EIO)  # other files may be readable
_NOT_A_NAME = {"", ".", ".."}  # not names of files


@dataclass(frozen=True)
class Folder:
    """Keys are paths below the folder. `min_age` uses this machine's clock."""

    path: str  # absolute
    selection: Selection
    page_size: int = 10_000

    @property
    def address(self) -> str:
        return f"file://{self.path.rstrip('/')}/"

    def url(self, key: str) -> str:
        return self.address + key

    def listing(self, start_after: str | None = None) -> Iterator[pa.RecordBatch]:
        self._check_folder()
        files = walk(self.path.rstrip("/"), self.selection, start_after or "")
        while entries := list(islice(files, self.page_size)):
            states = [state for _, state in entries]
            page = listing_page(
                [key for key, _ in entries],
                [etag(state) for state in states],
                [state.st_size for state in states],
                integers([state.st_mtime_ns // 1000 for state in states]),
            )
            page = self.selection.select(page, time.time_ns() // 1000)
            if page.num_rows:
                yield page

    def without_min_age(self) -> Folder:
        return replace(self, selection=replace(self.selection, min_age=0))

    def stat(self, key: str) -> ObjectVersion | None:
        if not _NOT_A_NAME.isdisjoint(key.split("/")) or not self.selection.includes(key):
            return None
        try:
            state = os.stat(self._file(key))  # noqa: PTH116 - as the walk does
        except OSError as error:
            if error.errno in _MISSING:
                self._check_folder()
                return None
            raise _unreadable(error) from error
        modified = state.st_mtime_ns // 1000
        if not stat.S_ISREG(state.st_mode) or (
            self.selection.min_age and modified > time.time_ns() // 1000 - self.selection.min_age
        ):
            return None
        return ObjectVersion(key, etag(state), state.st_size, modified)

    def fetch(self, version: ObjectVersion) -> bytes:
        return self.fetch_range(version, 0, version.size)

    def fetch_range(self, version: ObjectVersion, start: int, end: int) -> bytes:
        try:
            file = os.open(self._file(version.key), os.O_RDONLY | os.O_CLOEXEC)
            try:
                content = _read(file, start, min(end, version.size))
                state = os.fstat(file)  # afterwards: the file may change while we read
            finally:
                os.close(file)
        except OSError as error:
            if error.errno in _MISSING:
                self._check_folder()
                raise ObjectGone(f"{self.url(version.key)} was deleted") from error
            if error.errno in _ONE_FILE:
                raise ObjectRefused(f"{self.url(version.key)}: {error.strerror}") from error
            raise _unreadable(error) from error
        if etag(state) != version.etag:
            raise ObjectChanged(f"{self.url(version.key)} has changed since it was listed")
        return content

    def _file(self, key: str) -> str:
        return f"{self.path}/{key}"

    def _check_folder(self) -> None:
        """Raise for a missing folder (a disk that is not mounted): it must not look like an empty one."""
        try:
            state = os.stat(self.path)  # noqa: PTH116
        except OSError as error:
            raise SourceUnreachable(
                f"{self.address}: {error.strerror}", hint="create the folder, mount its disk, or correct url"
            ) from error
        if not stat.S_ISDIR(state.st_mode):
            raise InputError(
                f"{self.path} is a file; url must name a folder",
                hint="set url to the folder and pattern to the file's name",
            )


def etag(state: os.stat_result) -> str:
    """Changes when the file is written to (time in ns), and when it is replaced (inode)."""
    return f"{state.st_ino:x}-{state.st_mtime_ns:x}-{state.st_size:x}"


def _read(file: int, start: int, end: int) -> bytes:
    """One `pread` returns at most 2 GB."""
    chunks = []
    while start < end and (chunk := os.pread(file, end - start, start)):
        chunks.append(chunk)
        start += len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


_SORTED_NAMES = 32_768  # as Python strings at a time; Arrow holds all others more compactly
_NO_ENTRY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # deleted meanwhile, or a dangling link
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Level:
    """A folder on the way from the root to the current file."""

    path: str  # ends with /
    key: str  # below the folder that is listed; empty, or ends with /
    identity: tuple[int, int]  # device and inode, to detect links in circles
    names: Iterator[str]  # in the order of their bytes; a folder's name ends with /


def walk(root: str, selection: Selection, start_after: str) -> Iterator[tuple[str, os.stat_result]]:
    """Key and state of every regular file, links followed, strictly ascending by the key's bytes.

    Files that are deleted meanwhile are skipped. A folder that is missing or unreadable is an error.
    """
    try:
        levels = [_enter(root + "/", "")]
    except OSError as error:
        raise _unreadable(error) from error
    while levels:
        level = levels[-1]
        for name in level.names:
            key = level.key + name
            try:
                if name[-1] == "/":
                    if selection.may_contain(key) and (key > start_after or start_after.startswith(key)):
                        _descend(levels, key)
                        break
                elif key > start_after:
                    state = os.stat(level.path + name)  # noqa: PTH116 - no Path per file
                    if stat.S_ISREG(state.st_mode):
                        yield key, state
            except OSError as error:
                if error.errno not in _NO_ENTRY:
                    raise _unreadable(error) from error
        else:
            levels.pop()


def _descend(levels: list[_Level], key: str) -> None:
    level = _enter(levels[0].path + key, key)
    if all(ancestor.identity != level.identity for ancestor in levels):
        levels.append(level)


def _enter(path: str, key: str) -> _Level:
    state = os.stat(path)  # noqa: PTH116
    return _Level(path, key, (state.st_dev, state.st_ino), _sorted_names(_names(path)))


def _names(path: str) -> pa.Array:
    import pyarrow as pa

    chunks, chunk = [], []
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if name.isascii() or _is_utf8(path, name):
                chunk.append(name + "/" if _is_folder(entry) else name)
            if len(chunk) == _SORTED_NAMES:
                chunks.append(texts(chunk))
                chunk = []
    return pa.concat_arrays([*chunks, texts(chunk)])


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """False for links in circles, for which `is_dir` alone raises."""
    return os.path.isdir(entry) if entry.is_symlink() else entry.is_dir()  # noqa: PTH112 - no Path per file


def _sorted_names(names: pa.Array) -> Iterator[str]:
    import pyarrow.compute as pc

    order = pc.sort_indices(names)  # by bytes; so `a-b` comes before the folder `a/`
    for start in range(0, len(order), _SORTED_NAMES):
        yield from names.take(order.slice(start, _SORTED_NAMES)).to_pylist()


def _is_utf8(path: str, name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        _log.warning("file skipped: its name is not UTF-8; rename it folder=%s name=%r", path, name)
        return False
    return True


def _unreadable(error: OSError) -> SourceUnreachable:
    return SourceUnreachable(
        f"{error.filename}: {error.strerror}", hint="grant read permission to the account that runs the pipeline"
    )
