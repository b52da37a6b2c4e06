"""In which column of the stream a column of the table lives, as its type changes over time."""

from __future__ import annotations

import re
from collections.abc import Mapping

Columns = Mapping[str, str]
"""Name → kind (`sources/sql/types.py`)."""

_WIDER = {("int32", "int64"), ("float32", "float64")}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def home_of(columns: Columns, name: str, kind: str) -> str:
    """Where values of that column and kind live: under its name, or, when it held another kind before, `name__kind`."""
    if name not in columns or wider(columns[name], kind) is not None:
        return name
    return f"{name}__{_word(kind)}"


def wider(one: str, other: str) -> str | None:
    """The kind that holds the values of both without a change; None: neither does."""
    if one == other:
        return one
    for narrow, wide in ((one, other), (other, one)):
        if (narrow, wide) in _WIDER:
            return wide
        numbers = _DECIMAL.fullmatch(narrow), _DECIMAL.fullmatch(wide)
        if numbers[0] and numbers[1] and numbers[0][2] == numbers[1][2] and int(numbers[0][1]) <= int(numbers[1][1]):
            return wide
    return None


def with_column(columns: Columns, name: str, kind: str) -> Columns:
    """The columns, after one of the table has been seen with that kind."""
    home = home_of(columns, name, kind)
    before = columns.get(home)
    return {**columns, home: kind if before is None else wider(before, kind) or before}


def _word(kind: str) -> str:
    return re.sub(r"\W+", "_", kind).strip("_")
