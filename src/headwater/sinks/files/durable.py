"""Files and folders of a local disk that survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path


def durable_file(path: Path, content: bytes) -> None:
    """Write a new file; its name is durable once `sync_folder` has seen its folder."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def durable_folder(folder: Path) -> None:
    """Create it with its parents."""
    if folder.is_dir():
        return
    durable_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
