"""A piece of an object that is too large for one task: row groups of Parquet, or lines that begin in a range of its bytes.

A line belongs to the piece in which it begins, wherever it ends. So the pieces of an object hold each line once, and none
needs to know of the others.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headwater.sources.objects.container import Container, ObjectVersion
from headwater.sources.objects.decoding import Reading
from headwater.sources.objects.formats.decoded import Decoded
from headwater.sources.objects.formats.lines import chunks, unmarked
from headwater.sources.objects.formats.opening import open_lines
from headwater.sources.objects.listed import Listed
from headwater.sources.objects.object_file import ObjectFile

_STEP = 8 << 20
_FURTHER = 64 << 10  # how much is read at first to find the end of a piece's last line

# (url, etag) → (offset, lines before it). A task that needs a number counts on from where its process last did.
_counted: dict[tuple[str, str], tuple[int, int]] = {}


def read_piece(container: Container, listed: Listed, reading: Reading) -> Iterator[Decoded]:
    """Raises ObjectGone, ObjectChanged."""
    if reading.format == "parquet":
        return _row_groups(container, listed, reading)
    return _lines(container, listed, reading)


def _row_groups(container: Container, listed: Listed, reading: Reading) -> Iterator[Decoded]:
    from headwater.sources.objects.formats.parquet import ParquetObject, ParquetObjects  # noqa: PLC0415 - for it alone

    begin, end = listed.piece or (0, 0)
    file = ParquetObject(pa.PythonFile(ObjectFile(container, listed.version), mode="r"))
    return ParquetObjects(reading.content).groups(file, begin, end)


def _lines(container: Container, listed: Listed, reading: Reading) -> Iterator[Decoded]:
    begin, end = listed.piece or (0, listed.version.size)
    decode, before = open_lines(reading), 0
    first, lines = lines_between(container, listed.version, begin, end)
    for chunk in chunks(lines):
        made = decode(chunk if first or before else unmarked(chunk))
        # Rows do not need their numbers, or the object would not have been cut; rejects do, and are few.
        yield made.later(before + _lines_before(container, listed.version, first)) if made.bad else made
        before += chunk.count(b"\n")


def lines_between(container: Container, version: ObjectVersion, begin: int, end: int) -> tuple[int, bytes]:
    """Where the first line begins, and all lines that begin at `begin` or later and before `end`."""
    data = container.fetch_range(version, max(begin - 1, 0), end)
    if begin:
        newline = data.find(b"\n")
        if newline < 0:
            return end, b""
        data = data[newline + 1 :]
        begin += newline
    return begin, data if not data or data.endswith(b"\n") else data + _rest(container, version, end)


def _rest(container: Container, version: ObjectVersion, end: int) -> bytes:
    """What is behind `end` of the line that it cuts through."""
    parts, further = [], _FURTHER
    while end < version.size:
        more = container.fetch_range(version, end, min(end + further, version.size))
        found = more.find(b"\n") + 1
        parts.append(more[:found] if found else more)
        if found:
            break
        end, further = end + len(more), min(further * 2, _STEP)
    return b"".join(parts)


def _lines_before(container: Container, version: ObjectVersion, offset: int) -> int:
    known = (container.url(version.key), version.etag)
    at, lines = _counted.get(known, (0, 0))
    if at > offset:
        at, lines = 0, 0
    while at < offset:
        step = container.fetch_range(version, at, min(at + _STEP, offset))
        lines += step.count(b"\n")
        at += len(step)
    _counted.clear()
    _counted[known] = (at, lines)
    return lines
