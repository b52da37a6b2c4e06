"""One window of one stream into one table: check, write, check again, publish.

When another writer moves the table's head in between, checking and publishing start again; the files stay.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.model.errors import PublishConflict, SinkUnreachable
from headwater.model.protocols.sink import Attempt
from headwater.sinks.iceberg.catalog.jvm import HeadMoved, reaching
from headwater.sinks.iceberg.catalog.publish import (
    Ancestry,
    OutcomeUnknown,
    PreparedSnapshot,
    Stamp,
    StampedSnapshot,
    check_epoch,
    find_landing,
    prepare_branch,
    prepare_update,
)
from headwater.sinks.iceberg.catalog.table import LakeTable, branch_prefix, landing_id
from headwater.sinks.iceberg.landing_files import remove_leftovers, stale_branches
from headwater.sinks.iceberg.merge.replace_object import check_column
from headwater.sinks.iceberg.merge.spark_merge import merge_session
from headwater.sinks.iceberg.merge.strategy import Tuning, UpsertPlan
from headwater.sinks.iceberg.merge.table_update import MergesBySpark, TableUpdate, Target
from headwater.sinks.iceberg.modes import Mode, PreparedRows, WrittenLanding
from headwater.sinks.iceberg.schema import plan_evolution
from headwater.sinks.rejects import SinkRejects
from headwater.sinks.tasks import RowCounter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_TRIES = 5


class CachedTable:
    """A table and its landings, cached between windows."""

    def __init__(self, spark: SparkSession, table: LakeTable) -> None:
        self.spark, self.table = spark, table
        self._ancestry = Ancestry()

    def refresh(self) -> bool:
        """Read the changes of other writers; False: the table was dropped or created again."""
        from py4j.protocol import Py4JError

        try:
            self.table.refresh()
        except Py4JError:
            return False
        return True

    def landings(self) -> Sequence[StampedSnapshot]:
        return self._ancestry.follow(self.table)

    @cached_property
    def merge_session(self) -> SparkSession:
        return merge_session(self.spark)


class TableLanding:
    """One try of one process at one landing."""

    def __init__(
        self,
        mode: Mode,
        sink_id: str,
        attempt: Attempt,
        *,
        prepared: PreparedRows,
        cached: CachedTable,
        tuning: Tuning,
    ) -> None:
        self._mode, self._id, self._tuning = mode, sink_id, tuning
        self._attempt, self._prepared, self._cached, self._table = attempt, prepared, cached, cached.table
        self._stream = prepared.rows.stream
        self._landing = landing_id(attempt.pipeline, sink_id, self._stream, attempt.window.id)
        self._files = mode.open_files(prepared, self._table, self._landing, attempt.run)
        self._counter = RowCounter(attempt.progress)
        self._prepared_snapshot: PreparedSnapshot | None = None

    def run(self) -> StampedSnapshot:
        """Return when the window is in the history of the branch's head. A failure leaves no files of this try."""
        try:
            snapshot = self._land()
        except OutcomeUnknown as unknown:
            # The files stay: they may be published. The next try finds out.
            raise SinkUnreachable(
                f"{self._table.name}: the catalog failed while the window was published ({unknown.__cause__})",
                hint="the next cycle checks whether it was published, and lands it if not",
            ) from unknown
        except Exception as error:
            if self._prepared_snapshot is None or not self._prepared_snapshot.published:
                self._discard_files(error)
            raise
        with reaching(self._table.name):
            remove_leftovers(self._table, self._landing, self._attempt.window.id, self._files.published)
        self._counter.at_least(snapshot.stamp.rows)  # rows that an earlier try landed were not counted here
        return snapshot

    def _land(self) -> StampedSnapshot:
        """The snapshot of the window, of this try or of an earlier one."""
        for _ in range(_MAX_TRIES):
            try:
                earlier = self._find_landing() or self._write()
                if earlier:
                    self._files.published = ()
                    return earlier
                return self._publish()
            except HeadMoved:
                with reaching(self._table.name):
                    self._table.refresh()
        raise PublishConflict(
            f"{self._table.name}: other writers published {_MAX_TRIES} times during this landing",
            hint="the next cycle tries again; run compaction and other writers less often, or one after another",
        )

    def _find_landing(self) -> StampedSnapshot | None:
        """The window's own landing, if it is in the table (G2). Raises if this run may no longer land it (G4).

        The head that is read here is the one that publishing compares with.
        """
        with reaching(self._table.name):
            landings = self._cached.landings()
        landing = find_landing(landings, self._attempt, self._id, self._stream)
        if landing is None:
            check_epoch(landings, self._attempt, self._table.name)
        return landing

    def _write(self) -> StampedSnapshot | None:
        """Write the files, once; then check again, since writing may have taken long."""
        if self._files.written is not None:
            return None
        prepared = self._prepared
        with reaching(self._table.name):
            if prepared.object_column:
                check_column(self._table, prepared.object_column)
            if prepared.defines_columns:
                self._evolve()
            self._files.write(self._cached.spark, prepared.rows, prepared.required, self._counter, self._rejects)
            null_keys = self._files.null_keys()
            if null_keys:  # G12
                counts = ", ".join(f"{column!r} is NULL in {count} rows" for column, count in null_keys)
                raise self._mode.null_key_error(self._stream, counts)
            self._table.refresh()
        return self._find_landing()

    def _evolve(self) -> None:
        evolution = plan_evolution(self._table.schema, self._prepared.columns)
        evolution.check(str(self._table.name))
        if evolution.changes:
            self._attempt.clear_to_publish()
            self._table.evolve(evolution)

    @cached_property
    def _rejects(self) -> SinkRejects:
        return SinkRejects.of(self._id, self._prepared.rows, self._attempt, self._prepared.object_column)

    @cached_property
    def _update(self) -> TableUpdate:
        target = Target(self._cached.spark, self._table, self._files, self._tuning)
        return self._mode.table_update(WrittenLanding(self._prepared, target, self._attempt, self._rejects))

    def _publish(self) -> StampedSnapshot:
        base = self._table.head
        if self._files.is_empty and not self._mode.lands_empty:
            return self._unchanged(base)
        with reaching(self._table.name):
            branches = stale_branches(self._table, self._branch_prefix)
            plan = self._update.plan()
        if plan.strategy == "merge" and isinstance(self._update, MergesBySpark):
            return self._publish_spark_merge(self._update, base, branches, plan)
        with reaching(self._table.name):
            update = self._update.update(plan)
        if update is None:
            return self._unchanged(base)
        applied, properties = self._update.applied or plan, self._update.properties
        stamp = self._stamp(self._update.rows, applied.strategy, applied.why, self._update.removed)
        self._files.published = (*self._files.locations, *self._update.other_files)
        prepared = prepare_update(self._table, base, update, stamp=stamp, drop=branches, properties=properties)
        return self._publish_snapshot(prepared, stamp)

    def _publish_spark_merge(
        self, update: MergesBySpark, base: int | None, branches: Sequence[str], plan: UpsertPlan
    ) -> StampedSnapshot:
        branch = f"{self._branch_prefix}{uuid.uuid4().hex[:12]}"
        stamp = self._stamp(self._update.rows, plan.strategy, plan.why)
        update.merge_on_branch(self._cached.merge_session, stamp, branch)
        with reaching(self._table.name):
            self._table.refresh()
            stamp = Stamp.read(self._table.summary_of(branch)) or stamp  # Spark has counted the rows that it removed
        self._files.published = self._update.other_files  # Spark wrote data files of its own, from most of ours
        properties = self._update.properties
        prepared = prepare_branch(self._table, base, branch, drop=branches, properties=properties)
        return self._publish_snapshot(prepared, stamp)

    def _publish_snapshot(self, prepared: PreparedSnapshot, stamp: Stamp) -> StampedSnapshot:
        self._prepared_snapshot = prepared
        return StampedSnapshot(prepared.publish(self._attempt), stamp)

    @property
    def _branch_prefix(self) -> str:
        return branch_prefix(self._attempt.pipeline, self._id, self._stream)

    def _unchanged(self, base: int | None) -> StampedSnapshot:
        """A window that changes nothing needs no proof in the table."""
        removed = 0 if self._prepared.object_column else None
        with self._attempt.publishing():  # no rows, but the window's rejects land
            return StampedSnapshot(base or 0, self._stamp(0, self._mode.name, "no rows", removed))

    def _stamp(self, rows: int, upsert: str, why: str, removed: int | None = None) -> Stamp:
        files = len(self._files.written or ())
        return Stamp.of(
            self._attempt, self._id, self._stream, rows=rows, files=files, upsert=upsert, why=why, removed=removed
        )

    def _discard_files(self, error: Exception) -> None:
        try:
            self._files.discard()
        except OSError as second:
            error.add_note(
                f"could not remove the files of this try ({second}); the next landing of the window removes them"
            )
