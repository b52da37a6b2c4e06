"""A window's objects cut into splits: small ones together, large ones in pieces where their format allows.

| cut | into |
| --- | --- |
| JSON lines, events, text, not compressed | ranges of bytes; not where `metadata` asks for row numbers: counting lines would read all before |
| Parquet, not compressed | row groups |
| CSV | nothing: a line break may stand in quotes, and nobody knows without reading from the beginning |
| JSON documents, Avro, binary, gzip, zstd | nothing |

An object that is cut has been seen as it was listed just before: what fails as a whole fails here, before any of its
pieces gives a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from headwater.config.objects_source import ObjectsSource
from headwater.model.ledger import BOOKMARK_COLUMNS
from headwater.model.rows import Split
from headwater.sources.objects.container import Container, ObjectChanged, ObjectGone, ObjectRefused, ObjectVersion
from headwater.sources.objects.contents import compression_of
from headwater.sources.objects.decoding import Reading
from headwater.sources.objects.failures import ObjectFailed
from headwater.sources.objects.formats.json_elements import is_lines
from headwater.sources.objects.formats.lines import unmarked
from headwater.sources.objects.listed import COLUMNS, pack
from headwater.sources.objects.object_file import ObjectFile
from headwater.sources.objects.own_columns import own_columns
from headwater.sources.objects.splits import ObjectsSplit

_SCHEMA = pa.schema([(name, BOOKMARK_COLUMNS[name]) for name in COLUMNS])
_OPENING = 4_096  # bytes that an object costs beside its own: to find it and to open it
_LEAST = 8 << 20  # bytes that are worth a task
_HEAD = 1 << 20  # bytes that a look at an object's beginning takes
_SMALL = 8 << 20  # bytes of a split up to which its rows are estimated: only small windows want to know
_BYTES_PER_ROW = {"json": 50, "csv": 25, "text": 25, "avro": 20, "parquet": 4, "debezium": 400}
_EXPANDS = 10  # what compressed text grows by


def cut(
    pages: Iterator[pa.Table], settings: ObjectsSource, container: Container, reading: Reading, cores: int
) -> tuple[Split, ...]:
    """The splits of a window, whose bookmarks in state `read` are these, by key; for all cores, so that they end together."""
    found = [page.select(list(COLUMNS)).cast(_SCHEMA) for page in pages]
    objects = pa.concat_tables(found).combine_chunks() if found else _SCHEMA.empty_table()
    sizes = objects["size"].to_numpy()
    work = int(sizes.sum()) + _OPENING * len(sizes)
    reading = replace(reading, split_bytes=_split_bytes(work, settings, cores))
    large = np.flatnonzero(sizes > reading.split_bytes)
    pieces = {int(place): _pieces(objects.slice(place, 1), container, reading) for place in large}
    whole = objects.take(np.setdiff1d(np.arange(len(objects)), [place for place, cut in pieces.items() if cut]))
    splits = [_split(part, container, reading) for part in together(whole, reading.split_bytes, cores)]
    return (*splits, *(split for found in pieces.values() for split in found))


def _split_bytes(size: int, settings: ObjectsSource, cores: int) -> int:
    """A window that one or two tasks could read is cut smaller, so that every core has a part of it."""
    return min(settings.split_bytes, max(-(-size // cores), _LEAST))


def together(objects: pa.Table, split_bytes: int, cores: int) -> list[pa.Table]:
    """Runs of objects, in their order, of about equal work."""
    work = np.cumsum(objects["size"].to_numpy() + _OPENING)
    if not len(work):
        return []
    wanted = -(-int(work[-1]) // split_bytes)
    if wanted > 1:
        wanted = min(-(-wanted // cores) * cores, len(work))
    # An object belongs to the split in which its middle lies.
    middles = work - (objects["size"].to_numpy() + _OPENING) / 2
    numbers = (middles * wanted / work[-1]).astype(np.int64)
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(work)]
    return [objects.slice(begin, end - begin) for begin, end in pairwise(edges)]


def _split(objects: pa.Table, container: Container, reading: Reading) -> ObjectsSplit:
    size = int(np.sum(objects["size"].to_numpy()))
    return ObjectsSplit(pack(objects), len(objects), size, _estimate(objects, size, reading), reading, container)


def _estimate(objects: pa.Table, size: int, reading: Reading) -> int | None:
    """About how many rows, for windows that are too small for a Spark job; None: unknown, and not small."""
    if size > _SMALL:
        return None
    if reading.format == "binary":
        return len(objects)
    compressed = any(compression_of(key, reading.compression) for key in objects["key"].to_pylist())
    per_row = _BYTES_PER_ROW[reading.format]
    return size * (_EXPANDS if compressed else 1) // per_row + len(objects)


def _pieces(one: pa.Table, container: Container, reading: Reading) -> Sequence[ObjectsSplit]:
    """The splits of one large object; none: it stays whole."""
    row = one.to_pylist()[0]
    version = ObjectVersion(row["key"], row["etag"], row["size"], row["modified"])
    if compression_of(version.key, reading.compression):
        return []
    try:
        if reading.format == "parquet":
            groups = _row_groups(version, container, reading)
            return [_piece(one, piece, rows, container, reading) for piece, rows in groups]
        if not _has_lines(version, container, reading):
            return []
    except (ObjectGone, ObjectChanged, ObjectRefused, ObjectFailed):
        return []  # its own task says so
    count = -(-version.size // reading.split_bytes)
    edges = [version.size * number // count for number in range(count + 1)]
    return [_piece(one, piece, None, container, reading) for piece in pairwise(edges)]


def _piece(
    one: pa.Table, piece: tuple[int, int], rows: int | None, container: Container, reading: Reading
) -> ObjectsSplit:
    for name, edge in zip(("begin", "end"), piece, strict=True):
        one = one.append_column(name, pa.array([edge], pa.int64()))
    return ObjectsSplit(pack(one), 1, reading.split_bytes, rows, reading, container)


def _row_groups(version: ObjectVersion, container: Container, reading: Reading) -> list[tuple[tuple[int, int], int]]:
    """Runs of row groups with their rows; none where all would be one. Raises ObjectFailed, where its columns do not fit."""
    from headwater.sources.objects.formats.conform import Conforming  # noqa: PLC0415 - for Parquet alone
    from headwater.sources.objects.formats.parquet import ParquetObject  # noqa: PLC0415

    file = ParquetObject(pa.PythonFile(ObjectFile(container, version), mode="r"))
    Conforming(reading.content).check(own_columns(file.schema))
    edges, size = [0], 0
    for group in range(file.groups):
        size += file.size(group)
        if size >= reading.split_bytes or group == file.groups - 1:
            edges.append(group + 1)
            size = 0
    counts = [sum(file.place(group)[1] for group in range(begin, end)) for begin, end in pairwise(edges)]
    return list(zip(pairwise(edges), counts, strict=True)) if len(counts) > 1 else []


def _has_lines(version: ObjectVersion, container: Container, reading: Reading) -> bool:
    """Whether it can be cut between lines."""
    if reading.format not in ("json", "text", "debezium") or reading.json_as == "document":
        return False
    if any(name == "row" for name, _ in reading.metadata):
        return False
    head = container.fetch_range(version, 0, min(_HEAD, version.size))
    return reading.format == "text" or reading.json_as == "lines" or is_lines(unmarked(head))
