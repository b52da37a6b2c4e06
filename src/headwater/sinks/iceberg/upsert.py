"""How a batch is merged into a table: a decision from statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.model.errors import InputError

Kind = Literal["append", "delete-append", "merge"]
Forced = Literal["auto", "append", "delete-append", "merge"]

MOST_KEYS = 5_000_000  # a set of keys that every task can hold
DELETION_VECTORS = 3  # the format version that has them


@dataclass(frozen=True)
class BatchStats:
    """What is known of the rows that are to be merged."""

    rows: int  # or objects, whose earlier rows are replaced
    repeated: int = 0  # rows that a later row with the same key in the batch replaces
    named_by: str = "keys"  # what is looked for in the table


@dataclass(frozen=True)
class TableStats:
    """What the table's metadata says of the files that may hold keys of the batch."""

    format_version: int
    rows: int
    files: int  # those whose bounds the batch's keys touch
    file_rows: int = 0
    unreadable: str = ""  # why Arrow alone cannot tell which of their rows are alive


@dataclass(frozen=True)
class UpsertPlan:
    """How, and why.

    `append`: no key can be there yet. `delete-append`: old rows are found by key and marked as deleted,
    new ones added, in one snapshot. `merge`: Spark's MERGE.
    """

    kind: Kind
    why: str
    must_be_new: bool = False  # stop at a key that the table has


def choose_upsert(batch: BatchStats, table: TableStats, forced: Forced) -> UpsertPlan:
    """The cheapest way that is right."""
    if batch.repeated and table.format_version < DELETION_VECTORS:
        return UpsertPlan("merge", f"the batch repeats keys and the table's format version is {table.format_version}")
    if table.rows == 0 or table.files == 0:
        reason = (
            "the table is empty"
            if table.rows == 0
            else f"the batch's {batch.named_by} lie outside the bounds of every file"
        )
        return UpsertPlan("append", reason)
    if forced == "merge":
        return UpsertPlan("merge", "the settings ask for it")
    hindrance = _hindrance(batch, table)
    if hindrance:
        if forced != "auto":
            raise InputError(f"upsert: {forced} cannot be done: {hindrance}", hint="write upsert: auto")
        return UpsertPlan("merge", hindrance)
    reach = f"{batch.rows} {batch.named_by} against {table.file_rows} rows in {table.files} files"
    if forced == "append":
        return UpsertPlan("append", f"{reach}; the settings promise new keys", must_be_new=True)
    return UpsertPlan("delete-append", reach)


def _hindrance(batch: BatchStats, table: TableStats) -> str:
    if table.format_version < DELETION_VECTORS:
        return f"the table's format version {table.format_version} has no deletion vectors"
    if table.unreadable:
        return table.unreadable
    if batch.rows > MOST_KEYS:
        return f"the batch has more than {MOST_KEYS} {batch.named_by}"
    return ""
