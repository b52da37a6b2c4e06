"""One landing is one move of main's head, stamped in the snapshot, and the move is a compare-and-swap (G2, G4).

Iceberg's own commit retries on top of any newer head, which would let a stale writer publish. So Iceberg only
prepares the snapshot (`apply` writes its manifests), and the table's metadata is swapped here: the catalog accepts it
only if the table is unchanged since the head was compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from headwater.model.errors import LeaseLost
from headwater.model.landing import Landing
from headwater.model.position.marks import Json
from headwater.model.protocols.sink import Attempt
from headwater.sinks.iceberg.catalog.jvm import HeadMoved, reaching
from headwater.sinks.iceberg.catalog.table import LakeTable
from headwater.sinks.iceberg.data_files import remove_files

_LONGEST_END = 4096


@dataclass(frozen=True)
class Stamp:
    """The properties of a landing: pipeline, sink, stream, window, epoch, counts."""

    pipeline: str
    sink: str
    stream: str
    run: str
    window: str
    epoch: int
    rows: int
    files: int
    upsert: str
    why: str
    end: str
    removed: int | None = None  # rows of the table that the landing removed; None: not counted

    @classmethod
    def of(
        cls,
        attempt: Attempt,
        sink: str,
        stream: str,
        *,
        rows: int,
        files: int,
        upsert: str,
        why: str,
        removed: int | None = None,
    ) -> Stamp:
        end = json.dumps(attempt.window.end.to_json(), separators=(",", ":"))
        end_text = end if len(end) < _LONGEST_END else str(attempt.window.end)[:_LONGEST_END]
        window, run, epoch = attempt.window.id, attempt.run, attempt.epoch
        return cls(attempt.pipeline, sink, stream, run, window, epoch, rows, files, upsert, why, end_text, removed)

    @property
    def owner(self) -> tuple[str, str, str]:
        return self.pipeline, self.sink, self.stream

    def properties(self) -> dict[str, str]:
        return {f"headwater.{name}": str(value) for name, value in vars(self).items() if value is not None}

    @classmethod
    def read(cls, summary: Mapping[str, str]) -> Stamp | None:
        """The stamp in a snapshot's summary; None for snapshots of others."""
        if "headwater.window" not in summary:
            return None
        text = {name: summary.get(f"headwater.{name}", "") for name in cls.__dataclass_fields__}
        numbers = {name: int(text[name] or 0) for name in ("epoch", "rows", "files")}
        return cls(**{**text, **numbers, "removed": _removed(summary)})  # type: ignore[arg-type]


def _removed(summary: Mapping[str, str]) -> int | None:
    """Headwater's count, or that of Spark's MERGE."""
    count = summary.get("headwater.removed")
    if count is not None:
        return int(count)
    counts = [summary.get(f"spark.merge-into.num-target-rows-{what}") for what in ("updated", "deleted")]
    numbers = [int(count) for count in counts if count]
    return sum(numbers) if numbers and min(numbers) >= 0 else None


REBUILT = "headwater.rebuilt"
_STEPS = 16  # from the head to the cached snapshot; beyond that, reading the whole metadata is cheaper


@dataclass(frozen=True)
class StampedSnapshot:
    """A landing in the table's history."""

    snapshot: int
    stamp: Stamp

    def landing(self, seconds: float) -> Landing:
        stamp = self.stamp
        proof: dict[str, Json] = {"snapshot": self.snapshot, "upsert": stamp.upsert, "files": stamp.files}
        proof |= {"why": stamp.why} | ({} if stamp.removed is None else {"removed": stamp.removed})
        return Landing(stamp.sink, stamp.stream, stamp.window, stamp.rows, seconds, proof)


class Ancestry:
    """The landings in the history of one table's head, newest first; cached between windows."""

    def __init__(self) -> None:
        self._head: int | None = None
        self._landings: list[StampedSnapshot] = []

    def follow(self, table: LakeTable) -> Sequence[StampedSnapshot]:
        """The landings in the history of the table's head, as of its last refresh."""
        head = table.head
        if head != self._head:
            steps = self._steps(table)
            if steps is None:
                self._landings = _stamped(_all_ancestors(table, head))
            elif any(_is_rebuilt(step) for step in steps):
                self._landings = _stamped(steps)
            else:
                self._landings = [*_stamped(steps), *self._landings]
            self._head = head
        return self._landings

    def _steps(self, table: LakeTable) -> list[dict[str, Any]] | None:
        """The snapshots between the head and the cached one; None: it is not near."""
        steps: list[dict[str, Any]] = []
        if self._head is None:
            return None
        metadata = table.metadata
        snapshot = table.newest(metadata)
        while snapshot is not None and len(steps) < _STEPS:
            if int(snapshot.snapshotId()) == self._head:
                return steps
            steps.append(json.loads(table.jvm.org.apache.iceberg.SnapshotParser.toJson(snapshot)))
            parent = snapshot.parentId()
            snapshot = None if parent is None else metadata.snapshot(parent)
        return None


def _all_ancestors(table: LakeTable, head: int | None) -> Iterable[dict[str, Any]]:
    if head is None:
        return
    by_id = {snapshot["snapshot-id"]: snapshot for snapshot in table.metadata_json()["snapshots"]}
    snapshot: int | None = head
    while snapshot is not None and snapshot in by_id:
        yield by_id[snapshot]
        snapshot = by_id[snapshot].get("parent-snapshot-id")


def _stamped(snapshots: Iterable[dict[str, Any]]) -> list[StampedSnapshot]:
    since = takewhile(lambda snapshot: not _is_rebuilt(snapshot), snapshots)
    read = ((snapshot["snapshot-id"], Stamp.read(snapshot.get("summary", {}))) for snapshot in since)
    return [StampedSnapshot(number, stamp) for number, stamp in read if stamp]


def _is_rebuilt(snapshot: dict[str, Any]) -> bool:
    """True for the snapshot that emptied the table for a rebuild: earlier landings are not in it any more."""
    return REBUILT in snapshot.get("summary", {})


def find_landing(
    landings: Sequence[StampedSnapshot], attempt: Attempt, sink: str, stream: str
) -> StampedSnapshot | None:
    """The landing of the attempt's window."""
    identity = ((attempt.pipeline, sink, stream), attempt.window.id)
    return next((x for x in landings if (x.stamp.owner, x.stamp.window) == identity), None)


def check_epoch(landings: Sequence[StampedSnapshot], attempt: Attempt, table: object) -> None:
    """G4: once a later holder of the lease has published to the table, an earlier one never may."""
    newest = max((x.stamp.epoch for x in landings if x.stamp.pipeline == attempt.pipeline), default=0)
    if newest > attempt.epoch:
        raise LeaseLost(
            f"{attempt.pipeline}: another process took over (epoch {newest}, ours is {attempt.epoch}) and has published to {table}",
            hint="this run published nothing; the other process continues",
        )


# Raised when the table has changed since the update was prepared.
_STALE = ("CommitFailedException", "ValidationException")


class OutcomeUnknown(Exception):
    """The catalog failed during the swap; the next try finds out whether it happened."""


@dataclass
class PreparedSnapshot:
    """A snapshot that follows the head `base`, written and not yet visible."""

    table: LakeTable
    metadata: Any
    base: int | None
    snapshot: Any  # a new one as Iceberg's value, or the number of one that the table has
    drop: Sequence[str]  # branches
    properties: Mapping[str, str]
    published: bool = False

    def publish(self, attempt: Attempt) -> int:
        """Move the head, drop the branches, change the table's properties: one commit. Raises HeadMoved."""
        try:
            self._check_head()
            with attempt.publishing():
                number = self._move_head()
                self.published = True
        except OutcomeUnknown:
            raise
        except Exception:
            if not self.published and not isinstance(self.snapshot, int):
                _discard(self.table, self.snapshot)
            raise
        return number

    def _check_head(self) -> None:
        current = self.table.newest(self.metadata)
        if (None if current is None else int(current.snapshotId())) != self.base:
            raise HeadMoved(f"{self.table.name}: another writer published during this landing")

    def _move_head(self) -> int:
        table, jvm = self.table, self.table.jvm
        builder = jvm.org.apache.iceberg.TableMetadata.buildFrom(self.metadata)
        builder = builder.setBranchSnapshot(self.snapshot, table.branch)
        for branch in self.drop:
            builder = builder.removeRef(branch)
        if self.properties:
            changed = jvm.java.util.HashMap()
            for name, value in self.properties.items():
                changed.put(name, value)
            builder = builder.setProperties(changed)
        number = self.snapshot if isinstance(self.snapshot, int) else int(self.snapshot.snapshotId())
        _swap(table, self.metadata, builder, number)
        return number


def prepare_update(
    table: LakeTable,
    base: int | None,
    update: Any,
    *,
    stamp: Stamp,
    drop: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> PreparedSnapshot:
    """The snapshot of an Iceberg update (append, row delta, overwrite). Raises HeadMoved."""
    with reaching(table.name, stale=_STALE):
        for name, value in stamp.properties().items():
            update.set(name, value)
        snapshot = update.apply()
        metadata = table.metadata  # the one that `apply` built upon
    return PreparedSnapshot(table, metadata, base, snapshot, drop, properties or {})


def prepare_branch(
    table: LakeTable,
    base: int | None,
    branch: str,
    *,
    drop: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> PreparedSnapshot:
    """The head of a staging branch that began at `base`; the branch is dropped when it is published."""
    with reaching(table.name):
        table.refresh()
        metadata = table.metadata
        snapshot = int(metadata.ref(branch).snapshotId())
    return PreparedSnapshot(table, metadata, base, snapshot, [branch, *drop], properties or {})


def _swap(table: LakeTable, metadata: Any, builder: Any, snapshot: int) -> None:
    """The commit that readers see. Raises HeadMoved only if it certainly did not happen."""
    try:
        with reaching(table.name):
            table.operations.commit(metadata, builder.build())
    except HeadMoved:
        # A catalog that retries by itself can take its own success for a conflict.
        if not _is_published(table, snapshot):
            raise
    except Exception as error:
        raise OutcomeUnknown from error


def _is_published(table: LakeTable, snapshot: int) -> bool:
    try:
        with reaching(table.name):
            table.refresh()
            util = table.jvm.org.apache.iceberg.util.SnapshotUtil
            return table.head is not None and bool(util.isAncestorOf(table.java, snapshot))
    except Exception as error:
        raise OutcomeUnknown from error


def _discard(table: LakeTable, snapshot: Any) -> None:
    """Remove the manifests of a snapshot that was never published."""
    with reaching(table.name):
        number = snapshot.snapshotId()
        manifests = [m.path() for m in snapshot.allManifests(table.java.io()) if m.snapshotId() == number]
        remove_files([*manifests, str(snapshot.manifestListLocation())])
