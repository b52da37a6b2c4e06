"""What a mark remembers of a stream beside its position: columns, key, and the state of a captured table.

A window is read from its two marks alone (G5), so these values travel with the mark. Each kind of mark stores them in the
form that 0.1.0 gave them (`marks.py`); in memory there is this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headwater.model.position.lsn import lsn_number, lsn_text

K = TypeVar("K")
V = TypeVar("V")

Columns = Mapping[str, tuple[int, str]]
"""Column → its number, in the order of inference, and its type."""


@dataclass(frozen=True, kw_only=True)
class StreamState:
    """A stream as of a mark. A column that was inferred once stays: a retry has the columns of the first try (G5)."""

    columns: Columns = field(default_factory=dict)
    # Column of the key → its position in the key. The join of two different keys may give two columns one position.
    key_positions: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(sorted(self.key_positions, key=lambda name: (self.key_positions[name], name)))

    @property
    def types(self) -> dict[str, str]:
        """Column → its type, in the order of their numbers."""
        return {name: ddl for name, (_, ddl) in sorted(self.columns.items(), key=lambda column: column[1][0])}

    def join(self, other: StreamState) -> StreamState:
        """What both know of columns and key. Of two types of a column the wider one holds the values of both."""
        return StreamState(
            columns=union(self.columns, other.columns, lambda one, another: max(one, another, key=_width)),
            key_positions=union(self.key_positions, other.key_positions, max),
        )


def union(one: Mapping[K, V], other: Mapping[K, V], join: Callable[[V, V], V]) -> dict[K, V]:
    """Every key of both; `join` decides where both have a value."""
    return {**one, **{key: join(one[key], value) if key in one else value for key, value in other.items()}}


_WIDER = re.compile(r"\b(?:bigint|double)\b|\bdecimal\((\d+)")


def _width(column: tuple[int, str]) -> tuple[int, int, str]:
    """An order of columns in which a wider type comes behind: a join must have one for any two."""
    number, ddl = column
    return number, sum(int(wider[1] or 1) for wider in _WIDER.finditer(ddl)), ddl


def columns_learned(before: Mapping[str, StreamState], after: Mapping[str, StreamState]) -> list[str]:
    """What a window inferred anew about columns and keys, in a line each; of the first window of a stream nothing."""
    return [
        line
        for stream, state in sorted(after.items())
        if stream in before
        for line in _learned(stream, before[stream], state)
    ]


def _learned(stream: str, before: StreamState, after: StreamState) -> Iterator[str]:
    known = before.types
    for name, ddl in after.types.items() if known else ():
        if name not in known:
            yield f"{stream}: new column {name} {ddl}"
        elif known[name] != ddl:
            yield f"{stream}: {name} {known[name]} → {ddl}"
    if before.key and before.key != after.key:
        yield f"{stream}: key {', '.join(before.key)} → {', '.join(after.key)}"


def numbered(types: Mapping[str, str]) -> Columns:
    """The columns of a stream that has them in this order."""
    return {name: (number, ddl) for number, (name, ddl) in enumerate(types.items())}


def positions(key: Iterable[str]) -> dict[str, int]:
    """`StreamState.key_positions` of a key."""
    return {name: position for position, name in enumerate(key)}


# As 0.1.0 stored what is inferred: `{column: [number, type]}`. A key looks the same, with this word as type.
KEY_TYPE = "key"


def columns_json(columns: Columns) -> dict[str, Any]:
    return {name: list(column) for name, column in columns.items()}


def key_json(state: StreamState) -> dict[str, Any]:
    return {name: [position, KEY_TYPE] for name, position in state.key_positions.items()}


def columns_from_json(data: Mapping[str, Any]) -> Columns:
    return {name: (int(number), str(ddl)) for name, (number, ddl) in data.items()}


def state_from_json(columns: Mapping[str, Any], key: Mapping[str, Any]) -> StreamState:
    key_positions = {name: position for name, (position, _) in columns_from_json(key).items()}
    return StreamState(columns=columns_from_json(columns), key_positions=key_positions)


@dataclass(frozen=True)
class TableState(StreamState):
    """A captured table of PostgreSQL. None of its columns is ever dropped."""

    oid: int
    copied: int  # LSN of the snapshot that it was copied in; earlier changes are in the copy
    copied_to: int | None = None  # pages that have been copied so far; None: all of them
    # The table in the catalog: column → its number there (0: not read yet), type and modifier.
    shape: Columns = field(default_factory=dict)
    attributes: int = (
        0  # the number of its newest column, dropped or not, when the WAL was last read to its end; 0: unknown
    )
    leaves: tuple[int, ...] = ()  # oids of the partitions that hold its rows, if it has any
    published: str = ""  # identity of its publication entry: removed and added again it has another
    stale: str = ""  # why it has to be copied again: something happened that the WAL does not show
    landed: int | None = None  # its changes waited while it was copied, and have landed up to here; None: as the mark

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "oid": self.oid,
            "copied": lsn_text(self.copied),
            "columns": [list(column) for column in self.types.items()],
            "shape": columns_json(self.shape),
            "key": list(self.key),
            "published": self.published,
        }
        if self.copied_to is not None:
            data["copied_to"] = self.copied_to
        if self.attributes:
            data["attributes"] = self.attributes
        if self.leaves:
            data["leaves"] = list(self.leaves)
        if self.landed is not None:
            data["landed"] = lsn_text(self.landed)
        return {**data, "stale": self.stale} if self.stale else data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TableState:
        return cls(
            oid=int(data["oid"]),
            copied=lsn_number(data["copied"]),
            copied_to=data.get("copied_to"),
            columns=numbered(dict(data["columns"])),
            shape=columns_from_json(data["shape"]),
            attributes=int(data.get("attributes", 0)),
            key_positions=positions(data["key"]),
            leaves=tuple(data.get("leaves", ())),
            published=data["published"],
            stale=data.get("stale", ""),
            landed=lsn_number(data["landed"]) if "landed" in data else None,
        )
