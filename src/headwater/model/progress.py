"""The progress of a pipeline, and the only moves that may change it.

A store keeps these values and nothing of its own: it compares, swaps and fences. Whether a move is allowed
is decided here, once, for every store.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from headwater.model import json_codec
from headwater.model.errors import MarkMovedBack
from headwater.model.landing import Landing
from headwater.model.position.marks import Json, Mark, mark_from_json
from headwater.model.position.window import Window

EntryKind = Literal["landed", "failed", "rewound", "abandoned", "repaired"]


@dataclass(frozen=True)
class Lease:
    """The right to run a pipeline until `expires_at` on the store's clock; a higher epoch beats a lower one."""

    pipeline: str
    owner: str
    epoch: int
    expires_at: dt.datetime
    ttl_seconds: float


@dataclass(frozen=True)
class Intent:
    """A window begun and not finished, and what has landed of it so far."""

    run: str
    window: Window
    begun_at: dt.datetime
    landed: tuple[Landing, ...] = ()

    def to_json(self) -> dict[str, Json]:
        return json_codec.fields_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Intent:
        return json_codec.from_stored(cls, data)


@dataclass(frozen=True)
class PausedStream:
    """A stream that its pipeline continues without, until its error is fixed."""

    stream: str
    since: dt.datetime
    code: str  # of the error
    error: str
    # Begun, and not landed everywhere for this stream; None: the stream was refused before it was part of any.
    window: Window | None = None
    landed: tuple[Landing, ...] = ()  # of this stream

    def to_json(self) -> dict[str, Json]:
        return json_codec.fields_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> PausedStream:
        return json_codec.from_stored(cls, data)


@dataclass(frozen=True)
class HistoryEntry:
    """One line of a pipeline's record. `who` and `why` are never empty for a rewind (G3)."""

    kind: EntryKind
    run: str
    at: dt.datetime
    who: str
    epoch: int
    start: str  # short texts of the marks: the record is for people
    end: str
    why: str = ""
    rows: int = 0
    rejected: int = 0
    seconds: float = 0.0
    sinks: tuple[Mapping[str, Json], ...] = ()
    error: str = ""

    def to_json(self) -> dict[str, Json]:
        return json_codec.fields_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> HistoryEntry:
        return cls(**{**data, "at": dt.datetime.fromisoformat(data["at"]), "sinks": tuple(data["sinks"])})


@dataclass(frozen=True)
class Progress:
    """The state of one pipeline. `version` grows by one with every write and is what compare-and-swap compares."""

    pipeline: str
    version: int = 0  # 0: nothing has been written yet
    epoch: int = 0  # the epoch of the last lease that was given out
    mark: Mark | None = None
    intent: Intent | None = None
    paused: tuple[PausedStream, ...] = ()  # at most one per stream

    def intending(self, intent: Intent) -> Progress:
        """Begin a window, or note what has landed of it."""
        return replace(self, intent=intent)

    def advanced(self, end: Mark) -> Progress:
        """The window has landed everywhere (G1): the mark moves, never back (G3), and the intent is done."""
        if self.mark is not None and not (end.comparable(self.mark) and end.covers(self.mark)):
            raise MarkMovedBack(
                f"{self.pipeline}: the mark stands at {self.mark} and cannot move to {end}",
                hint=f"only a rewind moves a mark back: headwater rewind {self.pipeline} --to …",
            )
        return replace(self, mark=end, intent=None)

    def with_paused(self, *changed: PausedStream) -> Progress:
        """Pause these streams, or replace what is known of them; the others stay as they are."""
        names = {paused.stream for paused in changed}
        return replace(self, paused=(*(old for old in self.paused if old.stream not in names), *changed))

    def without_paused(self, *streams: str) -> Progress:
        """Resume these streams."""
        return replace(self, paused=tuple(paused for paused in self.paused if paused.stream not in streams))

    def abandoned(self) -> Progress:
        """Drop an intent: nothing of it can have landed, or the next window replaces all of it."""
        return replace(self, intent=None)

    def rewound(self, to: Mark | None) -> Progress:
        """The one move that may go back. It drops an unfinished intent and resumes all streams."""
        return replace(self, mark=to, intent=None, paused=())

    def to_json(self) -> dict[str, Json]:
        return {
            "pipeline": self.pipeline,
            "version": self.version,
            "epoch": self.epoch,
            "mark": self.mark.to_json() if self.mark else None,
            "intent": self.intent.to_json() if self.intent else None,
            **({"waiting": [paused.to_json() for paused in self.paused]} if self.paused else {}),  # the name of 0.1.0
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Progress:
        return cls(
            pipeline=data["pipeline"],
            version=data["version"],
            epoch=data["epoch"],
            mark=mark_from_json(data["mark"]) if data["mark"] is not None else None,
            intent=Intent.from_json(data["intent"]) if data["intent"] is not None else None,
            paused=tuple(PausedStream.from_json(paused) for paused in data.get("waiting") or ()),
        )


def check_move(stored: Progress, updated: Progress, entry: HistoryEntry | None) -> None:
    """G3, enforced inside every store: a mark goes back or away only with a rewind on record."""
    if entry is not None and entry.kind == "rewound":
        if not (entry.who.strip() and entry.why.strip()):
            raise MarkMovedBack(
                f"{stored.pipeline}: a rewind has to say who and why", hint="give a reason: --why 'what happened'"
            )
        return
    if stored.mark is None:
        return
    if updated.mark is None or not updated.mark.comparable(stored.mark) or not updated.mark.covers(stored.mark):
        raise MarkMovedBack(
            f"{stored.pipeline}: the store holds {stored.mark}; a write of {updated.mark or 'no mark'} was refused",
            hint=f"only a rewind moves a mark back: headwater rewind {stored.pipeline} --to …",
        )
