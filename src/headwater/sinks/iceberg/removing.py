"""Rows of a table that a landing takes away, in the snapshot that adds its own.

An upsert takes away the rows whose keys come again; an object that is read again, the rows that it brought before.
A file of which nothing is left goes whole.
"""

from __future__ import annotations

import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headwater.sinks.iceberg.deletion_vectors import read_vector
from headwater.sinks.iceberg.position_deletes import read_position_deletes
from headwater.sinks.iceberg.searching import Positions
from headwater.sinks.iceberg.table import PlannedFile
from headwater.sinks.iceberg.upsert import TableStats

if TYPE_CHECKING:
    from pyroaring import BitMap64


@dataclass(frozen=True)
class Removal:
    """What goes from the files of the table's head."""

    rows: int = 0  # that were alive
    gone: Mapping[str, BitMap64] = field(default_factory=dict)  # file → all that is gone from it then
    files: frozenset[str] = frozenset()  # of which nothing is left
    staying: int = 0  # rows of files that lose some


def removal_of(
    planned: Sequence[PlannedFile], hits: Mapping[str, Positions], drop: frozenset[str] | None = None
) -> Removal:
    """What taking away these rows comes to, beside what was deleted before.

    Of the files of which nothing is left only those in `drop` go, if that is said: others are still looked into.
    """
    rows, remains, files, staying = 0, {}, set(), 0
    for file in planned:
        if file.location not in hits:
            continue
        gone = bitmap(hits[file.location])
        before = deleted_rows(file)
        gone |= before
        rows += len(gone) - len(before)
        if len(gone) == file.rows and (drop is None or file.location in drop):
            files.add(file.location)
        elif len(gone) > len(before):
            remains[file.location] = gone
            staying += file.rows - len(gone)
    return Removal(rows, remains, frozenset(files), staying)


def deleted_rows(file: PlannedFile) -> BitMap64:
    """Rows of a file that nobody sees any more."""
    gone = bitmap(np.empty(0, dtype=np.int64))
    for old in file.deletes:
        if old["file-format"].lower() == "puffin":
            gone |= read_vector(old["file-path"], old["content-offset"], old["content-size-in-bytes"])
        else:
            gone |= bitmap(read_position_deletes(old["file-path"], file.location))
    return gone


def bitmap(positions: Positions) -> BitMap64:
    from pyroaring import BitMap64  # noqa: PLC0415 - only these landings need it

    return BitMap64(array.array("Q", positions.tobytes()))


def stats_of(format_version: int, rows: int, planned: Sequence[PlannedFile]) -> TableStats:
    """What the choice of a way depends on: the table, and those of its files that may hold what is looked for."""
    return TableStats(
        format_version,
        rows,
        len(planned),
        sum(file.rows for file in planned),
        unreadable(planned),
        sum(file.size for file in planned),
        len({file.buckets for file in planned if file.buckets}),
    )


def unreadable(planned: Sequence[PlannedFile]) -> str:
    """Why Arrow alone cannot tell which rows are there; empty: it can."""
    for file in planned:
        if file.format != "parquet":
            return f"the table has files of the format {file.format}"
        for delete in file.deletes:
            kind, written = delete["content"], delete["file-format"].lower()
            if kind != "position-deletes" or written not in {"puffin", "parquet"}:
                return f"the table has {kind.replace('-', ' ')} of the format {written}, which only Spark reads here"
    return ""
