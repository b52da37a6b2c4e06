"""A table as the log describes it, right before its changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Identity = Literal["d", "n", "f", "i"]
"""Replica identity: d the primary key, n nothing, f the full row, i an index."""


@dataclass(frozen=True)
class LoggedColumn:
    """One column of a Relation message."""

    name: str
    type: int  # oid; a domain's own
    modifier: int
    in_identity: bool


@dataclass(frozen=True)
class Layout:
    """What a Relation message says. It holds for the messages behind it, also in mid-transaction."""

    oid: int
    schema: str
    name: str
    identity: Identity
    columns: tuple[LoggedColumn, ...]


@dataclass(frozen=True)
class Commit:
    """A transaction that is whole in what was peeked."""

    lsn: int  # of the commit record: Begin's final_lsn
    end: int  # behind it: where the slot may be moved to
    transaction: int
    time: int  # µs since 1970
