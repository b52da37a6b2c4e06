"""What a poll by a cursor column has seen, so that the next one recognises rows that committed late (G6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.model import json_codec
from headwater.model.types import CursorType, CursorValue


@dataclass(frozen=True)
class SeenTransactions:
    """Which PostgreSQL transactions a poll has seen, so that it can tell later ones from them (G6).

    The poll has seen every transaction below `horizon` except those in `pending`, which had not committed when
    it looked. The list of running transactions that PostgreSQL itself offers omits subtransactions, so
    `pending` is made from the state of each transaction instead.
    """

    cluster: str  # system identifier and database: transaction ids mean nothing elsewhere
    horizon: int
    pending: tuple[int, ...] = ()
    # What is needed to bound the search for late rows by the cursor; see sources/sql/windows/watermark.py.
    bounds: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return json_codec.fields_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SeenTransactions:
        return json_codec.from_stored(cls, data)


@dataclass(frozen=True)
class SeenDigests:
    """Digests of the rows read at and shortly below the mark, where rows carry no transaction ids (G6)."""

    since: CursorValue | None  # the lowest cursor value that the digests cover
    rows: frozenset[str] = frozenset()

    def to_json(self, cursor_type: CursorType) -> dict[str, Any]:
        since = None if self.since is None else cursor_type.to_json(self.since)
        return {"since": since, "rows": sorted(self.rows)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], cursor_type: CursorType) -> SeenDigests:
        since = None if data["since"] is None else cursor_type.from_json(data["since"])
        return cls(since, frozenset(data["rows"]))
