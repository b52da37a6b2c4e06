"""Names for what a table holds now: Iceberg tags on its head. Expiring snapshots keeps those that have one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.model.errors import PublishConflict, RunError
from headwater.model.sink import Attempt
from headwater.sinks.iceberg.java_errors import HeadMoved, reaching
from headwater.sinks.iceberg.table import LakeTable

_TRIES = 5


def tag_head(table: LakeTable, attempt: Attempt, labels: Sequence[str]) -> None:
    """All labels in one commit. Those that stand behind the head already stay there; a table without snapshots gets none."""
    for _ in range(_TRIES):
        with reaching(table.name):
            metadata = table.metadata
            head = table.newest(metadata)
            new = [label for label in labels if not stands(table, label)]
        if head is None or not new:
            return
        attempt.clear_to_publish()  # G4
        try:
            with reaching(table.name):
                table.operations.commit(metadata, _with_tags(table, metadata, int(head.snapshotId()), new))
        except HeadMoved:
            with reaching(table.name):
                table.refresh()
        else:
            return
    raise PublishConflict(
        f"{table.name}: other writers published {_TRIES} times while the tags {', '.join(labels)} were made",
        hint="the next cycle tries again",
    )


def is_taken(table: LakeTable, label: str) -> bool:
    """Whether the table has a tag or a branch of that name."""
    return table.metadata.ref(label) is not None


def stands(table: LakeTable, label: str) -> bool:
    """Whether an earlier try made the tag: it is behind the head. Raises where it belongs to something else."""
    ref = table.metadata.ref(label)
    if ref is None:
        return False
    if ref.isTag() and _may_be_behind_head(table, int(ref.snapshotId())):
        return True
    kind = "tag" if ref.isTag() else "branch"
    raise RunError(
        f"{table.name}: the {kind} {label} is there already and is not of the table's present history",
        hint=f"look what it is for; to let the label have the name: ALTER TABLE {table.name.quoted} DROP {kind.upper()} `{label}`",
    )


def _may_be_behind_head(table: LakeTable, snapshot: int) -> bool:
    """Where snapshots in between have expired nobody can tell, and it is: other histories come by a rollback only."""
    parents = {one["snapshot-id"]: one.get("parent-snapshot-id") for one in table.metadata_json()["snapshots"]}
    here = table.head
    while here is not None and here != snapshot:
        if here not in parents:
            return True
        here = parents[here]
    return here is not None


def _with_tags(table: LakeTable, metadata: Any, snapshot: int, labels: Sequence[str]) -> Any:
    iceberg = table.jvm.org.apache.iceberg
    builder = iceberg.TableMetadata.buildFrom(metadata)
    for label in labels:
        builder = builder.setRef(label, iceberg.SnapshotRef.tagBuilder(snapshot).build())
    return builder.build()
