"""One landing is one move of main's head, and the move is a compare-and-swap (G2, G4).

Iceberg's own commit tries again on top of whatever it finds, which would let a stale writer publish. So the
snapshot is only prepared by Iceberg (`apply` writes its manifests), and the table's metadata is swapped here:
the catalog accepts it only if the table is exactly as it was when the head was compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.model.sink import Attempt
from headwater.sinks.iceberg.java_errors import HeadMoved, reaching
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.storage import remove_files
from headwater.sinks.iceberg.table import LakeTable

# What Iceberg finds when the table is no longer the one that the update was made for.
_STALE = ("CommitFailedException", "ValidationException")


class OutcomeUnknown(Exception):
    """The catalog failed while it swapped; whether it did shows when the landing is tried again."""


def publish_update(
    table: LakeTable,
    attempt: Attempt,
    base: int | None,
    update: Any,
    *,
    stamp: Stamp,
    drop: Sequence[str],
    properties: Mapping[str, str] | None = None,
) -> int:
    """Publish what an Iceberg update (append, row delta, overwrite) makes of the head `base`, and drop branches.

    Properties of the table change in the same step. Raises HeadMoved.
    """
    with reaching(table.name, stale=_STALE):
        for name, value in stamp.properties().items():
            update.set(name, value)
        snapshot = update.apply()
        metadata = table.metadata  # the one that `apply` built upon
    try:
        return _move_head(table, attempt, metadata, base, snapshot, drop=drop, properties=properties)
    except OutcomeUnknown:
        raise
    except Exception:
        _discard(table, snapshot)
        raise


def publish_branch(
    table: LakeTable,
    attempt: Attempt,
    base: int | None,
    branch: str,
    *,
    drop: Sequence[str],
    properties: Mapping[str, str] | None = None,
) -> int:
    """Publish the head of a staging branch that began at `base`, and drop the branch. Raises HeadMoved."""
    with reaching(table.name):
        table.refresh()
        metadata = table.metadata
        snapshot = int(metadata.ref(branch).snapshotId())
    return _move_head(table, attempt, metadata, base, snapshot, drop=[branch, *drop], properties=properties)


def _move_head(
    table: LakeTable,
    attempt: Attempt,
    metadata: Any,
    base: int | None,
    snapshot: Any,
    *,
    drop: Sequence[str],
    properties: Mapping[str, str] | None = None,
) -> int:
    """`snapshot` is Iceberg's value of a new one, or the number of one that the table has."""
    current = table.newest(metadata)
    if (None if current is None else int(current.snapshotId())) != base:
        raise HeadMoved(f"{table.name}: another writer published while we wrote")
    attempt.faults.reach("land.written")
    attempt.clear_to_publish()
    builder = table.jvm.org.apache.iceberg.TableMetadata.buildFrom(metadata).setBranchSnapshot(snapshot, table.branch)
    for branch in drop:
        builder = builder.removeRef(branch)
    if properties:
        changed = table.jvm.java.util.HashMap()
        for name, value in properties.items():
            changed.put(name, value)
        builder = builder.setProperties(changed)
    number = snapshot if isinstance(snapshot, int) else int(snapshot.snapshotId())
    _swap(table, metadata, builder, number)
    return number


def _swap(table: LakeTable, metadata: Any, builder: Any, snapshot: int) -> None:
    """The one step that readers see. Raises HeadMoved only when it certainly did not happen."""
    try:
        with reaching(table.name):
            table.operations.commit(metadata, builder.build())
    except HeadMoved:
        # A catalog that tries again by itself can meet its own success and call it a conflict.
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
        own = [m.path() for m in snapshot.allManifests(table.java.io()) if m.snapshotId() == number]
        remove_files([*own, str(snapshot.manifestListLocation())])
