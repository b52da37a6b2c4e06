"""A sink's proof that a window of a stream is durable in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.model import json_codec
from headwater.model.position.marks import Json


@dataclass(frozen=True)
class Landing:
    """Returned by a sink only when the rows are durable; only landings move a mark (G1)."""

    sink: str  # the sink's id in its pipeline: position and type, such as "2:iceberg"
    stream: str
    window: str  # Window.id
    rows: int
    seconds: float = 0.0
    proof: Mapping[str, Json] = field(default_factory=dict)  # what shows it: a snapshot id, a folder

    def to_json(self) -> dict[str, Json]:
        return json_codec.fields_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Landing:
        return cls(**data)
