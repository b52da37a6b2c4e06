"""The landing as properties of the snapshot that publishes it (G2): how a window is recognised in a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.model.sink import Attempt

_LONGEST_END = 4096


@dataclass(frozen=True)
class Stamp:
    """Who landed which window, as which epoch."""

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
    removed: int | None = None  # rows of the table that the landing took away; None: nobody counted

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
        shown = end if len(end) < _LONGEST_END else str(attempt.window.end)[:_LONGEST_END]
        window, run, epoch = attempt.window.id, attempt.run, attempt.epoch
        return cls(attempt.pipeline, sink, stream, run, window, epoch, rows, files, upsert, why, shown, removed)

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
    """Our own count, or that of Spark's MERGE, which knows only when it is done."""
    own = summary.get("headwater.removed")
    if own is not None:
        return int(own)
    counts = [summary.get(f"spark.merge-into.num-target-rows-{what}") for what in ("updated", "deleted")]
    known = [int(count) for count in counts if count]
    return sum(known) if known and min(known) >= 0 else None
