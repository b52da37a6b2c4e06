"""What tries that never published leave behind: files and staging branches, found by their names."""

from __future__ import annotations

import re
from collections.abc import Collection

from headwater.sinks.iceberg.storage import list_files, remove_files
from headwater.sinks.iceberg.table import LakeTable


def folder_of(table: LakeTable, landing: str) -> str:
    """Where the files of one landing lie: spread over 256 folders, so that listing one stays cheap."""
    return f"{table.data_folder}/{landing[:2]}"


def remove_leftovers(table: LakeTable, landing: str, window: str, published: Collection[str]) -> None:
    """Remove the files of other tries at a landing that is published now, and of no others.

    Only called when the landing is behind main's head: from then on no other try at it can publish, so its
    files are of no use to anyone. Files that any snapshot still refers to stay.
    """
    found = set(list_files(folder_of(table, landing), landing)) - set(published)
    if found:
        remove_files(found - _referenced(table, window))


def _referenced(table: LakeTable, window: str) -> set[str]:
    """All files that a snapshot of this window added, on whatever branch it is."""
    io, used = table.java.io(), set()
    for described in table.metadata_json().get("snapshots", []):
        if described.get("summary", {}).get("headwater.window") == window:
            snapshot = table.metadata.snapshot(described["snapshot-id"])
            for files in (snapshot.addedDataFiles(io), snapshot.addedDeleteFiles(io)):
                used |= {str(file.location()) for file in files}
    return used


def stale_branches(table: LakeTable, prefix: str) -> list[str]:
    """Staging branches of this pipeline's tries that crashed."""
    return re.findall(rf"\b{prefix}\w+", str(table.metadata.refs().keySet().toString()))  # one call, however many
