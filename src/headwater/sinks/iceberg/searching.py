"""Finds the rows of a table that have certain keys: which files may hold one, and where in them they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headwater.sinks.iceberg.buckets import Bucket, KeysByBucket
from headwater.sinks.iceberg.keyscan import KeyColumn, ScanUnit, find_rows
from headwater.sinks.iceberg.keyset import KeySet
from headwater.sinks.iceberg.table import PlannedFile
from headwater.sinks.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Positions = npt.NDArray[np.int64]

_UNIT_ROWS = 1 << 20
# Up to here a few threads of the driver are faster than a Spark job with Python workers.
DRIVER_ROWS = 1 << 24

_Unit = tuple[ScanUnit, tuple[Bucket, ...]]


@dataclass(frozen=True)
class Search:
    """What is looked for in which columns."""

    key: tuple[KeyColumn, ...]
    keys: KeySet
    load: Callable[[], KeySet]  # the same in a task; a batch's keys are not sent there, but read from its files
    doing: str

    @cached_property
    def by_bucket(self) -> KeysByBucket:
        return KeysByBucket(self.keys, [column.id for column in self.key])

    def where_they_may_be(self, planned: Sequence[PlannedFile]) -> list[PlannedFile]:
        """Without the files of buckets in which no key is."""
        return [file for file in planned if self.by_bucket.may_be_in(file.buckets)]


def find_in_table(spark: SparkSession, planned: Sequence[PlannedFile], search: Search) -> dict[str, Positions]:
    """Where the keys are: file → positions, of rows that were deleted before too."""
    units = [
        (ScanUnit(file.location, share, shares), file.buckets)
        for file in planned
        for shares in [max(1, file.rows // _UNIT_ROWS)]
        for share in range(shares)
    ]
    if sum(file.rows for file in planned) <= DRIVER_ROWS:
        look = partial(_found, search.key, search.by_bucket)
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as threads:
            found = list(threads.map(look, units))
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


def _found(key: Sequence[KeyColumn], keys: KeysByBucket, unit: _Unit) -> tuple[str, Positions]:
    scan, buckets = unit
    wanted = keys.of(buckets)
    return scan.location, np.empty(0, np.int64) if wanted is None else find_rows(scan, key, wanted)


def _scan(load: Callable[[], KeySet], key: Sequence[KeyColumn], units: Sequence[_Unit]) -> Iterator[bytes]:
    """In a task."""
    keys = KeysByBucket(load(), [column.id for column in key])
    for unit in units:
        location, positions = _found(key, keys, unit)
        name = location.encode()
        yield len(name).to_bytes(4, "big") + name + positions.tobytes()


def _unpacked(result: bytes) -> tuple[str, Positions]:
    end = 4 + int.from_bytes(result[:4], "big")
    return result[4:end].decode(), np.frombuffer(result[end:], dtype=np.int64)
