"""A pipeline's history in a file: one JSON line per entry, only ever appended.

How much of the file counts is written in the pipeline's state file, which is replaced in one step. So what
lies beyond that length is the rest of a write that a crash cut off, and is overwritten by the next; what is
missing or wrong before it is damage.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from headwater.model.errors import StoreDamaged
from headwater.model.progress import HistoryEntry

_BLOCK = 64 * 1024


def append_entry(path: Path, length: int, version: int, entry: HistoryEntry) -> int:
    """Write the entry at `length` and make it durable; return the length that counts once the state says so."""
    line = _line(version, entry)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        if os.fstat(descriptor).st_size < length:
            raise StoreDamaged(f"{path.name} has fewer than the {length} bytes that were written to it")
        file.seek(length)
        file.truncate()
        file.write(line)
        file.flush()
        os.fsync(descriptor)
    return length + len(line)


def newest_entries(path: Path, length: int, limit: int) -> list[HistoryEntry]:
    """The last `limit` entries among the first `length` bytes, newest first."""
    if length == 0 or limit <= 0:
        return []
    lines = _last_lines(path, length, limit)
    return [_entry(line) for line in reversed(lines)]


def _line(version: int, entry: HistoryEntry) -> bytes:
    text = json.dumps({"version": version, "entry": entry.to_json()}, sort_keys=True)
    return f"{_digest(text.encode())} {text}\n".encode()


def _entry(line: bytes) -> HistoryEntry:
    digest, _, text = line.partition(b" ")
    if digest.decode("ascii", "replace") != _digest(text):
        raise StoreDamaged("a line of the history does not match its checksum")
    return HistoryEntry.from_json(json.loads(text)["entry"])


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _last_lines(path: Path, length: int, limit: int) -> list[bytes]:
    size = _BLOCK
    with path.open("rb") as file:
        while True:
            start = max(0, length - size)
            file.seek(start)
            data = file.read(length - start)
            if len(data) < length - start or not data.endswith(b"\n"):
                raise StoreDamaged(f"{path.name} does not hold the {length} bytes that were written to it")
            # The first piece may be the end of a longer line, unless it is the start of the file.
            lines = data.split(b"\n")[:-1]
            whole = lines if start == 0 else lines[1:]
            if start == 0 or len(whole) >= limit:
                return whole[-limit:]
            size *= 4
