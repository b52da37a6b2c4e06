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

    @classmethod
    def of(cls, attempt: Attempt, sink: str, stream: str, *, rows: int, files: int, upsert: str, why: str) -> Stamp:
        end = json.dumps(attempt.window.end.to_json(), separators=(",", ":"))
        shown = end if len(end) < _LONGEST_END else str(attempt.window.end)[:_LONGEST_END]
        window, run, epoch = attempt.window.id, attempt.run, attempt.epoch
        return cls(attempt.pipeline, sink, stream, run, window, epoch, rows, files, upsert, why, shown)

    def properties(self) -> dict[str, str]:
        return {f"headwater.{name}": str(value) for name, value in vars(self).items()}

    @classmethod
    def read(cls, summary: Mapping[str, str]) -> Stamp | None:
        """The stamp in a snapshot's summary; None for snapshots of others."""
        if "headwater.window" not in summary:
            return None
        text = {name: summary.get(f"headwater.{name}", "") for name in cls.__dataclass_fields__}
        numbers = {name: int(text[name] or 0) for name in ("epoch", "rows", "files")}
        return cls(**{**text, **numbers})  # type: ignore[arg-type]
