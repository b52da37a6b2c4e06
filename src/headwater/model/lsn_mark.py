"""How far a PostgreSQL replication slot has been read, and which tables came by it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from headwater.model.mark import Json, Mark

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def lsn_text(lsn: int) -> str:
    """`0/16B3748`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """The number that orders as the log does. Raises ValueError."""
    found = _TEXT.fullmatch(text)
    if not found:
        raise ValueError(f"a place in PostgreSQL's log is written as 0/16B3748, not {text!r}")
    return int(found[1], 16) << 32 | int(found[2], 16)


_ERA_BITS = 56  # a log of 64 petabytes, 127 times; positions have room for 63 bits


@dataclass(frozen=True)
class LastCommit:
    """The last transaction that landed. A slot that fell back shows it again; another log at its place does not (G9)."""

    lsn: int  # of the commit record
    transaction: int
    time: int  # of the commit, in µs since 1970

    def to_json(self) -> dict[str, Json]:
        return {"lsn": lsn_text(self.lsn), "transaction": self.transaction, "time": self.time}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> LastCommit:
        return cls(lsn_number(data["lsn"]), int(data["transaction"]), int(data["time"]))


@dataclass(frozen=True)
class TableState:
    """One table of the stream, as of the mark."""

    oid: int
    copied: int  # the place in the log of the snapshot that it was copied in; earlier changes are in the copy
    copied_to: int | None = None  # pages that have been copied so far; None: all of them
    columns: Mapping[str, str] = field(default_factory=dict)  # of the stream, with their kinds; none ever goes
    # What the table itself looked like: column → its number in the catalog (0: not asked yet), type and modifier.
    shape: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    leaves: tuple[int, ...] = ()  # oids of the partitions that hold its rows, if it has any
    published: str = ""  # identity of its place in the publication: removed and added again it has another
    stale: str = ""  # why it has to be copied again: something happened that the log does not tell
    landed: int | None = (
        None  # while it was copied its changes waited: they have landed only up to here; None: as the mark
    )

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {
            "oid": self.oid,
            "copied": lsn_text(self.copied),
            "columns": [list(column) for column in self.columns.items()],  # in their order
            "shape": {name: list(column) for name, column in self.shape.items()},
            "key": list(self.key),
            "published": self.published,
        }
        if self.copied_to is not None:
            data["copied_to"] = self.copied_to
        if self.leaves:
            data["leaves"] = list(self.leaves)
        if self.landed is not None:
            data["landed"] = lsn_text(self.landed)
        return {**data, "stale": self.stale} if self.stale else data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> TableState:
        return cls(
            oid=int(data["oid"]),
            copied=lsn_number(data["copied"]),
            copied_to=data.get("copied_to"),
            columns=dict(data["columns"]),
            shape={name: (int(number), str(kind)) for name, (number, kind) in data["shape"].items()},
            key=tuple(data["key"]),
            leaves=tuple(data.get("leaves", ())),
            published=data["published"],
            stale=data.get("stale", ""),
            landed=lsn_number(data["landed"]) if "landed" in data else None,
        )


@dataclass(frozen=True)
class LsnMark(Mark):
    """Every transaction that committed before `lsn` has landed: the end of a commit, or of a snapshot's past."""

    kind: ClassVar[str] = "lsn"

    lsn: int
    cluster: str = ""  # system identifier and database: places in a log mean nothing elsewhere
    timeline: int = 0
    slot: str = ""
    turn: int = 0  # grows with every copy of a table and every rewind, which leave the place where it was
    era: int = 0  # grows when the log begins anew, in another cluster or an older copy of it: see `place`
    commit: LastCommit | None = None
    tables: Mapping[str, TableState] = field(default_factory=dict)  # stream → what is known of it
    labels: tuple[str, ...] = ()  # that stand right here in the log
    cut: int = 0  # the last position where a window ended for a verification

    def join(self, other: LsnMark) -> LsnMark:
        return max(self, other, key=LsnMark._preference)

    def covers(self, other: LsnMark) -> bool:
        return (self.era, self.lsn, self.turn) >= (other.era, other.lsn, other.turn)

    def place(self, lsn: int) -> int:
        """What orders changes (`model.changes.position`): places in a log that began anew come after all of the old."""
        return (self.era << _ERA_BITS) + lsn

    def _preference(self) -> tuple[int, int, int, str]:
        # Every process has to choose the same one of two marks at one position.
        return self.era, self.lsn, self.turn, json.dumps(self.to_json(), sort_keys=True)

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {
            "kind": self.kind,
            "version": 1,
            "lsn": lsn_text(self.lsn),
            "cluster": self.cluster,
            "timeline": self.timeline,
            "slot": self.slot,
            "turn": self.turn,
            "era": self.era,
            "tables": {stream: table.to_json() for stream, table in sorted(self.tables.items())},
        }
        if self.commit:
            data["commit"] = self.commit.to_json()
        if self.cut:
            data["cut"] = lsn_text(self.cut)
        return {**data, "labels": list(self.labels)} if self.labels else data

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> LsnMark:
        return cls(
            lsn=lsn_number(data["lsn"]),
            cluster=data["cluster"],
            timeline=int(data["timeline"]),
            slot=data["slot"],
            turn=int(data["turn"]),
            era=int(data["era"]),
            commit=LastCommit.from_json(data["commit"]) if "commit" in data else None,
            tables={stream: TableState.from_json(table) for stream, table in data["tables"].items()},
            labels=tuple(data.get("labels", ())),
            cut=lsn_number(data["cut"]) if "cut" in data else 0,
        )

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_json(), sort_keys=True))

    def __str__(self) -> str:
        copying = [f"{stream} is being copied" for stream, t in sorted(self.tables.items()) if t.copied_to is not None]
        return "; ".join([lsn_text(self.lsn), *copying])
