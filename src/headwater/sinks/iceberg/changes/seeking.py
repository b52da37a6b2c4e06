"""Rows of the table that have certain keys, dead or alive, with their positions in the source's log.

Rows that a later change replaced, and keys of rows that were deleted, stay in data files until those are rewritten.
A change that comes late meets them there, and is known to be late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.changes.keys import KeyNumbers
from headwater.changes.positions import Positions, joined
from headwater.sinks.iceberg.changes.gathering import take_rows
from headwater.sinks.iceberg.keyscan import KeyColumn
from headwater.sinks.iceberg.keyset import KeySet, plain
from headwater.sinks.iceberg.partitioning import single_value
from headwater.sinks.iceberg.searching import Search, find_in_table
from headwater.sinks.iceberg.table import LakeTable, PlannedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Found:
    """Rows of data files."""

    locations: list[str]
    file: Numbers  # which of the locations
    row: Numbers
    key: Numbers  # the number of its key
    positions: Positions


class Seeker:
    """Looks for keys in one table."""

    def __init__(
        self, spark: SparkSession, table: LakeTable, key: tuple[KeyColumn, ...], position: KeyColumn, stream: str
    ) -> None:
        self._spark, self._table, self._key, self._position, self._stream = spark, table, key, position, stream

    def planned(self, keys: Sequence[pa.Array]) -> list[PlannedFile]:
        """The files that may hold one of the keys, with the bounds of their positions."""
        if not self._table.rows or not len(keys[0]):
            return []
        within = {name: (single_value(low), single_value(high)) for name, (low, high) in self.bounds(keys).items()}
        planned = self._table.plan_files(within, known_of=self._position.name)
        return self._search(keys).where_they_may_be(planned)

    def bounds(self, keys: Sequence[pa.Array]) -> dict[str, tuple[object, object]]:
        """The least and the greatest value of each column of the key that has an order."""
        pairs = zip(self._key, KeySet(keys).bounds(), strict=True)
        return {column.name: pair for column, pair in pairs if pair[0] is not None}

    def every_file(self) -> list[PlannedFile]:
        return self._table.plan_files({}, known_of=self._position.name) if self._table.rows else []

    def rows(self, planned: Sequence[PlannedFile], keys: Sequence[pa.Array]) -> dict[str, Numbers]:
        """Per file, the rows that have one of the keys."""
        return find_in_table(self._spark, planned, self._search(keys))

    def _search(self, keys: Sequence[pa.Array]) -> Search:
        doing = f"{self._stream}: finding keys in {self._table.name}"
        return Search(self._key, KeySet(keys), partial(KeySet, list(keys)), doing)

    def positions(self, hits: dict[str, Numbers], numbers: KeyNumbers) -> Found:
        """What these rows are: whose, and since when."""
        locations = list(hits)
        columns = (*self._key, self._position)
        tables = [take_rows(location, columns, hits[location]) for location in locations]
        keys = [numbers.find([plain(table.column(n)) for n in range(len(self._key))]) for table in tables]
        none = np.empty(0, np.int64)
        return Found(
            locations,
            np.repeat(np.arange(len(locations)), [len(hits[location]) for location in locations]),
            np.concatenate([none, *(hits[location] for location in locations)]),
            np.concatenate([none, *keys]),
            joined([Positions.of(table.column(len(self._key))) for table in tables]),
        )

    def last_position(self, file: PlannedFile) -> int | None:
        """Of all rows of the file; None: nobody knows."""
        high = file.bounds.get(self._position.id, (None, None))[1]
        return None if high is None else int.from_bytes(high, "big", signed=True)
