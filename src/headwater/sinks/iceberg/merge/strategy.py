"""How a batch is merged into a table: a decision from statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.model.errors import InputError

Strategy = Literal["append", "replace", "delete-append", "copy-on-write", "merge"]
UpsertSetting = Literal["auto", "append", "delete-append", "copy-on-write", "merge"]

DELETE_FILES, DELETION_VECTORS = 2, 3  # the format versions that have them


@dataclass(frozen=True)
class Tuning:
    """Sizes at which the sink changes its strategy; see docs/benchmarks.md."""

    max_keys: int = 5_000_000  # of a batch: every task holds them all
    # Up to here copying files takes less time than reading ever more of them in later landings.
    small_rows: int = 100_000
    small_bytes: int = 8 << 20
    # Where so many times more rows leave files than remain in them, copying the remaining ones is little work.
    removed_per_remaining: int = 4
    driver_rows: int = 1 << 24  # up to here threads of the driver are faster than a Spark job with Python workers
    unit_rows: int = 1 << 20  # that one task searches or copies
    small_file_bytes: int = 4 << 20  # smaller files are joined when others are copied


DEFAULT_TUNING = Tuning()


@dataclass(frozen=True)
class BatchStats:
    """The rows that are to be merged."""

    rows: int  # or objects, whose earlier rows are replaced
    repeated: int = 0  # rows that a later row with the same key in the batch replaces
    unit: str = "keys"  # what is looked up in the table


@dataclass(frozen=True)
class TableStats:
    """What the table's metadata says of the files that may hold keys of the batch."""

    format_version: int
    rows: int
    files: int  # those whose bounds and buckets the batch's keys touch
    file_rows: int = 0
    unreadable: str = ""  # why Arrow alone cannot tell which of their rows are live
    file_bytes: int = 0
    buckets: int = 0  # of the key that the files belong to; 0: the table is not bucketed


@dataclass(frozen=True)
class UpsertPlan:
    """The strategy, and why.

    `append`: no key can be in the table yet. `delete-append`: old rows are found by key and marked as deleted, new ones
    added, in one snapshot. `copy-on-write`: the same, but files that lose rows are rewritten. `merge`: Spark's MERGE.
    `replace`: the batch becomes the table.
    """

    strategy: Strategy
    why: str
    must_be_new: bool = False  # stop at a key that the table has


def choose_upsert(
    batch: BatchStats, table: TableStats, setting: UpsertSetting, tuning: Tuning = DEFAULT_TUNING
) -> UpsertPlan:
    """The cheapest strategy that is correct."""
    if batch.repeated and table.format_version < DELETE_FILES:
        return UpsertPlan("merge", f"the batch repeats keys and the table's format version is {table.format_version}")
    if table.rows == 0 or table.files == 0:
        outside = f"the batch's {batch.unit} lie outside the bounds of every file"
        return UpsertPlan("append", outside if table.rows else "the table is empty")
    if setting == "merge":
        return UpsertPlan("merge", "set by upsert: merge")
    obstacle = _obstacle(batch, table, tuning)
    if obstacle:
        if setting != "auto":
            raise InputError(f"upsert: {setting} is not possible: {obstacle}", hint="write upsert: auto")
        return UpsertPlan("merge", obstacle)
    sizes = f"{batch.rows} {batch.unit} against {table.file_rows} rows in {table.files} files"
    if table.buckets:
        sizes += f", each of {table.buckets} buckets against its own {batch.unit}"
    if setting == "auto":
        return _cheapest(table, sizes, tuning)
    return UpsertPlan(setting, f"{sizes}; set by upsert: {setting}", must_be_new=setting == "append")


def _cheapest(table: TableStats, sizes: str, tuning: Tuning) -> UpsertPlan:
    if table.format_version < DELETION_VECTORS:
        return UpsertPlan("copy-on-write", f"{sizes}; format version {table.format_version} has no deletion vectors")
    if table.file_rows <= tuning.small_rows and table.file_bytes <= tuning.small_bytes:
        return UpsertPlan("copy-on-write", f"{sizes}; so few rows are copied as fast as marked")
    return UpsertPlan("delete-append", sizes)


def reconsider(
    plan: UpsertPlan, removed: int, remaining: int, setting: UpsertSetting, tuning: Tuning = DEFAULT_TUNING
) -> UpsertPlan:
    """The same plan; or copy-on-write, when the lookup shows that few rows remain in the files that lose some."""
    few_remain = remaining and removed >= tuning.removed_per_remaining * remaining
    if setting != "auto" or plan.strategy != "delete-append" or not few_remain:
        return plan
    return UpsertPlan("copy-on-write", f"{plan.why}; {removed} rows leave files in which {remaining} remain")


def _obstacle(batch: BatchStats, table: TableStats, tuning: Tuning) -> str:
    if table.format_version < DELETE_FILES:
        return f"the table's format version {table.format_version} has no delete files"
    if table.unreadable:
        return table.unreadable
    if batch.rows > tuning.max_keys:
        return f"the batch has more than {tuning.max_keys} {batch.unit}"
    return ""
