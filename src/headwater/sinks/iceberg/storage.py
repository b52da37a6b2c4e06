"""Where a table's files are: locations as Iceberg writes them, as file systems that Arrow can use."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow.fs as pafs

_LOCAL = re.compile(r"(?:file:(?://)?)?(?P<path>/.*)", re.DOTALL)


def resolve(location: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a location and the path in it. Runs in tasks too."""
    local = _LOCAL.fullmatch(location)
    if local:  # Iceberg writes `file:/a b`, unescaped, which is no URI
        return pafs.LocalFileSystem(), local["path"]
    filesystem, path = pafs.FileSystem.from_uri(location)
    return filesystem, path


def prepare_folder(location: str) -> None:
    """Make the folder of a file, where a file system has folders."""
    filesystem, path = resolve(location)
    if isinstance(filesystem, pafs.LocalFileSystem):
        filesystem.create_dir(path, recursive=True)


def list_files(folder: str, prefix: str) -> list[str]:
    """The locations of a folder's files whose name begins with `prefix`."""
    filesystem, path = resolve(folder)
    found = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    return [f"{folder}/{info.base_name}" for info in found if info.is_file and info.base_name.startswith(prefix)]


def remove_files(locations: Iterable[str]) -> None:
    """Remove files; one that is not there any more is fine."""
    for location in locations:
        filesystem, path = resolve(location)
        if filesystem.get_file_info(path).type != pafs.FileType.NotFound:
            filesystem.delete_file(path)


def read_bytes(location: str, offset: int, length: int) -> bytes:
    filesystem, path = resolve(location)
    with filesystem.open_input_file(path) as file:
        return bytes(file.read_at(length, offset))


def write_bytes(location: str, content: bytes) -> None:
    filesystem, path = resolve(location)
    with filesystem.open_output_stream(path) as file:
        file.write(content)
