"""The update of a table by one batch: append, replace, or upsert, in one snapshot.

It is planned, and planned again when another writer moved the table's head. An upsert finds old rows by key, marks
them as deleted or leaves them out of rewritten files, and adds the new files.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.model.errors import AmbiguousKey
from headwater.sinks.iceberg.catalog.publish import Stamp
from headwater.sinks.iceberg.catalog.table import DataFile, LakeTable, PlannedFile
from headwater.sinks.iceberg.data_files import (
    ArrowColumn,
    arrow_columns,
    prepare_folder,
    write_position_deletes,
    write_vectors,
)
from headwater.sinks.iceberg.landing_files import LandingFiles, WrittenFile
from headwater.sinks.iceberg.merge.copy_on_write import Copies, CopyOnWrite, Removal, bitmap, plan_removal, table_stats
from headwater.sinks.iceberg.merge.duplicates import BatchColumns, replaced_rows
from headwater.sinks.iceberg.merge.key_lookup import KeySet, Positions, Search, find_in_table, read_keys
from headwater.sinks.iceberg.merge.spark_merge import merge_statement, run_merge
from headwater.sinks.iceberg.merge.strategy import (
    DELETION_VECTORS,
    BatchStats,
    Strategy,
    Tuning,
    UpsertPlan,
    UpsertSetting,
    choose_upsert,
    reconsider,
)
from headwater.sinks.iceberg.partitioning import single_value

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import SparkSession


class RowDelta:
    """Built again whenever the table's head moved; the landing's files stay."""

    def __init__(self, table: LakeTable, files: LandingFiles, copies: CopyOnWrite) -> None:
        self._table, self._files, self._copies = table, files, copies
        self.other_files: tuple[str, ...] = ()  # that the update refers to, beside those of the landing

    def update(
        self, strategy: Strategy, planned: Sequence[PlannedFile], removal: Removal, hidden: Mapping[str, Positions]
    ) -> Any | None:
        """None: nothing changes. `hidden` are rows of the landing's files that readers must not see."""
        added, self.other_files = self._landing_files(), ()
        if not removal.rows and not hidden:
            return self._table.append([file.java for file in added.values()]) if added else None
        copies = self._copies.run(planned, removal) if strategy == "copy-on-write" else Copies()
        added |= self._copied_files(copies)
        update = self._table.on_branch(self._table.java.newRowDelta())
        if self._table.head is not None:
            update.validateFromSnapshot(self._table.head)  # older deletion vectors are known, and replaced here
        for file in added.values():
            update.addRows(file.java)
        replaced = {*removal.files, *copies.replaced}
        deleted = {location: rows for location, rows in removal.deleted.items() if location not in replaced}
        changed = {file.location: file for file in planned if file.location in {*deleted, *replaced}}
        for location, old in changed.items():
            _remove_deletes(update, old)
            if location in replaced:
                update.removeRows(old.java.file())
        deleted |= {file.location: bitmap(np.arange(file.rows)) for file in copies.hidden}
        deleted |= {location: bitmap(rows) for location, rows in hidden.items()}
        files = added | {location: DataFile(old.java.file(), old.java.spec()) for location, old in changed.items()}
        self._mark_deleted(update, files, deleted)
        return update

    def add_hidden(self, branch: str, files: Sequence[WrittenFile], stamp: Stamp) -> None:
        """Add files to a branch with all their rows marked as deleted."""
        written = self._landing_files()
        update = self._table.java.newRowDelta().toBranch(branch)
        for file in files:
            update.addRows(written[file.location].java)
        self._mark_deleted(update, written, {file.location: bitmap(np.arange(file.rows)) for file in files})
        for name, value in stamp.properties().items():
            update.set(name, value)
        update.commit()
        self.other_files = (*self.other_files, *(file.location for file in files))

    def _landing_files(self) -> dict[str, DataFile]:
        files = zip(self._files.locations, self._files.data_files(), strict=True)
        return {location: DataFile(file, self._files.spec) for location, file in files}

    def _copied_files(self, copies: Copies) -> dict[str, DataFile]:
        written = (*copies.visible, *copies.hidden)
        self.other_files = tuple(file.location for file in written)
        if not written:
            return {}
        spec = self._table.java.spec()
        files = self._table.data_files(written, spec)
        return {copy.location: DataFile(file, spec) for copy, file in zip(written, files, strict=True)}

    def _mark_deleted(self, update: Any, files: Mapping[str, DataFile], deleted: Mapping[str, BitMap64]) -> None:
        """One vector per file, all in one Puffin file; without deletion vectors, a file of position deletes per file."""
        if not deleted:
            return
        prepare_folder(self._files.folder)  # a landing that only removes has written nothing yet
        if self._table.format_version >= DELETION_VECTORS:
            target = self._new_file("puffin")
            vectors, size = write_vectors(target, deleted)
            for vector in vectors:
                update.addDeletes(self._table.deletion_vector(vector, target, size, files[vector.data_file]))
            return
        for location, rows in deleted.items():
            target = self._new_file("parquet")
            size = write_position_deletes(target, location, rows)
            update.addDeletes(self._table.position_deletes(len(rows), target, size, files[location]))

    def _new_file(self, ending: str) -> str:
        target = f"{self._files.folder}/{self._files.prefix}-{uuid.uuid4().hex}.{ending}"
        self.other_files = (*self.other_files, target)
        return target


def _remove_deletes(update: Any, old: PlannedFile) -> None:
    """Delete files of this file alone. Older ones of several files stay: the new ones contain what they say."""
    for index, delete in enumerate(old.deletes):
        if delete.get("referenced-data-file") == old.location:
            update.removeDeletes(old.java.deletes().get(index))


@dataclass(frozen=True)
class Target:
    """The table, and the files that were written for it."""

    spark: SparkSession
    table: LakeTable
    files: LandingFiles
    tuning: Tuning


class TableUpdate(ABC):
    """What a sink's mode makes of a batch."""

    def __init__(self, target: Target, *, keeps_hidden: bool = False) -> None:
        self.applied: UpsertPlan | None = None  # the plan actually used; None until `update` ran
        self.removed: int | None = None  # rows of the table; None: not counted
        self.properties: Mapping[str, str] = {}  # of the table, which change with the landing
        self._spark, self._table, self._files = target.spark, target.table, target.files
        self._tuning = target.tuning
        copies = CopyOnWrite(target.spark, target.table, target.files, target.tuning, keeps_hidden=keeps_hidden)
        self._delta = RowDelta(target.table, target.files, copies)
        self._planned: Sequence[PlannedFile] = ()

    @property
    def rows(self) -> int:
        """How many rows the batch leaves in the table."""
        return self._files.rows

    @property
    def other_files(self) -> tuple[str, ...]:
        """Files that the update refers to, beside those of the landing."""
        return self._delta.other_files

    @abstractmethod
    def plan(self) -> UpsertPlan:
        """Choose the strategy, for the table as it is now."""

    @abstractmethod
    def update(self, plan: UpsertPlan) -> Any | None:
        """The Iceberg update for any plan but a `merge`; None: nothing changes."""


class MergesBySpark(ABC):
    """An update that may plan a `merge`: Spark's MERGE statement carries it out, on a branch."""

    @abstractmethod
    def merge_on_branch(self, session: SparkSession, stamp: Stamp, branch: str) -> None: ...


class Append(TableUpdate):
    """Adds every row."""

    def plan(self) -> UpsertPlan:
        return UpsertPlan("append", "")

    def update(self, plan: UpsertPlan) -> Any:  # noqa: ARG002 - the base's form
        return self._table.append(self._files.data_files())


class Replace(TableUpdate):
    """Makes the batch the table."""

    def plan(self) -> UpsertPlan:
        return UpsertPlan("replace", "")

    def update(self, plan: UpsertPlan) -> Any:  # noqa: ARG002 - the base's form
        all_rows = self._table.jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        update = self._table.java.newOverwrite().overwriteByRowFilter(all_rows)
        for file in self._files.data_files():
            update.addFile(file)
        return update


@dataclass(frozen=True)
class MergeRequest:
    """What is to be merged, and how a row is named and ordered."""

    stream: str
    key: tuple[str, ...]
    order: tuple[str, ...]
    unique: bool  # the source promises that no two rows share the key
    upsert: UpsertSetting


class Upsert(TableUpdate, MergesBySpark):
    """Replaces rows by key."""

    def __init__(self, target: Target, request: MergeRequest) -> None:
        super().__init__(target)
        self._request = request

    @property
    def rows(self) -> int:
        return self._files.rows - sum(len(positions) for positions in self._repeated.values())

    @cached_property
    def _repeated(self) -> Mapping[str, Positions]:
        """Rows of the batch that a later row of the batch replaces."""
        request, columns = self._request, self._columns
        if request.unique:
            return {}
        order = tuple(columns[name] for name in request.order if name in columns)
        batch = BatchColumns(self._key, order, tuple(columns.values()))
        return replaced_rows(self._files.locations, batch, request.stream)

    @property
    def _bounds(self) -> Mapping[str, tuple[object, object]]:
        if self._keys is None:
            return {}
        pairs = zip(self._request.key, self._keys.bounds(), strict=True)
        return {column: pair for column, pair in pairs if pair[0] is not None}

    def plan(self) -> UpsertPlan:
        table_rows = self._table.rows
        if table_rows:
            bounds = {c: (single_value(low), single_value(high)) for c, (low, high) in self._bounds.items()}
            planned = self._table.plan_files(bounds)
            self._planned = planned if self._keys is None else self._search.in_buckets(planned)
        else:
            self._planned = ()
        batch = BatchStats(self._files.rows, self._files.rows - self.rows)
        stats = table_stats(self._table.format_version, table_rows, self._planned)
        return choose_upsert(batch, stats, self._request.upsert, self._tuning)

    def update(self, plan: UpsertPlan) -> Any | None:
        removal = self._removal() if plan.strategy != "append" or plan.must_be_new else Removal()
        if plan.must_be_new and removal.rows:
            raise AmbiguousKey(
                f"{self._request.stream}: {self._table.name} already has {removal.rows} of the keys, "
                f"and upsert: append promises that all are new",
                hint="write upsert: auto",
            )
        self.removed = removal.rows
        self.applied = reconsider(plan, removal.rows, removal.remaining, self._request.upsert, self._tuning)
        return self._delta.update(self.applied.strategy, self._planned, removal, self._repeated)

    def merge_on_branch(self, session: SparkSession, stamp: Stamp, branch: str) -> None:
        request = self._request
        statement = partial(
            merge_statement, schema=self._table.schema, key=request.key, order=request.order, bounds=self._bounds
        )
        run_merge(session, self._table, statement, stamp=stamp, branch=branch, files=[self._files.locations])

    @cached_property
    def _keys(self) -> KeySet | None:
        """The batch's keys; None: too many to hold."""
        few = self._files.rows <= self._tuning.max_keys
        return read_keys(self._files.locations, self._key) if few else None

    @cached_property
    def _columns(self) -> Mapping[str, ArrowColumn]:
        return {column.name: column for column in arrow_columns(self._table.schema)}

    @cached_property
    def _key(self) -> tuple[ArrowColumn, ...]:
        return tuple(self._columns[name] for name in self._request.key)

    @cached_property
    def _search(self) -> Search:
        keys = self._keys
        assert keys is not None  # noqa: S101 - the plan keeps larger batches away
        load = partial(read_keys, tuple(self._files.locations), self._key)
        return Search(self._key, keys, load, f"{self._request.stream}: finding keys in {self._table.name}")

    def _removal(self) -> Removal:
        """The rows of the table that the batch replaces."""
        return plan_removal(self._planned, find_in_table(self._spark, self._planned, self._search, self._tuning))
