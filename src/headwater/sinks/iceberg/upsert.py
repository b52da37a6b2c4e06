"""How a batch is merged into a table: a decision from statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.model.errors import InputError

Kind = Literal["append", "delete-append", "copy-on-write", "merge"]
Forced = Literal["auto", "append", "delete-append", "copy-on-write", "merge"]

MOST_KEYS = 5_000_000  # a set of keys that every task can hold
DELETE_FILES, DELETION_VECTORS = 2, 3  # the format versions that have them
# Up to here copying files takes less time than to read ever more of them in the landings to come; see docs/benchmarks.md.
SMALL_ROWS, SMALL_BYTES = 100_000, 8 << 20
# Where so many more rows go from files than stay in them, copying what stays is a small part of a landing's work.
_FEW_STAY = 4


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
    files: int  # those whose bounds and buckets the batch's keys touch
    file_rows: int = 0
    unreadable: str = ""  # why Arrow alone cannot tell which of their rows are alive
    file_bytes: int = 0
    buckets: int = 0  # of the key that they lie in; 0: the table has none


@dataclass(frozen=True)
class UpsertPlan:
    """How, and why.

    `append`: no key can be there yet. `delete-append`: old rows are found by key and marked as deleted, new ones added,
    in one snapshot. `copy-on-write`: the same, but files that lose rows are written anew. `merge`: Spark's MERGE.
    """

    kind: Kind
    why: str
    must_be_new: bool = False  # stop at a key that the table has


def choose_upsert(batch: BatchStats, table: TableStats, forced: Forced) -> UpsertPlan:
    """The cheapest way that is right."""
    if batch.repeated and table.format_version < DELETE_FILES:
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
    if table.buckets:
        reach += f", each of {table.buckets} buckets against its own {batch.named_by}"
    return _cheapest(table, reach) if forced == "auto" else _as_asked(forced, reach)


def _as_asked(kind: Kind, reach: str) -> UpsertPlan:
    if kind == "append":
        return UpsertPlan(kind, f"{reach}; the settings promise new keys", must_be_new=True)
    return UpsertPlan(kind, f"{reach}; the settings ask for it")


def _cheapest(table: TableStats, reach: str) -> UpsertPlan:
    if table.format_version < DELETION_VECTORS:
        return UpsertPlan("copy-on-write", f"{reach}; format version {table.format_version} has no deletion vectors")
    if table.file_rows <= SMALL_ROWS and table.file_bytes <= SMALL_BYTES:
        return UpsertPlan("copy-on-write", f"{reach}; so few are copied as soon as marked")
    return UpsertPlan("delete-append", reach)


def after_the_search(plan: UpsertPlan, going: int, staying: int, forced: Forced) -> UpsertPlan:
    """The same way; or copies, when it shows that of the files that lose rows little is left."""
    if forced != "auto" or plan.kind != "delete-append" or not staying or going < _FEW_STAY * staying:
        return plan
    return UpsertPlan("copy-on-write", f"{plan.why}; {going} rows go from files in which {staying} stay")


def _hindrance(batch: BatchStats, table: TableStats) -> str:
    if table.format_version < DELETE_FILES:
        return f"the table's format version {table.format_version} has no delete files"
    if table.unreadable:
        return table.unreadable
    if batch.rows > MOST_KEYS:
        return f"the batch has more than {MOST_KEYS} {batch.named_by}"
    return ""
