"""Rows that cannot be kept are in no table, but an earlier version of them may be: that is no row too many."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from headwater.model.rejects import Reject


def without_rejects(extra: pa.Table, key: Sequence[str], rejects: Sequence[Reject]) -> pa.Table:
    """Of rows that only the table seems to have, those of which the source has none."""
    if not rejects or not key or not extra.num_rows:
        return extra
    known = {_name(json.loads(str(one.place["row"])), key) for one in rejects if "row" in one.place}
    rows = extra.select(list(key)).to_pylist()
    return extra.filter(pa.array([_name(row, key) not in known for row in rows], pa.bool_()))


def _name(values: dict[str, object], key: Sequence[str]) -> tuple[str, ...] | None:
    """A key in the words of a database. None: the reject is not known by the key."""
    return tuple(_text(values[name]) for name in key) if set(values) == set(key) else None


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if not isinstance(value, dt.datetime):
        return value.isoformat() if isinstance(value, dt.date) else str(value)
    seconds, dot, rest = value.replace(tzinfo=None).isoformat(sep=" ").partition(".")
    return seconds + (dot + rest).rstrip("0") + ("+00" if value.tzinfo else "")
