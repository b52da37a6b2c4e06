"""One window of one stream into one table: look, write, look again, publish.

Looking and publishing go round again when another writer moved the table's head in between; the files stay.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwater.config.sinks import IcebergSink as IcebergSettings
from headwater.model.changes import CopiedRows
from headwater.model.errors import PublishConflict, SinkUnreachable
from headwater.model.rows import Rows
from headwater.model.sink import Attempt
from headwater.sinks.iceberg.ancestry import Ancestry, Stamped, already_landed, check_epoch
from headwater.sinks.iceberg.changes.current_state import CurrentState
from headwater.sinks.iceberg.changes.history import History
from headwater.sinks.iceberg.changes.shapes import ShapedChanges
from headwater.sinks.iceberg.changes.table_of_changes import ChangesOrder, TableOfChanges
from headwater.sinks.iceberg.changes.writing import ChangeFiles
from headwater.sinks.iceberg.evolution import plan_evolution
from headwater.sinks.iceberg.java_errors import HeadMoved, reaching
from headwater.sinks.iceberg.landing_files import LandingFiles
from headwater.sinks.iceberg.leftovers import remove_leftovers, stale_branches
from headwater.sinks.iceberg.merging import MergeOrder, Merging
from headwater.sinks.iceberg.naming import branch_prefix, landing_id
from headwater.sinks.iceberg.publish import OutcomeUnknown, publish_branch, publish_update
from headwater.sinks.iceberg.replacing import (
    ReplaceOrder,
    Replacing,
    brings_no_row,
    check_column,
    earlier_parts,
)
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.table import LakeTable
from headwater.sinks.iceberg.upsert import UpsertPlan
from headwater.sinks.setting_aside import RowsAside
from headwater.sinks.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Upsert = Merging | Replacing | TableOfChanges

_TRIES = 5


class KnownTable:
    """A table and what has been read of its history, kept between landings."""

    def __init__(self, spark: SparkSession, table: LakeTable) -> None:
        self.spark, self.table = spark, table
        self._ancestry = Ancestry()
        self._own_session: SparkSession | None = None

    def refreshed(self) -> bool:
        """Look at what others did; False when the table is no longer the one we knew."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 - needs pyspark

        try:
            self.table.refresh()
        except Py4JError:
            return False  # dropped, or made anew: to be looked up by its name
        return True

    def landings(self) -> Sequence[Stamped]:
        return self._ancestry.follow(self.table)

    def own_session(self) -> SparkSession:
        """A session for statements that need settings: those of the shared one belong to everybody."""
        if self._own_session is None:
            self._own_session = self.spark.newSession()
        return self._own_session


class OneLanding:
    """One try of one process at one landing."""

    def __init__(
        self,
        settings: IcebergSettings,
        label: str,
        attempt: Attempt,
        rows: Rows,
        *,
        key: tuple[str, ...],
        part: str,
        known: KnownTable,
    ) -> None:
        self._settings, self._label, self._attempt, self._rows = settings, label, attempt, rows
        self._key, self._part, self._known, self._table = key, part, known, known.table
        self._landing = landing_id(attempt.pipeline, label, rows.stream, attempt.window.id)
        files = ChangeFiles if isinstance(rows, ShapedChanges) else LandingFiles
        self._files = files(self._table, self._landing, attempt.run)
        self._tally = Tally(attempt.progress)
        self._upsert: Upsert | None = None

    def run(self) -> Stamped:
        """Return when the window is behind main's head. Nothing of ours is left when it fails."""
        try:
            done, published = self._until_published()
        except OutcomeUnknown as unknown:
            # The files stay: they may be published. The next try finds out.
            raise SinkUnreachable(
                f"{self._table.name}: the catalog failed while the window was published ({unknown.__cause__})",
                hint="the next cycle looks whether it was published, and lands it if not",
            ) from unknown
        except Exception as error:
            self._discard_because_of(error)
            raise
        if published:
            self._attempt.faults.reach("land.published")
        with reaching(self._table.name):
            remove_leftovers(self._table, self._landing, self._attempt.window.id, self._files.published)
        self._tally.at_least(done.stamp.rows)  # rows that an earlier try landed were not counted here
        return done

    def _until_published(self) -> tuple[Stamped, bool]:
        for _ in range(_TRIES):
            try:
                found = self._look() or self._write()
                if found:
                    self._files.published = ()
                    return found, False
                return self._publish(), True
            except HeadMoved:
                with reaching(self._table.name):
                    self._table.refresh()
        raise PublishConflict(
            f"{self._table.name}: other writers published {_TRIES} times while we tried",
            hint="the next cycle tries again; run compaction and other writers less often, or one after another",
        )

    def _look(self) -> Stamped | None:
        """Whether the window is there already (G2), and whether we still may land it (G4).

        The head that was looked at is the one that publishing compares with.
        """
        with reaching(self._table.name):
            landings = self._known.landings()
        found = already_landed(landings, self._attempt, self._label, self._rows.stream)
        if found is None:
            check_epoch(landings, self._attempt, self._table.name)
        return found

    def _write(self) -> Stamped | None:
        """Write the files, once; then look again, since that may have taken long."""
        if self._files.written is not None:
            return None
        with reaching(self._table.name):
            if self._part:
                check_column(self._table, self._part)
            if not (self._part and brings_no_row(self._rows)):  # objects that are gone do not say what the columns are
                self._evolve()
            key = (self._part,) if self._part else self._key if self._upserts else ()
            self._files.write(self._known.spark, self._rows, key, self._tally, self._aside)
            self._files.check_keys(self._rows.stream, self._settings.mode)
            self._table.refresh()
        return self._look()

    def _evolve(self) -> None:
        evolution = plan_evolution(self._table.schema, self._rows.schema)
        evolution.check(str(self._table.name))
        if evolution.changes:
            self._attempt.clear_to_publish()
            self._table.evolve(evolution)

    @property
    def _aside(self) -> RowsAside:
        rows = self._rows.changes if isinstance(self._rows, ShapedChanges) else self._rows
        return RowsAside.of(self._label, rows, self._attempt, self._part)

    @property
    def _upserts(self) -> bool:
        """Whether rows of the table are replaced by key."""
        return isinstance(self._rows, ShapedChanges) or self._settings.mode in {"merge", "changes"}

    def _publish(self) -> Stamped:
        base = self._table.head
        if self._files.is_empty and self._settings.mode not in {"replace", "replace_object"}:
            return self._nothing(base)
        with reaching(self._table.name):
            branches = stale_branches(self._table, self._branch_prefix)
        if self._upserts or self._settings.mode == "replace_object":
            return self._publish_upsert(base, branches)
        with reaching(self._table.name):
            update = self._append() if self._settings.mode == "append" else self._replace()
        stamp = self._stamp(self._files.rows, self._settings.mode, "")
        self._files.published = tuple(self._files.locations)
        return Stamped(publish_update(self._table, self._attempt, base, update, stamp=stamp, drop=branches), stamp)

    def _append(self) -> Any:
        return self._table.append(self._files.data_files())

    def _replace(self) -> Any:
        everything = self._table.jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        update = self._table.java.newOverwrite().overwriteByRowFilter(everything)
        for file in self._files.data_files():
            update.addFile(file)
        return update

    def _publish_upsert(self, base: int | None, branches: Sequence[str]) -> Stamped:
        upsert = self._upsert = self._upsert or self._made_upsert()
        with reaching(self._table.name):
            plan = upsert.plan()
        if plan.kind == "merge":
            return self._publish_spark_merge(base, branches, upsert, plan)
        with reaching(self._table.name):
            update = upsert.update(plan)
        if update is None:
            return self._nothing(base)
        way = upsert.way or plan
        stamp = self._stamp(upsert.rows, way.kind, way.why, upsert.removed)
        self._files.published = (*self._files.locations, *upsert.more_files)
        number = publish_update(
            self._table, self._attempt, base, update, stamp=stamp, drop=branches, properties=_properties(upsert)
        )
        return Stamped(number, stamp)

    def _made_upsert(self) -> Upsert:
        rows, forced = self._rows, self._settings.upsert
        if isinstance(rows, ShapedChanges) and isinstance(self._files, ChangeFiles):
            columns = tuple(rows.changes.table_columns)
            is_copy = (
                isinstance(rows.changes, CopiedRows) and rows.changes.is_copy and self._key == tuple(rows.changes.key)
            )
            changes = ChangesOrder(rows.stream, self._key, columns, rows.shape, forced, self._aside, is_copy)
            made = History if rows.shape.mode == "history" else CurrentState
            return made(self._known.spark, self._table, self._files, changes)
        if self._part:
            objects = ReplaceOrder(rows.stream, self._part, earlier_parts(rows, self._attempt), forced)
            return Replacing(self._known.spark, self._table, self._files, objects)
        unique = self._settings.mode == "changes" or (bool(rows.key) and set(rows.key) <= set(self._key))
        order = MergeOrder(rows.stream, self._key, tuple(rows.order), unique, forced)
        return Merging(self._known.spark, self._table, self._files, order)

    def _publish_spark_merge(
        self, base: int | None, branches: Sequence[str], upsert: Upsert, plan: UpsertPlan
    ) -> Stamped:
        branch = f"{self._branch_prefix}{uuid.uuid4().hex[:12]}"
        stamp = self._stamp(upsert.rows, plan.kind, plan.why)
        upsert.on_branch(self._known.own_session(), stamp, branch)
        with reaching(self._table.name):
            self._table.refresh()
            stamp = Stamp.read(self._table.summary_of(branch)) or stamp  # Spark has counted what it took away
        self._files.published = upsert.more_files  # Spark wrote files of its own; most of ours were the way there
        properties = _properties(upsert)
        number = publish_branch(self._table, self._attempt, base, branch, drop=branches, properties=properties)
        return Stamped(number, stamp)

    @property
    def _branch_prefix(self) -> str:
        return branch_prefix(self._attempt.pipeline, self._label, self._rows.stream)

    def _nothing(self, base: int | None) -> Stamped:
        """A window without rows changes nothing, so nothing needs to be proved."""
        self._attempt.faults.reach("land.written")
        self._attempt.clear_to_publish()
        return Stamped(base or 0, self._stamp(0, self._settings.mode, "no rows", 0 if self._part else None))

    def _stamp(self, rows: int, upsert: str, why: str, removed: int | None = None) -> Stamp:
        files, stream = len(self._files.written or ()), self._rows.stream
        return Stamp.of(
            self._attempt, self._label, stream, rows=rows, files=files, upsert=upsert, why=why, removed=removed
        )

    def _discard_because_of(self, error: Exception) -> None:
        try:
            self._files.discard()
        except OSError as second:
            error.add_note(
                f"files of this try could not be removed ({second}); the next landing of the window removes them"
            )


def _properties(upsert: Upsert) -> Mapping[str, str] | None:
    """Of the table, which change with the landing."""
    return upsert.properties if isinstance(upsert, TableOfChanges) else None
