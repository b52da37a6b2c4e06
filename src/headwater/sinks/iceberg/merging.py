"""Carries out an upsert: old rows are found by key and marked as deleted, new files added, in one snapshot."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headwater.model.errors import AmbiguousKey
from headwater.sinks.iceberg.deletion_vectors import read_vector, write_vectors
from headwater.sinks.iceberg.duplicates import replaced_rows
from headwater.sinks.iceberg.keyscan import KeyColumn, ScanUnit, find_rows, read_keys
from headwater.sinks.iceberg.keyset import KeySet
from headwater.sinks.iceberg.landing_files import LandingFiles
from headwater.sinks.iceberg.partitioning import single_value
from headwater.sinks.iceberg.table import LakeTable, PlannedFile
from headwater.sinks.iceberg.types import arrow_type
from headwater.sinks.iceberg.upsert import MOST_KEYS, BatchStats, Forced, TableStats, UpsertPlan, choose_upsert
from headwater.sinks.tasks import run_tasks

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import SparkSession

Positions = npt.NDArray[np.int64]

_UNIT_ROWS = 1 << 20
# Up to here a few threads of the driver are faster than a Spark job with Python workers.
_DRIVER_ROWS = 1 << 24


@dataclass(frozen=True)
class MergeOrder:
    """What is to be merged, and how a row is named and dated."""

    stream: str
    key: tuple[str, ...]
    order: tuple[str, ...]
    unique: bool  # the source promises that no two rows share the key
    forced: Forced


class Merging:
    """One batch on its way into one table; asked again when the table's head moved."""

    def __init__(self, spark: SparkSession, table: LakeTable, files: LandingFiles, order: MergeOrder) -> None:
        self.order = order
        self.vector_files: list[str] = []
        self._spark, self._table, self._files = spark, table, files
        self._planned: list[PlannedFile] = []

    @cached_property
    def repeated(self) -> Mapping[str, Positions]:
        """Rows of the batch that a later row of the batch replaces."""
        order = self.order
        if order.unique:
            return {}
        return replaced_rows(self._files.locations, order.key, order.order, order.stream)

    @property
    def rows(self) -> int:
        """How many rows the batch leaves in the table."""
        return self._files.rows - sum(len(positions) for positions in self.repeated.values())

    @property
    def bounds(self) -> Mapping[str, tuple[object, object]]:
        if self._keys is None:
            return {}
        pairs = zip(self.order.key, self._keys.bounds(), strict=True)
        return {column: pair for column, pair in pairs if pair[0] is not None}

    def plan(self) -> UpsertPlan:
        """Choose the way, for the table as it is now."""
        table_rows = self._table.rows
        bounds = (
            {c: (single_value(low), single_value(high)) for c, (low, high) in self.bounds.items()} if table_rows else {}
        )
        self._planned = self._table.plan_files(bounds) if table_rows else []
        batch = BatchStats(self._files.rows, self._files.rows - self.rows)
        stats = TableStats(
            self._table.format_version,
            table_rows,
            len(self._planned),
            sum(file.rows for file in self._planned),
            _unreadable(self._planned),
        )
        return choose_upsert(batch, stats, self.order.forced)

    def update(self, plan: UpsertPlan) -> Any:
        """The Iceberg update that carries out an `append` or a `delete-append`."""
        data_files = self._files.data_files()
        hits = self._find() if plan.kind == "delete-append" or plan.must_be_new else {}
        if plan.must_be_new and hits:
            raise AmbiguousKey(
                f"{self.order.stream}: {sum(map(len, hits.values()))} keys are already in {self._table.name}, "
                f"and upsert: append promises that all are new",
                hint="write upsert: auto",
            )
        if not hits and not self.repeated:
            update = self._table.java.newAppend()
            for file in data_files:
                update.appendFile(file)
            return update
        update = self._table.java.newRowDelta()
        if self._table.head is not None:
            update.validateFromSnapshot(self._table.head)  # older deletion vectors are known, and replaced here
        for file in data_files:
            update.addRows(file)
        self._mark_deleted(update, hits, data_files)
        return update

    @cached_property
    def _keys(self) -> KeySet | None:
        """The batch's keys, where they are few enough to be held."""
        return read_keys(self._files.locations, self._key) if self._files.rows <= MOST_KEYS else None

    @cached_property
    def _key(self) -> tuple[KeyColumn, ...]:
        columns = [self._table.schema.column(name) for name in self.order.key]
        return tuple(KeyColumn(c.id, c.name, arrow_type(c.type)) for c in columns if c is not None)

    def _find(self) -> dict[str, Positions]:
        """The rows of the table that the batch replaces: file → positions."""
        units = [
            ScanUnit(file.location, share, shares)
            for file in self._planned
            for shares in [max(1, file.rows // _UNIT_ROWS)]
            for share in range(shares)
        ]
        if sum(file.rows for file in self._planned) <= _DRIVER_ROWS:
            keys = self._keys
            assert keys is not None  # noqa: S101 - the plan keeps larger batches away
            with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as threads:
                found = list(threads.map(lambda unit: (unit.location, find_rows(unit, self._key, keys)), units))
        else:
            cores = self._spark.sparkContext.defaultParallelism
            shares = [units[n :: 2 * cores] for n in range(min(2 * cores, len(units)))]
            work = partial(_scan, tuple(self._files.locations), self._key)
            results = run_tasks(self._spark, work, shares, f"{self.order.stream}: finding keys in {self._table.name}")
            found = [_unpacked(result) for result in results]
        hits: dict[str, list[Positions]] = {}
        for location, positions in found:
            if len(positions):
                hits.setdefault(location, []).append(positions)
        return {location: np.concatenate(parts) for location, parts in hits.items()}

    def _mark_deleted(self, update: Any, hits: Mapping[str, Positions], data_files: Sequence[Any]) -> None:
        """One vector per file: what was deleted from it before, and what is deleted now."""
        planned = {file.location: file for file in self._planned}
        written = dict(zip(self._files.locations, data_files, strict=True))
        gone: dict[str, BitMap64] = {}
        for location, positions in (*hits.items(), *self.repeated.items()):
            gone[location] = _bitmap(positions)
            for place, old in enumerate(planned[location].deletes if location in planned else ()):
                gone[location] |= read_vector(old["file-path"], old["content-offset"], old["content-size-in-bytes"])
                update.removeDeletes(planned[location].java.deletes().get(place))
        target = f"{self._files.folder}/{self._files.prefix}-{uuid.uuid4().hex}.puffin"
        vectors, size = write_vectors(target, gone)
        self.vector_files = [target]
        for vector in vectors:
            file = written[vector.data_file] if vector.data_file in written else planned[vector.data_file].java.file()
            spec = self._files.spec if vector.data_file in written else planned[vector.data_file].java.spec()
            update.addDeletes(self._table.delete_file(vector, target, size, spec, file.partition()))


def _unreadable(planned: Sequence[PlannedFile]) -> str:
    for file in planned:
        if file.format != "parquet":
            return f"the table has files of the format {file.format}"
        if any(delete["file-format"].lower() != "puffin" for delete in file.deletes):
            return "the table has delete files that are no deletion vectors"
    return ""


def _bitmap(positions: Positions) -> BitMap64:
    from pyroaring import BitMap64  # noqa: PLC0415 - only upserts need it

    return BitMap64(positions.tolist())


def _scan(locations: Sequence[str], key: Sequence[KeyColumn], units: Sequence[ScanUnit]) -> Iterator[bytes]:
    """In a task: keys are read from the batch's own files, so that the job itself stays small."""
    keys = read_keys(locations, key)
    for unit in units:
        name = unit.location.encode()
        yield len(name).to_bytes(4, "big") + name + find_rows(unit, key, keys).tobytes()


def _unpacked(result: bytes) -> tuple[str, Positions]:
    end = 4 + int.from_bytes(result[:4], "big")
    return result[4:end].decode(), np.frombuffer(result[end:], dtype=np.int64)
