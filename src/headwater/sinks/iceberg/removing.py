"""Rows of a table that a landing takes away, in the snapshot that adds its own.

An upsert takes away the rows whose keys come again; an object that is read again, the rows that it brought before.
They are found by what their key columns hold and marked in deletion vectors. A file of which nothing is left goes whole.
"""

from __future__ import annotations

import array
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headwater.sinks.iceberg.deletion_vectors import read_vector, write_vectors
from headwater.sinks.iceberg.keyscan import KeyColumn, ScanUnit, find_rows
from headwater.sinks.iceberg.keyset import KeySet
from headwater.sinks.iceberg.landing_files import LandingFiles
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.storage import prepare_folder
from headwater.sinks.iceberg.table import LakeTable, PlannedFile
from headwater.sinks.iceberg.upsert import TableStats
from headwater.sinks.iceberg.writing import WrittenFile
from headwater.sinks.tasks import run_tasks

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import SparkSession

Positions = npt.NDArray[np.int64]

_UNIT_ROWS = 1 << 20
# Up to here a few threads of the driver are faster than a Spark job with Python workers.
_DRIVER_ROWS = 1 << 24


@dataclass(frozen=True)
class Search:
    """What is looked for in which columns."""

    key: tuple[KeyColumn, ...]
    keys: KeySet
    load: Callable[[], KeySet]  # the same in a task; a batch's keys are not sent there, but read from its files
    doing: str


@dataclass(frozen=True)
class Removal:
    """What goes from the files of the table's head."""

    rows: int = 0  # that were alive
    vectors: Mapping[str, BitMap64] = field(default_factory=dict)  # file → all that is gone from it then
    files: frozenset[str] = frozenset()  # of which nothing is left


def find_in_table(spark: SparkSession, planned: Sequence[PlannedFile], search: Search) -> dict[str, Positions]:
    """Where the keys are: file → positions, of rows that were deleted before too."""
    units = [
        ScanUnit(file.location, share, shares)
        for file in planned
        for shares in [max(1, file.rows // _UNIT_ROWS)]
        for share in range(shares)
    ]
    if sum(file.rows for file in planned) <= _DRIVER_ROWS:
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as threads:
            found = list(threads.map(lambda unit: (unit.location, find_rows(unit, search.key, search.keys)), units))
    else:
        cores = spark.sparkContext.defaultParallelism
        shares = [units[n :: 2 * cores] for n in range(min(2 * cores, len(units)))]
        found = [
            _unpacked(result)
            for result in run_tasks(spark, partial(_scan, search.load, search.key), shares, search.doing)
        ]
    hits: dict[str, list[Positions]] = {}
    for location, positions in found:
        if len(positions):
            hits.setdefault(location, []).append(positions)
    return {location: np.concatenate(parts) for location, parts in hits.items()}


def removal_of(
    planned: Sequence[PlannedFile], hits: Mapping[str, Positions], drop: frozenset[str] | None = None
) -> Removal:
    """What taking away these rows comes to, beside what was deleted before.

    Of the files of which nothing is left only those in `drop` go, if that is said: others are still looked into.
    """
    rows, vectors, files = 0, {}, set()
    for file in planned:
        if file.location not in hits:
            continue
        gone = _bitmap(hits[file.location])
        before = deleted_rows(file)
        gone |= before
        rows += len(gone) - len(before)
        if len(gone) == file.rows and (drop is None or file.location in drop):
            files.add(file.location)
        elif len(gone) > len(before):
            vectors[file.location] = gone
    return Removal(rows, vectors, frozenset(files))


class Delta:
    """One Iceberg update that adds a landing's files and takes rows away."""

    def __init__(self, table: LakeTable, files: LandingFiles) -> None:
        self._table, self._files = table, files
        self.vector_files: tuple[str, ...] = ()

    def update(self, planned: Sequence[PlannedFile], removal: Removal, repeated: Mapping[str, Positions]) -> Any | None:
        """None: there is nothing to do. `repeated` are rows of the landing's own files that nobody shall see."""
        data_files, self.vector_files = self._files.data_files(), ()
        if not removal.rows and not repeated:
            return self._table.append(data_files) if data_files else None
        update = self._table.here(self._table.java.newRowDelta())
        if self._table.head is not None:
            update.validateFromSnapshot(self._table.head)  # older deletion vectors are known, and replaced here
        for file in data_files:
            update.addRows(file)
        changed = {file.location: file for file in planned if file.location in {*removal.vectors, *removal.files}}
        for location, old in changed.items():
            for place in range(len(old.deletes)):
                update.removeDeletes(old.java.deletes().get(place))
            if location in removal.files:
                update.removeRows(old.java.file())
        self._mark_deleted(update, changed, {**removal.vectors, **{f: _bitmap(p) for f, p in repeated.items()}})
        return update

    def keep_unseen(self, branch: str, files: Sequence[WrittenFile], stamp: Stamp) -> None:
        """Add files to a branch of which no row is ever seen."""
        own = {
            file.location: data for file, data in zip(self._files.written or (), self._files.data_files(), strict=True)
        }
        update = self._table.java.newRowDelta().toBranch(branch)
        for file in files:
            update.addRows(own[file.location])
        self._mark_deleted(update, {}, {file.location: _bitmap(np.arange(file.rows)) for file in files})
        for name, value in stamp.properties().items():
            update.set(name, value)
        update.commit()
        self.vector_files = (*self.vector_files, *(file.location for file in files))

    def _mark_deleted(self, update: Any, changed: Mapping[str, PlannedFile], gone: Mapping[str, BitMap64]) -> None:
        """One vector per file, all in one Puffin file."""
        if not gone:
            return
        own = dict(zip(self._files.locations, self._files.data_files(), strict=True))
        target = f"{self._files.folder}/{self._files.prefix}-{uuid.uuid4().hex}.puffin"
        prepare_folder(self._files.folder)  # a landing that only removes has written nothing yet
        vectors, size = write_vectors(target, gone)
        self.vector_files = (target,)
        for vector in vectors:
            old = changed.get(vector.data_file)
            file, spec = (old.java.file(), old.java.spec()) if old else (own[vector.data_file], self._files.spec)
            update.addDeletes(self._table.delete_file(vector, target, size, spec, file.partition()))


def stats_of(format_version: int, rows: int, planned: Sequence[PlannedFile]) -> TableStats:
    """What the choice of a way depends on: the table, and those of its files that may hold what is looked for."""
    return TableStats(format_version, rows, len(planned), sum(file.rows for file in planned), _unreadable(planned))


def _unreadable(planned: Sequence[PlannedFile]) -> str:
    """Why Arrow alone cannot tell which rows are there; empty: it can."""
    for file in planned:
        if file.format != "parquet":
            return f"the table has files of the format {file.format}"
        if any(delete["file-format"].lower() != "puffin" for delete in file.deletes):
            return "the table has delete files that are no deletion vectors"
    return ""


def deleted_rows(file: PlannedFile) -> BitMap64:
    gone = _bitmap(np.empty(0, dtype=np.int64))
    for old in file.deletes:
        gone |= read_vector(old["file-path"], old["content-offset"], old["content-size-in-bytes"])
    return gone


def _bitmap(positions: Positions) -> BitMap64:
    from pyroaring import BitMap64  # noqa: PLC0415 - only these landings need it

    return BitMap64(array.array("Q", positions.tobytes()))


def _scan(load: Callable[[], KeySet], key: Sequence[KeyColumn], units: Sequence[ScanUnit]) -> Iterator[bytes]:
    """In a task."""
    keys = load()
    for unit in units:
        name = unit.location.encode()
        yield len(name).to_bytes(4, "big") + name + find_rows(unit, key, keys).tobytes()


def _unpacked(result: bytes) -> tuple[str, Positions]:
    end = 4 + int.from_bytes(result[:4], "big")
    return result[4:end].decode(), np.frombuffer(result[end:], dtype=np.int64)
