"""Keys by bucket: of a table that is partitioned by `bucket(N, key)` a file is searched for the keys of its bucket alone.

Bounds cannot leave out a bucket, since keys that are near each other lie in different ones. Runs in tasks, too.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.sinks.iceberg.keyset import KeySet
from headwater.sinks.iceberg.partitioning import partition_values

Numbers = npt.NDArray[np.int64]

_BUCKET = re.compile(r"bucket\[(\d+)\]")


@dataclass(frozen=True)
class Bucket:
    """One value of one bucket field of a file's partition."""

    column: int  # the id of the column
    width: int
    number: int


def buckets_of(spec: Mapping[str, Any], partition: Sequence[Any]) -> tuple[Bucket, ...]:
    """From Iceberg's JSON of a file's spec and partition. A bucket of NULL is none that a key can be in."""
    fields = zip(spec["fields"], partition, strict=True)
    found = [(_BUCKET.fullmatch(field["transform"]), field["source-id"], value) for field, value in fields]
    return tuple(
        Bucket(column, int(width[1]), -1 if number is None else int(number)) for width, column, number in found if width
    )


class KeysByBucket:
    """The keys of a batch, whole and bucket by bucket. Several threads may ask."""

    def __init__(self, keys: KeySet, columns: Sequence[int]) -> None:
        """`columns` are the ids of the key's columns."""
        self._keys, self._columns = keys, list(columns)
        self._made: dict[tuple[Bucket, ...], KeySet | None] = {}
        self._sorted: dict[tuple[int, int], tuple[Numbers, Numbers]] = {}
        self._making = threading.Lock()

    def of(self, buckets: Sequence[Bucket]) -> KeySet | None:
        """The keys that a file of these buckets may hold; None: it holds none."""
        known = tuple(bucket for bucket in buckets if self._tells(bucket))
        with self._making:
            if not known:
                return self._keys.ready()
            if known not in self._made:
                places = self._places(known)
                self._made[known] = self._keys.only(places).ready() if len(places) else None
            return self._made[known]

    def may_be_in(self, buckets: Sequence[Bucket]) -> bool:
        known = [bucket for bucket in buckets if self._tells(bucket)]
        with self._making:
            return not known or len(self._places(known)) > 0

    def _tells(self, bucket: Bucket) -> bool:
        """Nanoseconds are hashed as microseconds by Iceberg: of them nothing is concluded here."""
        if bucket.column not in self._columns:
            return False
        kind = self._keys.columns[self._columns.index(bucket.column)].type
        return not (pa.types.is_timestamp(kind) and kind.unit == "ns")

    def _places(self, buckets: Sequence[Bucket]) -> Numbers:
        first, *others = buckets
        order, numbers = self._in_order(first)
        low, high = np.searchsorted(numbers, [first.number, first.number + 1])
        places = order[low:high]
        for bucket in others:
            order, numbers = self._in_order(bucket)
            low, high = np.searchsorted(numbers, [bucket.number, bucket.number + 1])
            places = np.intersect1d(places, order[low:high], assume_unique=True)
        return places

    def _in_order(self, bucket: Bucket) -> tuple[Numbers, Numbers]:
        """The places of all keys by bucket, and their buckets in that order."""
        if (bucket.column, bucket.width) not in self._sorted:
            values = self._keys.columns[self._columns.index(bucket.column)]
            numbers = partition_values(values, f"bucket[{bucket.width}]").to_numpy().astype(np.int64)
            order = np.argsort(numbers, kind="stable")
            self._sorted[bucket.column, bucket.width] = order, numbers[order]
        return self._sorted[bucket.column, bucket.width]
