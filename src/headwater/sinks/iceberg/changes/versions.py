"""Versions of rows as files hold them: what the table has, where each is written, and rows with other ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.changes.positions import Positions
from headwater.changes.versions import NEVER, Intervals
from headwater.sinks.iceberg.changes.batch import Batch
from headwater.sinks.iceberg.changes.seeking import Found
from headwater.sinks.iceberg.changes.shapes import CURRENT, TO_POSITION, VALID_TO
from headwater.sinks.iceberg.keyset import plain

Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Held:
    """Rows of the table with keys of the batch."""

    found: Found
    alive: Bools
    deletes: Bools  # rows that only keep a delete's position
    time: Numbers
    ends: Bools
    until: Positions
    until_time: Numbers

    def only(self, these: Bools) -> Held:
        found = self.found
        kept = Found(found.locations, found.file[these], found.row[these], found.key[these], found.positions[these])
        return Held(
            kept,
            self.alive[these],
            self.deletes[these],
            self.time[these],
            self.ends[these],
            self.until[these],
            self.until_time[these],
        )

    def by_location(self, which: Numbers) -> dict[str, Numbers]:
        """Rows by file."""
        found = self.found
        return {
            found.locations[n]: found.row[which[found.file[which] == n]] for n in np.unique(found.file[which]).tolist()
        }


@dataclass(frozen=True)
class Places:
    """Where the row of every version is written."""

    locations: list[str]
    file: Numbers
    row: Numbers

    @classmethod
    def of(cls, found: Found, batch: Batch, in_table: Bools, at: Numbers, change: Numbers) -> Places:
        mine = np.maximum(change, 0)
        file = np.where(in_table, take(found.file, at), len(found.locations) + take(batch.places.file, mine))
        row = np.where(in_table, take(found.row, at), take(batch.places.row, mine))
        return cls([*found.locations, *batch.locations], file, row)

    def by_location(self, which: Numbers) -> dict[str, Numbers]:
        """Rows by file, in the order of `which` within each."""
        return {self.locations[n]: self.row[which[self.file[which] == n]] for n in np.unique(self.file[which]).tolist()}


def equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Bools:
    """Value by value; NULL is like NULL here."""
    if pa.types.is_nested(one.type):
        return np.array([a == b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], np.bool_)
    same = pc.fill_null(pc.equal(plain(one), plain(other)), fill_value=False)
    return np.asarray(pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other))), np.bool_)


def take(values: Any, at: Numbers) -> Any:
    """The values at these places; where there are none at all, nobody will look at them."""
    return values[at] if len(values) else np.zeros(len(at), values.dtype)


def with_ends(rows: pa.Table, made: Intervals, which: Numbers) -> pa.Table:
    ended = pa.array(made.ends[which])
    unknown = pa.array(made.until_time[which] == NEVER)
    time = pa.array(made.until_time[which]).cast(pa.timestamp("us", "UTC"))
    ends = {
        VALID_TO: pc.if_else(pc.and_not(ended, unknown), time, pa.scalar(None, time.type)),
        TO_POSITION: pc.if_else(ended, made.until[which].to_arrow(), pa.scalar(None, pa.decimal128(38, 0))),
        CURRENT: pc.invert(ended),
    }
    for name, values in ends.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place).with_type(values.type), values)
    return rows


def micros(column: pa.ChunkedArray | pa.Array) -> Numbers:
    array = plain(column)
    return np.asarray(array.cast(pa.int64()).fill_null(NEVER).to_numpy(zero_copy_only=False), np.int64)
