"""A row set aside: what could not be kept, where it stood, why, and everything needed to try again (G8)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headwater.model.marks import Json

LABEL = "rejects"  # of the sink that keeps them, beside the pipeline's own
# The part of a place that says: this row has no name of its own; it is that many'th of those alike in its split.
COPY = "copy"
# The part that names the sink which had no form for the row; the other sinks hold it.
SINK = "sink"
BY_SINK = "by_sink"  # in the proof of their landing: how many each sink set aside; the rest never got as far


@dataclass(frozen=True)
class Reject:
    """One row, or one message, that its stream had no place for."""

    stream: str
    place: Mapping[str, str | int]  # in the source's words: topic, partition, offset · object, line · the row's key
    reason: str
    payload: bytes  # as the source gave it
    more: Mapping[str, Json] = field(default_factory=dict)  # what else a replay needs: key, headers, timestamp
    part: str = ""  # the part of the window (an object's key) that brings no row at all, for this reason
    again: bool = False  # the source brings that part again by itself, in a later window: not kept as a reject

    @property
    def id(self) -> str:
        """The same whenever the same row is read again: a reject found twice is kept once."""
        text = json.dumps([self.stream, dict(self.place)], sort_keys=True).encode()
        return hashlib.sha256(text + b"\0" + self.payload).hexdigest()[:24]

    def to_json(self) -> dict[str, Json]:
        return {
            "stream": self.stream,
            "place": dict(self.place),
            "reason": self.reason,
            "payload": base64.b64encode(self.payload).decode(),
            "more": dict(self.more),
            "part": self.part,
            "again": self.again,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Reject:
        return cls(**{**data, "payload": base64.b64decode(data["payload"])})


# How a split tells of a reject while it is read; raises TooManyRejects when there are more than the pipeline bears.
SetAside = Callable[[Reject], None]
# The same for a sink, with the number of the part of the rows that it works on. Can be sent to a worker.
SetPartAside = Callable[[int, Reject], None]
