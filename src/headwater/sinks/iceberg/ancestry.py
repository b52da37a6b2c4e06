"""What the snapshots on the way back from main's head say about landings.

The whole way is read once, as one JSON text; afterwards only what is new is followed. The walk always ends
at the oldest ancestor, so a landing that is there is found (G2).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from headwater.model.errors import LeaseLost
from headwater.model.landing import Landing
from headwater.model.marks import Json
from headwater.model.sink import Attempt
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.table import LakeTable

REBUILT = "headwater.rebuilt"
_STEPS = 16  # from the head to what we know; beyond that, one text with everything is cheaper


@dataclass(frozen=True)
class Stamped:
    """A landing in the table's history."""

    snapshot: int
    stamp: Stamp

    def landing(self, seconds: float) -> Landing:
        stamp = self.stamp
        proof: dict[str, Json] = {"snapshot": self.snapshot, "upsert": stamp.upsert, "files": stamp.files}
        proof |= {"why": stamp.why} | ({} if stamp.removed is None else {"removed": stamp.removed})
        return Landing(stamp.sink, stamp.stream, stamp.window, stamp.rows, seconds, proof)


class Ancestry:
    """The landings behind one table's head, newest first. One per table, kept between landings."""

    def __init__(self) -> None:
        self._head: int | None = None
        self._landings: list[Stamped] = []

    def follow(self, table: LakeTable) -> Sequence[Stamped]:
        """The landings behind the head that the table was last seen with."""
        head = table.head
        if head != self._head:
            steps = self._steps(table)
            if steps is None:
                self._landings = _stamped(_whole_way(table, head))
            elif any(_is_rebuilt(step) for step in steps):
                self._landings = _stamped(steps)
            else:
                self._landings = [*_stamped(steps), *self._landings]
            self._head = head
        return self._landings

    def _steps(self, table: LakeTable) -> list[dict[str, Any]] | None:
        """The snapshots between the head and the one that we know, if it is near."""
        found: list[dict[str, Any]] = []
        if self._head is None:
            return None
        metadata = table.metadata
        snapshot = table.newest(metadata)
        while snapshot is not None and len(found) < _STEPS:
            if int(snapshot.snapshotId()) == self._head:
                return found
            found.append(json.loads(table.jvm.org.apache.iceberg.SnapshotParser.toJson(snapshot)))
            parent = snapshot.parentId()
            snapshot = None if parent is None else metadata.snapshot(parent)
        return None


def _whole_way(table: LakeTable, head: int | None) -> Iterable[dict[str, Any]]:
    if head is None:
        return
    by_id = {snapshot["snapshot-id"]: snapshot for snapshot in table.metadata_json()["snapshots"]}
    here: int | None = head
    while here is not None and here in by_id:
        yield by_id[here]
        here = by_id[here].get("parent-snapshot-id")


def _stamped(snapshots: Iterable[dict[str, Any]]) -> list[Stamped]:
    since = takewhile(lambda snapshot: not _is_rebuilt(snapshot), snapshots)
    read = ((snapshot["snapshot-id"], Stamp.read(snapshot.get("summary", {}))) for snapshot in since)
    return [Stamped(number, stamp) for number, stamp in read if stamp]


def _is_rebuilt(snapshot: dict[str, Any]) -> bool:
    """Whether the table was emptied here, to be made anew: what landed before is not in it any more."""
    return REBUILT in snapshot.get("summary", {})


def already_landed(landings: Sequence[Stamped], attempt: Attempt, sink: str, stream: str) -> Stamped | None:
    """The landing of this very window."""
    wanted = (attempt.pipeline, sink, stream, attempt.window.id)
    return next(
        (x for x in landings if (x.stamp.pipeline, x.stamp.sink, x.stamp.stream, x.stamp.window) == wanted), None
    )


def check_epoch(landings: Sequence[Stamped], attempt: Attempt, table: object) -> None:
    """G4: once a later holder of the lease has published here, an earlier one never may."""
    newest = max((x.stamp.epoch for x in landings if x.stamp.pipeline == attempt.pipeline), default=0)
    if newest > attempt.epoch:
        raise LeaseLost(
            f"{attempt.pipeline}: another process took over (epoch {newest}, ours is {attempt.epoch}) and has published to {table}",
            hint="nothing of this run was published; the other process goes on",
        )
