"""Places in PostgreSQL's write-ahead log, as numbers and as PostgreSQL writes them."""

from __future__ import annotations

import re

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
