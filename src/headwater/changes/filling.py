"""Where values come from that an event leaves out because they did not change.

They are those of the row as it was just before: of an earlier change in the batch, or of the row that a table holds.
After a change of key that row has the former key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.changes.latest import InOrder
from headwater.changes.positions import Positions


@dataclass(frozen=True)
class Incomplete:
    """A change that leaves values out."""

    missing: frozenset[str]
    old_key: int | None = None  # the number of its former key, if the change gave it another


@dataclass(frozen=True)
class InBatch:
    """The value of another row of the batch."""

    row: int


@dataclass(frozen=True)
class InTable:
    """The value of the last row with this key that stood in the log before this position."""

    key: int  # its number
    before: int
    moved: bool = False  # it is a former key: its delete, at the very position, must have come first


Origin = InBatch | InTable | None  # None: the row was deleted before, nobody knows the value


class Filling:
    """For one batch."""

    def __init__(
        self,
        order: InOrder,
        positions: Positions,
        keys: Mapping[int, int],  # incomplete row → its key's number
        incomplete: Mapping[int, Incomplete],
        deletes: Iterable[int],
    ) -> None:
        self._order, self._positions, self._keys = order, positions, keys
        self._incomplete, self._deletes = incomplete, frozenset(deletes)

    def origins(self, row: int) -> dict[str, Origin]:
        """Of every value that the row leaves out."""
        left = set(self._incomplete[row].missing)
        made: dict[str, Origin] = {}
        self._follow(row, self._keys[row], left, made)
        return made

    def _follow(self, row: int, key: int, left: set[str], made: dict[str, Origin]) -> None:
        """Go back change by change, from key to former key, until every value is found."""
        place = self._incomplete.get(row)
        moved = place is not None and place.old_key is not None
        if place is not None and place.old_key is not None:
            key = place.old_key
        before = self._positions.at(row)
        for earlier in self._order.of_key(key)[::-1].tolist():
            if self._positions.at(earlier) >= before:
                continue
            if earlier in self._deletes:
                made.update(dict.fromkeys(left))
                return
            there = self._incomplete.get(earlier)
            found = left - there.missing if there else set(left)
            made.update(dict.fromkeys(found, InBatch(earlier)))
            left -= found
            if not left:
                return
            if there is not None and there.old_key is not None:
                self._follow(earlier, key, left, made)
                return
        made.update(dict.fromkeys(left, InTable(key, before, moved)))
