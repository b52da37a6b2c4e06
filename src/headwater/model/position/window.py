"""The slice of a source that one cycle is responsible for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from headwater.model.position.marks import Json, Mark, StreamsMark, mark_from_json


@dataclass(frozen=True)
class Window:
    """After mark `start` (None: from the beginning), up to and including mark `end`."""

    start: Mark | None
    end: Mark
    part: str = ""  # of what belongs to the window and lands on its own: its rejects, a replay of them

    @cached_property
    def id(self) -> str:
        """The same for every try at this window, in every process: sinks recognise a window by it (G2, G5)."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {"start": self.start.to_json() if self.start else None, "end": self.end.to_json()}
        return {**data, "part": self.part} if self.part else data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Window:
        start = data["start"]
        return cls(
            mark_from_json(start) if start is not None else None, mark_from_json(data["end"]), data.get("part", "")
        )

    def __str__(self) -> str:
        if self.start is None:
            return f"up to {self.end}"
        if isinstance(self.start, StreamsMark) and isinstance(self.end, StreamsMark):
            before = self.start.marks
            moved = {stream: mark for stream, mark in sorted(self.end.marks.items()) if before.get(stream) != mark}
            return "; ".join(f"{stream}: {before.get(stream) or 'start'} → {mark}" for stream, mark in moved.items())
        return f"{self.start} → {self.end}"
