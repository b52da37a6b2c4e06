"""A position in PostgreSQL's WAL: a number that orders, the server's text of it, and the commit there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def lsn_text(lsn: int) -> str:
    """`0/16B3748`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """The number that orders as the WAL does. Raises ValueError."""
    halves = _TEXT.fullmatch(text)
    if not halves:
        raise ValueError(f"an LSN is written as 0/16B3748, not {text!r}")
    return int(halves[1], 16) << 32 | int(halves[2], 16)


@dataclass(frozen=True)
class LastCommit:
    """The last transaction that landed. A slot that fell back shows it again; another WAL at that LSN does not (G9)."""

    lsn: int  # of the commit record
    transaction: int
    time: int  # of the commit, in µs since 1970

    def to_json(self) -> dict[str, Any]:
        return {"lsn": lsn_text(self.lsn), "transaction": self.transaction, "time": self.time}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LastCommit:
        return cls(lsn_number(data["lsn"]), int(data["transaction"]), int(data["time"]))
