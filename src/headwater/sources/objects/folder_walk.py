"""The files of a folder in the order of their keys, with no more in memory than the names of one folder per level."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.model.errors import SourceUnreachable
from headwater.sources.objects.columns import texts
from headwater.sources.objects.selection import Selection

if TYPE_CHECKING:
    import pyarrow as pa

_NAMES_AT_ONCE = 32_768  # as Python's texts; the others are compact, in Arrow
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # gone meanwhile, or a link that leads nowhere
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Level:
    """A folder that is being walked."""

    path: str  # ends with /
    key: str  # below the folder that is listed; empty, or ends with /
    identity: tuple[int, int]  # device and inode, to see a link that leads back
    names: Iterator[str]  # in the order of their bytes; a folder's name ends with /


def walk(root: str, selection: Selection, start_after: str) -> Iterator[tuple[str, os.stat_result]]:
    """Key and state of every regular file, links followed, strictly ascending by the key's bytes.

    What vanishes meanwhile is left out. A folder that is itself missing, or may not be looked into, is an error.
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
                    if selection.enters(key) and (key > start_after or start_after.startswith(key)):
                        _descend(levels, key)
                        break
                elif key > start_after:
                    found = os.stat(level.path + name)  # noqa: PTH116 - no Path per file
                    if stat.S_ISREG(found.st_mode):
                        yield key, found
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise _unreadable(error) from error
        else:
            levels.pop()


def _descend(levels: list[_Level], key: str) -> None:
    entered = _enter(levels[0].path + key, key)
    if all(above.identity != entered.identity for above in levels):
        levels.append(entered)


def _enter(path: str, key: str) -> _Level:
    found = os.stat(path)  # noqa: PTH116
    return _Level(path, key, (found.st_dev, found.st_ino), _in_order(_names(path)))


def _names(path: str) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415 - loaded when there is something to list

    chunks, chunk = [], []
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if name.isascii() or _is_text(path, name):
                chunk.append(name + "/" if _is_folder(entry) else name)
            if len(chunk) == _NAMES_AT_ONCE:
                chunks.append(texts(chunk))
                chunk = []
    return pa.concat_arrays([*chunks, texts(chunk)])


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """A link that leads in circles or nowhere is no folder; `is_dir` alone raises for the former."""
    return os.path.isdir(entry) if entry.is_symlink() else entry.is_dir()  # noqa: PTH112 - no Path per file


def _in_order(names: pa.Array) -> Iterator[str]:
    import pyarrow.compute as pc  # noqa: PLC0415

    order = pc.sort_indices(names)  # by bytes; so `a-b` comes before the folder `a/`
    for start in range(0, len(order), _NAMES_AT_ONCE):
        yield from names.take(order.slice(start, _NAMES_AT_ONCE)).to_pylist()


def _is_text(path: str, name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        _log.warning(
            "file left out: its name is not UTF-8, so it can be no key; rename it folder=%s name=%r", path, name
        )
        return False
    return True


def _unreadable(error: OSError) -> SourceUnreachable:
    return SourceUnreachable(
        f"{error.filename}: {error.strerror}", hint="give the account that runs the pipeline the right to read it"
    )
